"""The messages and the face: what they declare, and that they fit each other."""

import inspect
import re
from typing import Any

import msgspec
import pytest

import callboard.kernel.solver as solver
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.op import OPS, Op, info_of, outputs_of
from callboard.core.operand import Placeholder, Role
from callboard.core.opinfo import read_head
from callboard.kernel.solver import Cholesky, Lu, Svd, SyevdxRange
from callboard.kernel.solver.face import SolverFace
from callboard.kernel.sparse.formats import CsrRef

MESSAGES = {tag.partition(".")[2]: cls for tag, cls in OPS.items() if tag.startswith("solver.")}
METHODS = {name: method for name, method in vars(SolverFace).items() if not name.startswith("_")}
RESULTS = {"EigRangeResult", "EigResult", "HouseholderResult", "LuResult", "QrResult", "SvdResult"}


def array(*shape: int, dtype: str = "f32") -> Placeholder:
    return Placeholder(layout_of(DTYPES[dtype], shape))


def test_all_has_every_message() -> None:
    assert {cls.__name__ for cls in MESSAGES.values()} | RESULTS | {"SolverActor"} == set(solver.__all__)


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


def other_value(cls: type[Op[Any, Any]], name: str) -> Any:
    """Something valid in its kind that is not the default."""
    if name == "a" and cls.__name__.startswith("Sparse"):
        return CsrRef(values=array(2), indices=array(2, dtype="i32"), indptr=array(3, dtype="i32"), shape=(2, 2))
    if info_of(cls).roles.get(name) is not None:
        return array(2, 2)
    settings = {
        "columns": 2,
        "full_matrices": True,
        "high": 2.0,
        "itype": 2,
        "low": 0.5,
        "lower": False,
        "mode": "complete",
        "side": "right",
        "start": 1,
        "stop": 2,
        "transpose": True if cls is solver.Ormqr else "t",
        "method": "syevj" if cls is solver.Syevd else "gesvd",
    }
    return settings[name]


@pytest.mark.parametrize("name", MESSAGES)
def test_every_argument_arrives_in_its_field(name: str) -> None:
    cls = MESSAGES[name]
    arguments = {f.name: other_value(cls, f.name) for f in msgspec.structs.fields(cls)}
    submitted: list[Any] = []
    face = SolverFace(lambda op: submitted.append(op) or "answer")
    assert getattr(face, name)(**arguments) == "answer"
    (op,) = submitted
    assert type(op) is cls
    assert {field: getattr(op, field) for field in arguments} == arguments


@pytest.mark.parametrize("cls", MESSAGES.values(), ids=MESSAGES.keys())
def test_the_docstring_says_what_it_does_and_names_every_field(cls: type[Op[Any, Any]]) -> None:
    text = inspect.getdoc(cls)
    assert text
    first, _, arguments = text.partition("Args:")
    assert first.splitlines()[0].endswith(".")
    named = {
        name.strip() for line in arguments.splitlines() if ":" in line for name in line.partition(":")[0].split(",")
    }
    assert set(cls.__struct_fields__) <= named
    assert "f32" in text, "says which dtypes it takes"


@pytest.mark.parametrize("cls", MESSAGES.values(), ids=MESSAGES.keys())
def test_the_reply_is_what_the_class_says(cls: type[Op[Any, Any]]) -> None:
    info = info_of(cls)
    outputs = [f for f in info.dynamic if f.role is Role.OUT]
    assert tuple(f.name for f in outputs) == cls.returns
    assert all(f.optional for f in outputs)
    assert {f.role for f in info.dynamic} <= {Role.IN, Role.OUT}, "inputs are never destroyed"
    if len(cls.returns) > 1:
        assert cls.results is not None
        assert cls.results._fields == cls.returns
    for written, read in cls.overlaps:
        assert (info.roles[written], info.roles[read]) == (Role.OUT, Role.IN)


@pytest.mark.parametrize(
    "op",
    [
        Lu(a=array(3, 2), pivots=array(2, dtype="i64")),
        Svd(a=array(3, 2, dtype="c64"), full_matrices=True, method="gesvdj"),
        SyevdxRange(a=array(3, 3), low=-float("inf"), high=1, w=array(2)),
    ],
    ids=lambda op: type(op).__name__,
)
def test_a_head_comes_back(op: Op[Any, Any]) -> None:
    info = info_of(type(op))
    head = info.split(op).head
    tag, statics, skeleton = read_head(head)
    again = info.join(OPS[tag], statics, skeleton)
    assert info.split(again).head == head
    assert outputs_of(again) == outputs_of(op)


def test_shapes_and_dtypes_are_known_at_once() -> None:
    made = outputs_of(Svd(a=array(5, 3, dtype="c64")))
    assert {k: (v.shape, v.dtype.name) for k, v in made.items()} == {
        "u": ((5, 3), "c64"),
        "s": ((3,), "f32"),
        "vt": ((3, 3), "c64"),
    }
    made = outputs_of(SyevdxRange(a=array(4, 4, dtype="c128"), low=0, high=1, v=array(4, 2, dtype="c128")))
    assert {k: (v.shape, v.dtype.name) for k, v in made.items()} == {"w": ((2,), "f64"), "found": ((), "i64")}


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda x: Svd(a=x, method="qr"), "solver.svd: method = 'qr'"),
        (lambda x: Cholesky(a=x, lower="L"), "solver.cholesky: lower = 'L'"),
        (lambda x: Cholesky(a=None), "solver.cholesky: a is NoneType; pass a GpuRef"),
    ],
)
def test_wrong_types_are_named(make: Any, says: str) -> None:
    with pytest.raises(TypeError) as caught:
        make(array(3, 3))
    assert says in str(caught.value)
