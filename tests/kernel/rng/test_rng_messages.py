"""The messages and the API: declarations, errors before anything is sent, and encoding."""

import inspect
import math
from collections import deque
from typing import Any

import msgspec
import pytest

import callboard.kernel.rng as rng
from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError, UnsupportedOp
from callboard.core.layout import layout_of
from callboard.core.op import OPS, Op, info_of, outputs_of
from callboard.core.operand import Placeholder, Role
from callboard.core.opinfo import read_signature
from callboard.core.ref import Allocation, GpuRef
from callboard.kernel.rng import (
    RngFillBeta,
    RngFillBits,
    RngFillDiscrete,
    RngFillGamma,
    RngFillIntegers,
    RngFillNormal,
    RngFillPermutation,
    RngFillPoisson,
    RngFillUniform,
    max_dimensions,
)
from callboard.kernel.rng.api import RngApi

MESSAGES = {tag: cls for tag, cls in OPS.items() if tag.startswith("rng.")}


def ref(*shape: int, dtype: str = "f32") -> GpuRef:
    """A ref without a device."""
    port: Any = None
    return GpuRef(port, Allocation(1, deque()), layout_of(DTYPES[dtype], shape), 0)


def example(cls: type[Op[Any, Any]]) -> Op[Any, Any]:
    """One with every field that it must have."""
    fields: dict[str, Any] = {"out": ref(4, dtype="f32" if DTYPES["f32"] in cls.dtypes else "i32")}  # type: ignore[attr-defined]
    given = {"weights": ref(3), "shape": 2.0, "alpha": 2.0, "beta": 3.0}
    return cls(
        **fields, **{f.name: given[f.name] for f in msgspec.structs.fields(cls) if f.required and f.name != "out"}
    )


def test_all_has_every_message() -> None:
    assert {cls.__name__ for cls in MESSAGES.values()} == {name for name in rng.__all__ if name.startswith("RngFill")}


@pytest.mark.parametrize("cls", MESSAGES.values(), ids=MESSAGES.keys())
def test_the_docstring_names_every_field(cls: type[Op[Any, Any]]) -> None:
    first, _, arguments = (inspect.getdoc(cls) or "").partition("Args:")
    assert first.splitlines()[0].endswith(".")
    named = {n.strip() for line in arguments.splitlines() if ":" in line for n in line.partition(":")[0].split(",")}
    assert set(cls.__struct_fields__) <= named


@pytest.mark.parametrize("cls", MESSAGES.values(), ids=MESSAGES.keys())
def test_the_face_has_its_method(cls: type[Op[Any, Any]]) -> None:
    parameters = inspect.signature(getattr(RngApi, info_of(cls).tag.partition(".")[2])).parameters
    fields = {f.name: f for f in msgspec.structs.fields(cls)}
    assert set(parameters) - {"self"} == set(fields)
    for name, field in fields.items():
        assert parameters[name].default == (inspect.Parameter.empty if field.required else field.default)
    submitted: list[Any] = []
    face: RngApi[Any] = RngApi(lambda op: submitted.append(op) or op.out, list)
    op = example(cls)
    arguments = {name: getattr(op, name) for name, field in fields.items() if field.required}
    assert getattr(face, info_of(cls).tag.partition(".")[2])(**arguments, seed=2**64 - 1, position=6) is op.out
    assert submitted[0].seed == 2**64 - 1
    assert [getattr(submitted[0], name) for name in arguments] == list(arguments.values())


@pytest.mark.parametrize("cls", MESSAGES.values(), ids=MESSAGES.keys())
def test_one_plan_serves_every_seed_and_position(cls: type[Op[Any, Any]]) -> None:
    op = example(cls)
    parts = info_of(cls).split(op)
    other = msgspec.structs.replace(op, seed=2**63 + 1, position=2**40)
    assert info_of(cls).split(other).signature == parts.signature
    tag, statics, skeleton = read_signature(parts.signature)
    again = info_of(cls).join(OPS[tag], statics, skeleton)
    assert info_of(cls).split(again).signature == parts.signature
    assert outputs_of(again) == outputs_of(op) == {}
    assert {f.name for f in info_of(cls).dynamic if f.role is Role.OUT} == {"out"}


