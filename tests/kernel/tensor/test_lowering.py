"""Networks and their lowering: steps, copies, and independence of the numbers."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.kernel.tensor.lowering import Lowering, lowerings
from callboard.kernel.tensor.modes import Label, Tensor
from callboard.kernel.tensor.network import Step, network

SIZES: dict[Label, int] = {"b": 2, "h": 3, "q": 5, "k": 7, "d": 4, "x": 1}


def tensor(labels: str, order: str | None = None, gap: int = 0) -> Tensor:
    """A tensor of these modes, that lies in memory in the order of ``order``."""
    steps, step = {}, 1
    for label in reversed(order or labels):
        steps[label] = step
        step *= SIZES[label] + gap
    return Tensor(
        tuple(labels), layout_of(DTYPES["f32"], tuple(SIZES[x] for x in labels), tuple(steps[x] for x in labels))
    )


def copies(way: Lowering) -> str:
    return "".join(name[0] for name in ("a", "b", "out") if getattr(way, name) is None)


@pytest.mark.parametrize(
    "a, b, out, copied",
    [
        (tensor("qd"), tensor("dk"), tensor("qk"), ""),
        (tensor("dq"), tensor("kd"), tensor("kq"), ""),
        (tensor("bhqd"), tensor("bhkd"), tensor("bhqk"), ""),
        (tensor("qd", gap=1), tensor("dk", gap=2), tensor("qk", gap=3), ""),
        (tensor("bqd"), tensor("dk"), tensor("bqk"), ""),  # two modes of one operand are one axis
        (tensor("bqd", "bdq"), tensor("dk"), tensor("bqk"), "a"),
        (tensor("hdq"), tensor("dk"), tensor("hqk"), "a"),
        (tensor("qhd"), tensor("khd"), tensor("qk"), ""),  # summed over two modes
        (tensor("qhd"), tensor("kdh"), tensor("qk"), "a"),  # which lie the other way round: the smaller is copied
        (tensor("bqd"), tensor("dk"), tensor("qbk"), "a"),
        (tensor("qxd"), tensor("dk"), tensor("qkx"), ""),  # an extent of 1 is nowhere in the way
    ],
)
def test_what_is_copied(a: Tensor, b: Tensor, out: Tensor, copied: str) -> None:
    best, *others = lowerings(a, b, out, SIZES)
    assert copies(best) == copied
    assert all(len(copies(best)) <= len(copies(other)) or "o" in copies(other) for other in others)


def test_launches_in_place_of_copies() -> None:
    """Heads that lie between the rows: for each batch, all heads at once, and nothing is copied."""
    operands = tensor("bqhd"), tensor("bkhd"), tensor("bqhk")
    assert copies(lowerings(*operands, SIZES)[0]) == "abo"
    way = lowerings(*operands, SIZES, launch=1)[0]
    assert (way.outer, way.batch, copies(way)) == (("b",), ("h",), "")
    assert copies(lowerings(*operands, SIZES, launch=10_000)[0]) == "abo"
    a, b, out = tensor("bqd"), tensor("dk"), tensor("qbk")
    assert lowerings(a, b, out, SIZES, launch=1)[0].outer == ("b",)


def test_the_matrices_of_a_batch() -> None:
    (way, *_) = lowerings(tensor("bhqd"), tensor("bhkd"), tensor("bhqk"), SIZES)
    assert (way.batch, way.rows, way.summed, way.columns) == (("b", "h"), ("q",), ("d",), ("k",))
    assert way.extents == (6, 5, 4, 7)
    assert way.a is not None
    assert way.b is not None
    assert (way.a.step, way.a.matrix.transposed) == (20, False)
    assert (way.b.step, way.b.matrix.transposed) == (28, True)


def check_steps(steps: list[Step], inputs: list[Tensor], output: Tensor) -> None:
    """Each number is used once, and what a step sums no later one has."""
    tensors = [*inputs, *(step.result for step in steps)]
    used = [i for step in steps for i in step.operands]
    assert sorted(used) == list(range(len(tensors) - 1))
    assert tensors[-1] is output
    for step in steps:
        theirs = [set(tensors[i].labels) for i in step.operands]
        assert set(step.result.labels) <= set().union(*theirs)
        if len(theirs) == 2:
            assert theirs[0] ^ theirs[1] <= set(step.result.labels)


@given(data=st.data(), count=st.integers(1, 6), optimize=st.sampled_from(["auto", "greedy", "optimal", "dp"]))
def test_networks_compute_their_equation(data: st.DataObject, count: int, optimize: str) -> None:
    terms = ["".join(data.draw(st.lists(st.sampled_from("bhqkd"), max_size=3, unique=True))) for _ in range(count)]
    known = sorted(set("".join(terms)))
    result = "".join(data.draw(st.lists(st.sampled_from(known), unique=True)) if known else [])
    inputs, output = [tensor(term) for term in terms], tensor(result)
    extents: dict[Label, int] = {x: SIZES[x] for x in known}
    steps = network(inputs, output, extents, optimize)
    check_steps(steps, inputs, output)
    rng = np.random.default_rng(count)
    arrays: list[Any] = [rng.integers(-3, 4, x.layout.shape) for x in inputs]
    want = np.einsum(f"{','.join(terms)}->{result}", *arrays)
    for step in steps:
        names = ",".join(
            "".join(map(str, x.labels)) for x in ([*inputs, *(s.result for s in steps)][i] for i in step.operands)
        )
        arrays.append(
            np.einsum(f"{names}->{''.join(map(str, step.result.labels))}", *(arrays[i] for i in step.operands))
        )
    np.testing.assert_array_equal(arrays[-1], want)


@pytest.mark.parametrize("optimize", ["auto", "optimal", "dp", "greedy", "branch-all", "branch-2"])
def test_there_is_a_path_where_an_extent_is_0(optimize: Any) -> None:
    inputs = [Tensor(tuple(x), layout_of(DTYPES["f32"], (0,) * len(x))) for x in ("ab", "c", "bd", "d")]
    output = Tensor(("a",), layout_of(DTYPES["f32"], (0,)))
    check_steps(network(inputs, output, dict.fromkeys("abcd", 0), optimize), inputs, output)


def test_an_order_is_worth_its_search() -> None:
    """A chain of matrices and a vector is multiplied from the vector's side."""
    sizes: dict[Label, int] = dict.fromkeys("abcd", 100)
    inputs = [Tensor(tuple(x), layout_of(DTYPES["f32"], (100,) * len(x))) for x in ("ab", "bc", "cd", "d")]
    steps = network(inputs, Tensor(("a",), layout_of(DTYPES["f32"], (100,))), sizes)
    assert [math.prod(step.result.layout.shape) for step in steps] == [100, 100, 100]
