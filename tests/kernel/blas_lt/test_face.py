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
from callboard.kernel.blas_lt.face import BlasLtFace

MESSAGES = {tag.partition(".")[2]: cls for tag, cls in OPS.items() if tag.startswith("blas_lt.")}
METHODS = {name: method for name, method in vars(BlasLtFace).items() if not name.startswith("_")}
SETTINGS = {"out_dtype": "f32", "tf32": True, "fast_accum": True, "autotune": 3, "workspace_size": 1 << 20}
EPILOGUES = {"matmul": "relu", "matmul_aux": "relu_aux", "matmul_bgrad": "bgrad_a"}


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
        assert parameter.kind is (parameter.POSITIONAL_OR_KEYWORD if field.required else parameter.KEYWORD_ONLY)
        assert parameter.default == (parameter.empty if field.required else field.default)
        assert type(parameter.default) is type(parameter.empty if field.required else field.default)


def other_value(cls: type[Op[Any, Any]], name: str, default: Any) -> Any:
    """Something valid in its kind that is not the default."""
    role = info_of(cls).roles.get(name)
    if role is Role.SCALAR:
        return 0.25
    if role is not None:
        return Placeholder(layout_of(DTYPES["f32"], (2, 2)))
    return not default if isinstance(default, bool) else SETTINGS[name]


@pytest.mark.parametrize("name", MESSAGES)
def test_every_argument_arrives_in_its_field(name: str) -> None:
    cls = MESSAGES[name]
    fields = [f for f in msgspec.structs.fields(cls) if f.name != "epilogue"]
    arguments = {f.name: other_value(cls, f.name, f.default) for f in fields}
    arguments["epilogue"] = EPILOGUES[name]
    submitted: list[Any] = []
    face = BlasLtFace(lambda op: submitted.append(op) or "answer")
    assert getattr(face, name)(**arguments) == "answer"
    (op,) = submitted
    assert type(op) is cls
    for field, value in arguments.items():
        assert getattr(op, field) == value


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_what_it_does(name: str) -> None:
    text = inspect.getdoc(METHODS[name])
    assert text
    assert text.splitlines()[0].endswith(".")
