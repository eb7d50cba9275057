"""Contractions by modes and by equations, against ``numpy.einsum`` in long double."""

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from blas_lab import SHARED, complex_factors, dtypes, execute, factors, poisoned, scale_of, seeds
from hypothesis import given
from hypothesis import strategies as st
from sessions import TORCH
from tensor_lab import (
    ALL,
    ENGINES,
    FLOATS,
    einsum,
    engine_session,
    long,
    permuted,
    place_tensor,
    placed,
    tensor_layouts,
    tensor_values,
    wrapped,
)

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.kernel.tensor import Contract, Einsum
from callboard.testing.tolerances import assert_close


@pytest.fixture(scope="module", params=[*ENGINES, TORCH[0]])
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    """As the one of all suites; on CUDA once for each engine."""
    yield from engine_session(request.param)


EVERY = [pytest.param(DTYPES[name], id=name) for name in ALL]
LETTERS = "abcdefg"


def reference(equation: str, *arrays: Any) -> tuple[Any, Any, int]:
    """The result, the magnitude of its terms, and how many there are for each element."""
    wide = [long(array) for array in arrays]
    terms, _, result = equation.partition("->")
    extents: dict[str, int] = {}
    for labels, array in zip(terms.split(","), arrays, strict=True):
        for label, n in zip(labels, array.shape, strict=True):
            extents[label] = max(n, extents.get(label, 0))
    count = math.prod(n for label, n in extents.items() if label not in result)
    return einsum(equation, *wide), einsum(equation, *map(np.abs, wide)), count


def check(got: Any, dtype: DType, want: Any, scale: Any, terms: int, computed: Any = None, steps: bool = False) -> None:
    """``steps``: what is passed on from step to step may be rounded to the dtype."""
    want = wrapped(want, dtype)
    if not dtype.is_integer:
        want, scale = np.asarray(want), np.asarray(scale, np.float64)
    kind: Any = None if dtype.is_integer else "sum"
    assert_close(got, want, computed or dtype, terms + 2, kind=kind, scale=scale, between=scale if steps else 0)


@st.composite
def contractions(draw: Any) -> tuple[str, str, str, dict[str, int]]:
    """Modes of a, b and the result, repeated ones among them, and the extents of all."""
    alphabet = LETTERS[: draw(st.integers(1, 6))]
    a, b = ("".join(draw(st.lists(st.sampled_from(alphabet), max_size=4))) for _ in range(2))
    known = sorted({*a, *b})
    out = "".join(draw(st.permutations(draw(st.lists(st.sampled_from(known), unique=True) if known else st.just([])))))
    extents = {label: draw(st.sampled_from([0, 1, 2, 3, 5] if draw(st.booleans()) else [2, 3])) for label in known}
    return a, b, out, extents


@SHARED
@given(data=st.data(), modes=contractions(), dtype=dtypes(*ALL), seed=seeds)
def test_contractions_of_any_modes_and_layout(
    session: Any, data: st.DataObject, modes: tuple[str, str, str, dict[str, int]], dtype: DType, seed: int
) -> None:
    modes_a, modes_b, modes_out, extents = modes
    a, b = (tensor_values(dtype, tuple(extents[x] for x in m), seed + i) for i, m in enumerate((modes_a, modes_b)))
    shape = tuple(extents[x] for x in modes_out)
    at_a, at_b = (place_tensor(session, x, data.draw(tensor_layouts(x.shape))) for x in (a, b))
    alpha, beta = (
        data.draw(factors(0.0, 1.0, -3.0) if dtype.is_integer else complex_factors() if dtype.is_complex else factors())
        for _ in range(2)
    )
    c = tensor_values(dtype, shape, seed + 2) if beta.on_device or beta.value != 0 else None
    at_c = None if c is None else place_tensor(session, c, data.draw(tensor_layouts(shape)))
    out = None
    if data.draw(st.booleans()):
        out = place_tensor(session, poisoned(dtype, shape), data.draw(tensor_layouts(shape)))
    conj = (
        [data.draw(st.sampled_from(["identity", "conj"])) for _ in range(3)] if dtype.is_complex else ["identity"] * 3
    )
    op = Contract(
        a=at_a,
        b=at_b,
        modes_a=modes_a,
        modes_b=modes_b,
        modes_out=modes_out,
        out=out,
        c=at_c,
        alpha=alpha.of(session, scale_of(dtype)),
        beta=beta.of(session, scale_of(dtype)),
        op_a=conj[0],
        op_b=conj[1],
        op_c=conj[2],
    )
    result = execute(session, op)
    x, y, z = (v.conj() if v is not None and how == "conj" else v for v, how in zip((a, b, c), conj, strict=True))
    want, scale, terms = reference(f"{modes_a},{modes_b}->{modes_out}", x, y)
    want, scale = alpha.value * want, abs(alpha.value) * scale
    if z is not None:
        want, scale = want + beta.value * long(z), scale + abs(beta.value) * abs(long(z))
    alone = (set(modes_a) ^ set(modes_b)) - set(modes_out)
    check(session.get(result), dtype, want, scale, terms, steps=bool(alone))
    assert result.layout.contiguous if out is None else result.layout == out.layout
    for name, ref, before in (("a", at_a, a), ("b", at_b, b), ("c", at_c, c)):
        if ref is not None:
            np.testing.assert_array_equal(session.get(ref), before, err_msg=f"{name} was written")


EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(5, 7), (7, 3)]),
    ("ij,jk", [(5, 7), (7, 3)]),
    ("ba,b", [(5, 7), (5,)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("bqhd,bkhd->bhqk", [(2, 4, 3, 5), (2, 6, 3, 5)]),
    ("bhqk,bkhd->bqhd", [(2, 3, 4, 6), (2, 6, 3, 5)]),
    ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)]),
    ("ij,jk,kl,lm,mi->", [(3, 4), (4, 5), (5, 2), (2, 6), (6, 3)]),
    ("ij,kl->jkil", [(2, 3), (4, 5)]),
    ("i,i,i->i", [(6,), (6,), (6,)]),
    ("i,i,i", [(6,), (6,), (6,)]),
    ("ii", [(5, 5)]),
    ("ii->i", [(5, 5)]),
    ("iij->ji", [(4, 4, 3)]),
    ("iji,jk->ik", [(3, 4, 3), (4, 5)]),
    ("ijk->kji", [(2, 3, 4)]),
    ("ijk->", [(2, 3, 4)]),
    ("ijk->k", [(30, 20, 4)]),
    ("ijk->i", [(4, 30, 40)]),
    ("ij,j,i->", [(4, 5), (5,), (4,)]),
    ("ab,cd,ef->ace", [(2, 3), (4, 5), (3, 2)]),
    ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
    ("...ij,...jk", [(2, 1, 3, 4), (6, 4, 5)]),
    ("i...,i...->...", [(3, 2), (3, 5, 2)]),
    ("...,...", [(2, 3), (3,)]),
    ("ij,jk", [(5, 1), (4, 3)]),
    ("ij,ij->ij", [(5, 1), (1, 3)]),
    (",->", [(), ()]),
    (",ij->ji", [(), (2, 3)]),
    (" i j , j k -> i k ", [(2, 3), (3, 4)]),
    ("ij,jk->ik", [(2, 0), (0, 3)]),
    ("ij,jk->ik", [(0, 2), (2, 3)]),
    ("ij,jk,kl->il", [(2, 0), (0, 3), (3, 2)]),
    ("ij->", [(0, 3)]),
    ("abcd,ebfd,cf->ae", [(2, 3, 2, 4), (3, 3, 2, 4), (2, 2)]),
]


