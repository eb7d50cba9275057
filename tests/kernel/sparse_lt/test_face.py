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
from callboard.kernel.sparse_lt import StructuredRef
from callboard.kernel.sparse_lt.face import SparseLtFace

MESSAGES = {tag.partition(".")[2]: cls for tag, cls in OPS.items() if tag.startswith("sparse_lt.")}
METHODS = {name: method for name, method in vars(SparseLtFace).items() if not name.startswith("_")}
SETTINGS = {"algorithm": "tile", "activation": "gelu", "out_dtype": "f32", "autotune": True}

MATRIX: Any = Placeholder(layout_of(DTYPES["f32"], (8, 8)))
BYTES: Any = Placeholder(layout_of(DTYPES["u8"], (2176,)))
STRUCTURED = StructuredRef(BYTES, "f32", (8, 8))


def test_one_method_per_message_named_after_it() -> None:
    assert set(METHODS) == set(MESSAGES)
    for name, cls in MESSAGES.items():
        assert re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower() == name


@pytest.mark.parametrize("name", MESSAGES)
def test_parameters_are_the_fields(name: str) -> None:
    """The required ones first, in any order; what is optional is keyword-only and has the field's default."""
    parameters = {p.name: p for p in list(inspect.signature(METHODS[name]).parameters.values())[1:]}
    fields = {f.name: f for f in msgspec.structs.fields(MESSAGES[name])}
    assert set(parameters) == set(fields)
    for name, parameter in parameters.items():
        field = fields[name]
        assert parameter.kind is (parameter.POSITIONAL_OR_KEYWORD if field.required else parameter.KEYWORD_ONLY)
        assert parameter.default == (parameter.empty if field.required else field.default)


def value(cls: type[Op[Any, Any]], name: str) -> Any:
    """Something valid in its kind that is not the default."""
    field = next((f for f in info_of(cls).dynamic if f.name == name), None)
    if field is None:
        return SETTINGS[name]
    if field.compounds:
        return STRUCTURED
    return 0.25 if field.role.value == "scalar" else MATRIX


@pytest.mark.parametrize("name", MESSAGES)
def test_every_argument_arrives_in_its_field(name: str) -> None:
    cls = MESSAGES[name]
    arguments = {f.name: value(cls, f.name) for f in msgspec.structs.fields(cls)}
    submitted: list[Any] = []
    face: Any = SparseLtFace(lambda op: submitted.append(op) or "answer")
    assert getattr(face, name)(**arguments) == "answer"
    (op,) = submitted
    assert type(op) is cls
    for field, given in arguments.items():
        got = getattr(op, field)
        assert got == given if isinstance(given, float | str | bool) else got is given


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
