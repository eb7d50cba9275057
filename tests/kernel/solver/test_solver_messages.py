"""The messages and the API: declarations, and their consistency."""

import inspect
from typing import Any

import pytest

from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.op import OPS, Op, info_of, outputs_of
from callboard.core.operand import Placeholder, Role
from callboard.core.opinfo import read_signature
from callboard.kernel.solver import Cholesky, Lu, Svd, SyevdxRange

MESSAGES = {tag.partition(".")[2]: cls for tag, cls in OPS.items() if tag.startswith("solver.")}


def array(*shape: int, dtype: str = "f32") -> Placeholder:
    return Placeholder(layout_of(DTYPES[dtype], shape))


@pytest.mark.parametrize("cls", MESSAGES.values(), ids=MESSAGES.keys())
def test_the_docstring_says_which_dtypes_it_takes(cls: type[Op[Any, Any]]) -> None:
    assert "f32" in (inspect.getdoc(cls) or "")


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
def test_a_signature_comes_back(op: Op[Any, Any]) -> None:
    info = info_of(type(op))
    signature = info.split(op).signature
    tag, statics, skeleton = read_signature(signature)
    again = info.join(OPS[tag], statics, skeleton)
    assert info.split(again).signature == signature
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