@pytest.mark.parametrize("equation, shapes", EQUATIONS)
def test_equations(session: Any, equation: str, shapes: list[tuple[int, ...]]) -> None:
    for name in ("f32", "c128", "f16", "i64"):
        dtype = DTYPES[name]
        arrays = [tensor_values(dtype, shape, i) for i, shape in enumerate(shapes)]
        got = execute(session, Einsum(equation=equation, operands=tuple(map(session.put, arrays))))
        want = einsum(equation, *map(long, arrays))
        scale = einsum(equation, *(abs(long(x)) for x in arrays))
        assert got.shape == want.shape
        terms = max(1, math.prod(math.prod(shape) for shape in shapes) // max(want.size, 1))
        check_network(session.get(got), dtype, equation, want, scale, min(terms, 10_000))


def check_network(got: Any, dtype: DType, equation: str, want: Any, scale: Any, terms: int) -> None:
    """Halves may be rounded between steps: of more than two operands, or where one is summed alone first."""
    inputs, _, result = equation.partition("->")
    operands = inputs.split(",")
    alone = [x for x in set(inputs) if x.isalpha() and sum(x in y for y in operands) == 1 and x not in result]
    steps = len(operands) > 2 or (len(operands) == 2 and bool(alone) and "->" in equation)
    check(got, dtype, want, scale, terms, steps=steps)


@pytest.mark.parametrize("summed", [1, 2, 7, 24])
@pytest.mark.parametrize("equation", ["il,ljk->ijk", "li,jkl->ijk"])
@pytest.mark.parametrize("dtype", [pytest.param(DTYPES[name], id=name) for name in ALL])
def test_operands_aligned_to_no_more_than_an_element(session: Any, dtype: DType, equation: str, summed: int) -> None:
    extents = {"i": 3, "j": 7, "k": 24, "l": summed}
    labels = equation.partition("->")[0].split(",")
    a, b = (tensor_values(dtype, tuple(extents[x] for x in m), seed) for seed, m in enumerate(labels))
    op = Einsum(equation=equation, operands=(placed(session, a, 1), placed(session, b, 1)))
    want, scale, terms = reference(equation, a, b)
    check(session.get(execute(session, op)), dtype, want, scale, terms)


@SHARED
@given(data=st.data(), dtype=dtypes(*ALL), seed=seeds, count=st.integers(1, 5))
def test_networks(session: Any, data: st.DataObject, dtype: DType, seed: int, count: int) -> None:
    extents = {label: data.draw(st.sampled_from([0, 1, 2, 3, 4, 4])) for label in LETTERS}
    terms = ["".join(data.draw(st.lists(st.sampled_from(LETTERS), max_size=3))) for _ in range(count)]
    known = sorted(set("".join(terms)))
    out = "".join(data.draw(st.lists(st.sampled_from(known), unique=True, max_size=4) if known else st.just([])))
    equation = f"{','.join(terms)}->{out}"
    arrays = [tensor_values(dtype, tuple(extents[x] for x in term), seed + i) for i, term in enumerate(terms)]
    refs = [place_tensor(session, x, data.draw(tensor_layouts(x.shape))) for x in arrays]
    optimize = data.draw(st.sampled_from(["auto", "greedy", "optimal", "dp", "branch-2"]))
    got = execute(session, Einsum(equation=equation, operands=tuple(refs), optimize=optimize))
    want, scale, number = reference(equation, *arrays)
    check_network(session.get(got), dtype, equation, want, scale, number + count)


@pytest.mark.parametrize("dtype", [pytest.param(DTYPES[name], id=name) for name in FLOATS])
def test_long_sums_are_kept_in_f32_or_better(session: Any, dtype: DType) -> None:
    a, b = tensor_values(dtype, (3, 5, 600), 1), tensor_values(dtype, (600, 3, 7), 2)
    op = Contract(a=session.put(a), b=session.put(b), modes_a="hqd", modes_b="dhk", modes_out="qhk")
    got = session.get(execute(session, op))
    want, scale, terms = reference("hqd,dhk->qhk", a, b)
    check(got, dtype, want, scale, terms)
    np.testing.assert_array_equal(got, session.get(execute(session, op)))  # in a fixed order


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["f16", "f32", "c64"])
def test_a_large_batch_that_lies_between_the_rows(session: Any, name: str) -> None:
    """Large enough that launches for each index are worth their time, where a backend has that way."""
    dtype = DTYPES[name]
    a, b = tensor_values(dtype, (2, 2048, 32, 33), 1), tensor_values(dtype, (2, 16, 32, 33), 2)
    op = Einsum(equation="bqhd,bkhd->bqhk", operands=(session.put(a), session.put(b)))
    x, y = (v.astype(np.complex128).transpose(0, 2, 1, 3) for v in (a, b))
    want = (x @ y.swapaxes(2, 3)).transpose(0, 2, 1, 3)
    scale = (abs(x) @ abs(y).swapaxes(2, 3)).transpose(0, 2, 1, 3)
    check(session.get(execute(session, op)), dtype, want if dtype.is_complex else want.real, scale, 33)


