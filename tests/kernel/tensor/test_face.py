"""The face has one method per message, with the message's fields as its parameters."""

import inspect
import re
from typing import Any

import msgspec
import pytest

import callboard.kernel.tensor as tensor
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.op import OPS, info_of
from callboard.core.operand import Placeholder, Role
from callboard.kernel.tensor.face import TensorFace

MESSAGES = {tag.partition(".")[2]: cls for tag, cls in OPS.items() if tag.startswith("tensor.")}
METHODS = {name: method for name, method in vars(TensorFace).items() if not name.startswith("_")}
ONE = Placeholder(layout_of(DTYPES["f32"], (2, 2)))
OTHER: dict[str, Any] = {
    **dict.fromkeys(("modes_a", "modes_b", "modes_out"), "ij"),
    "equation": "ij,ij->ij",
    "operands": (ONE, ONE),
    "optimize": "greedy",
    "compute": "tf32",
    "autotune": True,
    **dict.fromkeys(("op_reduce", "op_ac", "op_ab", "op_abc"), "mul"),
    **dict.fromkeys(("op_a", "op_b", "op_c"), "conj"),
}


def test_one_method_per_message_named_after_it() -> None:
    assert set(METHODS) == set(MESSAGES)
    assert {cls.__name__ for cls in MESSAGES.values()} | {"TensorActor"} == set(tensor.__all__)
    for name, cls in MESSAGES.items():
        assert re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower() == name


@pytest.mark.parametrize("name", MESSAGES)
def test_parameters_are_the_fields(name: str) -> None:
    """Same names, order and defaults; what is optional is keyword-only. The operands of einsum come one by one."""
    parameters = list(inspect.signature(METHODS[name]).parameters.values())[1:]
    fields = msgspec.structs.fields(MESSAGES[name])
    assert [p.name for p in parameters] == [f.name for f in fields]
    for parameter, field in zip(parameters, fields, strict=True):
        if field.name == "operands":
            assert parameter.kind is parameter.VAR_POSITIONAL
            continue
        required = field.default is msgspec.NODEFAULT
        assert parameter.kind is (parameter.POSITIONAL_OR_KEYWORD if required else parameter.KEYWORD_ONLY)
        assert parameter.default == (parameter.empty if required else field.default)


@pytest.mark.parametrize("name", MESSAGES)
def test_every_argument_arrives_in_its_field(name: str) -> None:
    cls = MESSAGES[name]
    roles = info_of(cls).roles
    arguments = {
        f.name: OTHER[f.name] if f.name in OTHER else 0.25 if roles.get(f.name) is Role.SCALAR else ONE
        for f in msgspec.structs.fields(cls)
    }
    submitted: list[Any] = []
    face: TensorFace[Any] = TensorFace(lambda op: submitted.append(op) or "answer")
    if name == "einsum":
        given = {key: value for key, value in arguments.items() if key not in ("equation", "operands")}
        assert face.einsum("ij,ij->ij", *arguments["operands"], **given) == "answer"
    else:
        assert getattr(face, name)(**arguments) == "answer"
    (op,) = submitted
    assert type(op) is cls
    assert {key: getattr(op, key) for key in arguments} == arguments


@pytest.mark.parametrize("cls", MESSAGES.values(), ids=MESSAGES.keys())
def test_the_docstrings_name_every_field(cls: Any) -> None:
    first, _, arguments = (inspect.getdoc(cls) or "").partition("Args:")
    assert first.splitlines()[0].endswith(".")
    named = {
        name.strip() for line in arguments.splitlines() if ":" in line for name in line.partition(":")[0].split(",")
    }
    assert set(cls.__struct_fields__) <= named
