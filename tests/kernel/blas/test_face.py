"""The face has one method per message, with the message's fields as its parameters."""

import inspect
import re
from typing import Any

import msgspec
import pytest

from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.op import OPS, Op, info_of
from callboard.core.operand import Placeholder, Role
from callboard.kernel.blas.face import BlasFace

MESSAGES = {tag.partition(".")[2]: cls for tag, cls in OPS.items() if tag.startswith("blas.")}
METHODS = {name: method for name, method in vars(BlasFace).items() if not name.startswith("_")}


def test_one_method_per_message_named_after_it() -> None:
    assert set(METHODS) == set(MESSAGES)
    for name, cls in MESSAGES.items():
        assert re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower() == name


@pytest.mark.parametrize("name", MESSAGES)
def test_parameters_are_the_fields(name: str) -> None:
    """Same names, order and defaults; what is optional is keyword-only."""
    parameters = list(inspect.signature(METHODS[name]).parameters.values())[1:]
    fields = msgspec.structs.fields(MESSAGES[name])
    assert [p.name for p in parameters] == [f.name for f in fields]
    for parameter, field in zip(parameters, fields, strict=True):
        required = field.default is msgspec.NODEFAULT
        assert parameter.kind is (parameter.POSITIONAL_OR_KEYWORD if required else parameter.KEYWORD_ONLY)
        assert parameter.default == (parameter.empty if required else field.default)
        assert type(parameter.default) is type(parameter.empty if required else field.default)


def other_value(cls: type[Op[Any, Any]], name: str, default: Any) -> Any:
    """Something valid in its kind that is not the default."""
    role = info_of(cls).roles.get(name)
    if role is Role.SCALAR:
        return 0.25
    if role is None:
        return not default
    one = Placeholder(layout_of(DTYPES["f32"], (2, 2)))
    return (one, one) if next(f.many for f in info_of(cls).dynamic if f.name == name) else one


@pytest.mark.parametrize("name", MESSAGES)
def test_every_argument_arrives_in_its_field(name: str) -> None:
    cls = MESSAGES[name]
    arguments = {f.name: other_value(cls, f.name, f.default) for f in msgspec.structs.fields(cls)}
    submitted: list[Any] = []
    face = BlasFace(lambda op: submitted.append(op) or "answer")
    assert getattr(face, name)(**arguments) == "answer"
    (op,) = submitted
    assert type(op) is cls
    for field, value in arguments.items():
        got = getattr(op, field)
        assert got == value if isinstance(value, float | tuple) else got is value


@pytest.mark.parametrize("name", MESSAGES)
def test_defaults_of_the_face_give_defaults_of_the_message(name: str) -> None:
    cls = MESSAGES[name]
    fields = msgspec.structs.fields(cls)
    required = {f.name: other_value(cls, f.name, None) for f in fields if f.default is msgspec.NODEFAULT}
    submitted: list[Any] = []
    getattr(BlasFace(submitted.append), name)(**required)
    assert [getattr(submitted[0], f.name) for f in fields] == [required.get(f.name, f.default) for f in fields]


def test_sequences_become_tuples() -> None:
    one = Placeholder(layout_of(DTYPES["f32"], (2, 2)))
    submitted: list[Any] = []
    BlasFace(submitted.append).gemm_grouped([one], [one], [one])  # type: ignore[list-item]
    assert submitted[0].c == (one,)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_what_it_does(name: str) -> None:
    text = inspect.getdoc(METHODS[name])
    assert text
    assert text.splitlines()[0].endswith(".")