@pytest.mark.parametrize("compute", ["f16", "bf16", "tf32", "f32"])
@pytest.mark.parametrize("dtype", [pytest.param(DTYPES[name], id=name) for name in ("f32", "c64")])
def test_compute_says_how_coarse_factors_may_be(session: Any, dtype: DType, compute: str) -> None:
    a, b = tensor_values(dtype, (48, 64), 1), tensor_values(dtype, (64, 32), 2)
    op = Contract(a=session.put(a), b=session.put(b), modes_a="ik", modes_b="kj", modes_out="ij", compute=compute)
    want, scale, terms = reference("ik,kj->ij", a, b)
    computed = {"f16": "tf32", "tf32": "tf32", "bf16": "brain", "f32": None}[compute]
    check(session.get(execute(session, op)), dtype, want, scale, terms, computed)


@pytest.mark.parametrize("dtype", EVERY)
def test_out_may_be_c(session: Any, dtype: DType) -> None:
    a, b, c = (tensor_values(dtype, shape, i) for i, shape in enumerate(((4, 6), (6, 5), (5, 4))))
    for beta in (2.0, session.put(np.array(2, scale_of(dtype).np))):
        for view in (False, True):
            at_c = session.put(c)
            if view:
                at_c = permuted(session.put(c.T.copy()), [1, 0])
            op = Contract(
                a=session.put(a),
                b=session.put(b),
                modes_a="ik",
                modes_b="kj",
                modes_out="ji",
                c=at_c,
                out=at_c,
                beta=beta,
            )
            execute(session, op)
            want, scale, terms = reference("ik,kj->ji", a, b)
            check(session.get(at_c), dtype, want + 2 * long(c), scale + 2 * abs(long(c)), terms)


@pytest.mark.parametrize("modes", ["ij", "ijk"])
@pytest.mark.parametrize("dtype", [pytest.param(DTYPES[name], id=name) for name in FLOATS])
def test_beta_0_does_not_read_c(session: Any, dtype: DType, modes: str) -> None:
    a, b = tensor_values(dtype, (4, 6), 1), tensor_values(dtype, (6, 5), 2)
    nan = session.put(poisoned(dtype, (4, 6, 5)[: len(modes)] if modes == "ijk" else (4, 5)))
    sides = {"a": session.put(a), "b": session.put(b), "modes_a": "ij", "modes_b": "jk"}
    sides["modes_out"] = modes if modes == "ijk" else "ik"
    want, scale, terms = reference(f"ij,jk->{sides['modes_out']}", a, b)
    for beta in (0.0, session.put(np.array(0, scale_of(dtype).np))):
        check(session.get(execute(session, Contract(**sides, c=nan, beta=beta))), dtype, want, scale, terms)


def test_modes_may_be_integers(session: Any) -> None:
    a, b = tensor_values(DTYPES["f64"], (3, 4), 1), tensor_values(DTYPES["f64"], (4, 5), 2)
    op = Contract(a=session.put(a), b=session.put(b), modes_a=(7, -1), modes_b=[-1, 300], modes_out=(300, 7))
    check(session.get(execute(session, op)), DTYPES["f64"], (a @ b).T, (abs(a) @ abs(b)).T, 4)


@pytest.mark.parametrize("equation", ["ij,jk->ik", "bij,bjk->ikb", "ij,jk,kl->il"])
def test_equal_calls_give_equal_bits(session: Any, equation: str) -> None:
    rng = np.random.default_rng(5)
    sizes = dict(zip("ijklb", (64, 200, 48, 56, 3), strict=True))
    terms = equation.partition("->")[0].split(",")
    refs = tuple(session.put(rng.standard_normal([sizes[x] for x in term]).astype("f4")) for term in terms)
    first, *others = (session.get(execute(session, Einsum(equation=equation, operands=refs))) for _ in range(3))
    for other in others:
        np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("make", [Contract, Einsum])
def test_autotune_changes_no_numbers(session: Any, make: Any) -> None:
    a, b = tensor_values(DTYPES["f32"], (6, 5, 4, 3), 1), tensor_values(DTYPES["f32"], (6, 7, 4, 3), 2)
    if make is Contract:
        op = Contract(
            a=session.put(a), b=session.put(b), modes_a="bqhd", modes_b="bkhd", modes_out="bhqk", autotune=True
        )
    else:
        op = Einsum(equation="bqhd,bkhd->bhqk", operands=(session.put(a), session.put(b)), autotune=True)
    want, scale, terms = reference("bqhd,bkhd->bhqk", a, b)
    check(session.get(execute(session, op)), DTYPES["f32"], want, scale, terms)