@pytest.mark.parametrize("number", [0, 1, 2**32 - 1, 2**32, 2**53 + 1, 2**63, 2**64 - 1])
def test_whole_numbers_travel_exactly(number: int) -> None:
    op = RngFillBits(out=ref(4, dtype="u32"), seed=number)
    assert info_of(RngFillBits).split(op).numbers == [number, 0]


def dense(dtype: str = "f32") -> GpuRef:
    return ref(4, dtype=dtype)


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: RngFillUniform(out=dense(), kind="pcg"), "kind 'pcg' is not a generator; use one of philox"),
        (lambda: RngFillUniform(out=dense(), low=2, high=1), "low is 2.0 and high 1.0; low must not be larger"),
        (lambda: RngFillUniform(out=dense(), high=math.inf), "high is inf; it must be a finite"),
        (lambda: RngFillUniform(out=dense("f64"), low=-1e308, high=1e308), "and high - low finite"),
        (lambda: RngFillUniform(out=dense("f64"), position=3), "position 3 is odd and an element of f64 takes 2"),
        (lambda: RngFillUniform(out=dense(), position=2**63 - 2), "and 4 more reach beyond"),
        (lambda: RngFillBits(out=dense("u32"), kind="sobol32", position=2**32 - 3), "or the kind of 64 bits"),
        (lambda: RngFillUniform(out=dense(), kind="sobol32", seed=1), "sobol32 has none; use scrambled_sobol32"),
        (lambda: RngFillNormal(out=dense(), std=-1.0), "std is -1.0; it must not be negative"),
        (lambda: RngFillNormal(out=dense(), mean=1j), "mean is 1j; it must be a finite real number"),
        (lambda: RngFillGamma(out=dense(), shape=0.0), "shape is 0.0; it must be positive"),
        (lambda: RngFillBeta(out=dense(), alpha=1.0, beta=-2.0), "beta is -2.0; it must be positive"),
        (lambda: RngFillPoisson(out=dense("i32"), rate=2e9 + 2**28), "for i32 it must lie between 0 and"),
        (lambda: RngFillPoisson(out=dense("i64"), rate=2.0**53), "between 0 and 4503599627370496"),
        (lambda: RngFillIntegers(out=dense("i32"), low=0, high=2**31 + 1), "low < high <= 2147483648"),
        (lambda: RngFillIntegers(out=dense("u32"), low=-1, high=4), "low is -1 and high 4"),
        (lambda: RngFillIntegers(out=dense("u64"), low=5, high=5), "low is 5 and high 5"),
    ],
)
def test_refused_before_the_message_exists(make: Any, says: str) -> None:
    with pytest.raises(ShapeError) as caught:
        make()
    assert str(caught.value).startswith("rng.fill_")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: RngFillBits(out=dense()), "out is f32[4]; its dtype must be one of i32, i64, u32, u64"),
        (lambda: RngFillNormal(out=dense("i32")), "its dtype must be one of f16, bf16, f32, f64"),
        (lambda: RngFillUniform(out=ref(2, 20_001), kind="sobol64"), "sobol64 has at most 20000 dimensions"),
        (lambda: RngFillPermutation(out=ref(2, 2, dtype="i32")), "it must have 1 axis"),
        (lambda: RngFillDiscrete(out=dense("i32"), weights=ref(2, 2)), "pass one axis of f32 or f64"),
        (lambda: RngFillDiscrete(out=dense("i32"), weights=ref(0)), "with at least one element"),
        (lambda: RngFillDiscrete(out=dense("i32"), weights=ref(8)[::2]), "it must be contiguous"),
    ],
)
def test_refused_at_the_call(make: Any, says: str) -> None:
    with pytest.raises(ShapeError) as caught:
        outputs_of(make())
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "make, says",
    [
        (
            lambda: RngFillUniform(out=dense(), seed=1.5),
            "rng.fill_uniform: seed is 1.5, of type float; pass an integer",
        ),
        (lambda: RngFillUniform(out=dense(), seed="1"), "seed is '1', of type str; pass an integer"),
        (lambda: RngFillUniform(out=dense(), seed=ref()), "is GpuRef; pass an integer"),
        (lambda: RngFillUniform(out=dense(), seed=0.5j), "seed is complex; pass an integer"),
        (lambda: RngFillUniform(out=dense(), low=ref()), "rng.fill_uniform: low is an array; pass a number"),
        (lambda: RngFillIntegers(out=dense("i32"), low=0, high=2.0), "high is 2.0, of type float"),
    ],
)
def test_wrong_types_are_named(make: Any, says: str) -> None:
    with pytest.raises(TypeError) as caught:
        make()
    assert says in str(caught.value)


