"""The face has one method per message, with the message's fields as its parameters."""

import inspect
import re
from typing import Any

import msgspec
import pytest

from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.op import OPS, Op, info_of
from callboard.core.operand import Placeholder
from callboard.kernel.sparse import BsrRef, Check, CsrRef
from callboard.kernel.sparse.face import SparseFace

MESSAGES = {tag.partition(".")[2]: cls for tag, cls in OPS.items() if tag.startswith("sparse.")}
BESIDE = {"from_scipy", "to_scipy"}
METHODS = {name: method for name, method in vars(SparseFace).items() if not name.startswith("_")}

VECTOR: Any = Placeholder(layout_of(DTYPES["f32"], (2,)))
INDEX: Any = Placeholder(layout_of(DTYPES["i32"], (2,)))
POINTERS: Any = Placeholder(layout_of(DTYPES["i32"], (3,)))
MATRIX = CsrRef(VECTOR, INDEX, POINTERS, (2, 2))
BLOCKS = BsrRef(Placeholder(layout_of(DTYPES["f32"], (2, 1, 1))), INDEX, POINTERS, (2, 2))  # type: ignore[arg-type]


def test_one_method_per_message_named_after_it() -> None:
    assert set(METHODS) == set(MESSAGES) | BESIDE
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


def value(cls: type[Op[Any, Any]], name: str, default: Any) -> Any:
    """Something valid in its kind that is not the default."""
    field = next((f for f in info_of(cls).dynamic if f.name == name), None)
    if field is None:
        settings = {"format": "csc", "index": "i64", "block": (2, 2), "duplicates": "keep" if cls is Check else "sum"}
        return settings.get(name, not default)
    if field.compounds:
        return MATRIX if CsrRef in field.compounds else BLOCKS
    return 0.25 if field.role.value == "scalar" else VECTOR


@pytest.mark.parametrize("name", MESSAGES)
def test_every_argument_arrives_in_its_field(name: str) -> None:
    cls = MESSAGES[name]
    arguments = {f.name: value(cls, f.name, f.default) for f in msgspec.structs.fields(cls)}
    submitted: list[Any] = []
    face: Any = SparseFace(lambda op: submitted.append(op) or "answer", lambda array: array)
    assert getattr(face, name)(**arguments) == "answer"
    (op,) = submitted
    assert type(op) is cls
    for field, given in arguments.items():
        got = getattr(op, field)
        assert got == given if isinstance(given, float | str | tuple) else got is given


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_what_it_does(name: str) -> None:
    assert (METHODS[name].__doc__ or "").strip()


@pytest.mark.parametrize("name", MESSAGES)
def test_the_docstring_says_what_it_does_and_names_every_field(name: str) -> None:
    cls = MESSAGES[name]
    text = cls.__doc__ or ""
    assert text.strip().splitlines()[0].strip()
    for field in cls.__struct_fields__:
        assert re.search(rf"^ +(\w+, )*{field}(, \w+)*:", text, re.MULTILINE), field