# -- refused -----------------------------------------------------------------------------------------------------------

BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"modes_a": "ijk"}, ShapeError, "modes_a is 'ijk' and a is f32[3, 4]: 3 modes and 2 axes"),
    ({"modes_b": "ik"}, ShapeError, "mode 'i' has extent 4 in b (f32[4, 5]) and 3 in a (f32[3, 4])"),
    ({"modes_out": "iz"}, ShapeError, "modes_out 'iz' names 'z'; the operands have 'i', 'j', 'k'"),
    ({"modes_out": "ii"}, ShapeError, "modes_out 'ii' names 'i' twice"),
    ({"beta": 2.0}, ShapeError, "beta is 2.0 and c is None"),
    ({"alpha": 1j}, ShapeError, "alpha is complex and the arrays are f32"),
    ({"compute": "f64"}, ShapeError, "compute is 'f64' and the arrays are f32"),
    ({"compute": "f9"}, TypeError, "compute = 'f9'"),
    ({"op_a": "sqrt"}, TypeError, "op_a = 'sqrt'"),
    ({"modes_a": None}, TypeError, "modes_a = None"),
]


@pytest.mark.parametrize("change, error, text", BAD)
def test_contract_refuses_by_name(session: Any, change: dict[str, Any], error: type[Exception], text: str) -> None:
    a, b = session.put(np.ones((3, 4), "f4")), session.put(np.ones((4, 5), "f4"))
    with pytest.raises(error, match=re.escape(text)):
        session.submit(Contract(**{"a": a, "b": b, "modes_a": "ij", "modes_b": "jk", "modes_out": "ik", **change}))


def test_dtypes_are_refused_by_name(session: Any) -> None:
    one, other = session.put(np.ones((2, 2), "f4")), session.put(np.ones((2, 2), "f8"))
    small = session.put(np.ones((2, 2), "i1"))
    whole = session.put(np.ones((2, 2), "i4"))
    modes = {"modes_a": "ij", "modes_b": "jk", "modes_out": "ik"}
    with pytest.raises(ShapeError, match=re.escape("b is f64[2, 2] and a is f32[2, 2]: both must have one dtype")):
        session.submit(Contract(a=one, b=other, **modes))
    with pytest.raises(ShapeError, match=re.escape("a is i8[2, 2]; its dtype must be one of")):
        session.submit(Contract(a=small, b=small, **modes))
    with pytest.raises(ShapeError, match=r"alpha is 0\.5; with i32 arrays it must be an integer"):
        session.submit(Contract(a=whole, b=whole, alpha=0.5, **modes))
    with pytest.raises(ShapeError, match="compute is 'f32' and the arrays are i32; leave it out"):
        session.submit(Contract(a=whole, b=whole, compute="f32", **modes))


WRONG: list[tuple[str, list[tuple[int, ...]], str]] = [
    ("ij,jk->ik", [(2, 3)], "has 2 operands; 1 were passed"),
    (
        "ij,jk->ik",
        [(2, 3), (4, 5)],
        "mode 'j' has extent 4 in operands[1] (f32[4, 5]) and 3 in operands[0] (f32[2, 3])",
    ),
    ("ij->ik", [(2, 3)], "names 'k', which no operand has"),
    ("ij->ii", [(2, 3)], "names 'i' twice"),
    ("i->i", [(2, 3)], "'i' names 1 axes and operands[0] is f32[2, 3]"),
    ("i1->i", [(2, 3)], "'i1' holds more than letters and one '...'"),
    ("i->i->i", [(2,)], "'i->i' holds more than letters"),
    ("ii", [(1, 3)], "mode 'i' has extents 1 and 3 in operands[0]"),
    ("...i,...i->i", [(2, 3), (2, 3)], "'...' stands for 1 axes, which the result must have"),
    ("...i,...i", [(2, 3), (4, 3)], "an axis of '...' has extent 4 in operands[1]"),
]


@pytest.mark.parametrize("equation, shapes, text", WRONG)
def test_einsum_refuses_by_name(session: Any, equation: str, shapes: list[tuple[int, ...]], text: str) -> None:
    refs = tuple(session.put(np.ones(shape, "f4")) for shape in shapes)
    with pytest.raises(ShapeError, match=re.escape(text)):
        session.submit(Einsum(equation=equation, operands=refs))