def test_seeds_of_more_than_64_bits_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"seed is 18446744073709551616; it must lie between -2\*\*63 and 2\*\*64 - 1"):
        RngFillUniform(out=dense(), seed=2**64)


@pytest.mark.parametrize("name", ["seed", "position"])
def test_a_negative_place_in_a_stream_is_refused(name: str) -> None:
    with pytest.raises(ShapeError, match=rf"rng.fill_bits: {name} is -1; it must lie between 0 and 2\*\*64 - 1"):
        RngFillBits(out=dense("u32"), **{name: -1})


@pytest.mark.parametrize("kind", ["xorwow", "mtgp32", "sobol32"])
def test_numbers_by_rejection_need_philox(kind: str) -> None:
    with pytest.raises(UnsupportedOp, match=rf"rng\.fill_gamma: {kind} has no subsequence .* use philox or philox64"):
        RngFillGamma(out=dense(), shape=1.0, kind=kind)


@pytest.mark.parametrize(
    "kind, ordering, says",
    [
        ("sobol32", "best", "the points of sobol32 have one order"),
        ("philox", "dynamic", "its numbers depend on the GPU"),
        ("mrg32k3a", "seeded", "mrg32k3a has no lanes with seeds of their own; use xorwow"),
        ("philox64", "legacy", "philox64 is NumPy's"),
    ],
)
def test_orders_without_meaning_are_refused(kind: str, ordering: Any, says: str) -> None:
    with pytest.raises(UnsupportedOp, match=rf"rng\.fill_uniform: ordering is '{ordering}': {says}"):
        RngFillUniform(out=ref(4), kind=kind, ordering=ordering)
    with pytest.raises(UnsupportedOp, match=says):
        RngApi[Any](lambda op: op, list).generator(kind, ordering=ordering)


def test_orders_with_two_names_have_one_plan() -> None:
    signatures = {
        info_of(RngFillUniform).split(RngFillUniform(out=ref(4), kind="xorwow", ordering=name)).signature
        for name in ("default", "best", "legacy")
    }
    assert len(signatures) == 1
    own: Any = RngFillUniform(out=ref(4), kind="xorwow", ordering="seeded")
    assert own.ordering == "seeded"
    assert info_of(RngFillUniform).split(own).signature not in signatures
    wrong: Any = "other"
    with pytest.raises(TypeError, match=r"ordering = 'other'"):
        RngFillUniform(out=ref(4), ordering=wrong)


def test_points_have_words_of_their_own_size() -> None:
    with pytest.raises(UnsupportedOp, match=r"sobol64 has words of 64 bits"):
        outputs_of(RngFillBits(out=dense("u32"), kind="sobol64"))


def test_max_dimensions() -> None:
    assert max_dimensions("scrambled_sobol64") == 20_000
    assert max_dimensions("philox") == 1


def test_placeholders_are_not_asked_for_numbers() -> None:
    """In a context host a message is made before its numbers are known."""
    out = Placeholder(layout_of(DTYPES["f32"], (4,)))
    assert RngFillGamma(out=out, shape=0.0).shape == 0.0
