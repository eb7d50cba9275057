"""Generators keep their position: numbers taken by each call, state after a refusal, and threads."""

import itertools
from collections import deque
from typing import Any

import pytest
from tests.together import together

from callboard.core.dtype import DTYPES
from callboard.core.errors import MailboxFull, ShapeError, UnsupportedOp
from callboard.core.layout import layout_of
from callboard.core.op import outputs_of
from callboard.core.ref import Allocation, GpuRef
from callboard.kernel.memory import Empty
from callboard.kernel.rng.api import RngApi
from callboard.kernel.rng.generator import RngGenerator
from callboard.kernel.rng.streams import KINDS


def ref(*shape: int, dtype: str = "f32") -> GpuRef:
    port: Any = None
    return GpuRef(port, Allocation(1, deque()), layout_of(DTYPES[dtype], shape), 0)


class Device:
    """Accepts ops as a device does, and keeps those that fill."""

    def __init__(self) -> None:
        self.fills: list[Any] = []
        self.full = False
        self.rng: RngApi[Any] = RngApi(self, list)

    def __call__(self, op: Any) -> Any:
        outputs_of(op)
        if isinstance(op, Empty):
            return ref(*op.shape, dtype=op.dtype)
        if self.full:
            raise MailboxFull("full")
        self.fills.append(op)
        return op.out

    def places(self) -> list[int]:
        return [op.position for op in self.fills]


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.mark.parametrize("kind", KINDS)
def test_bits_are_of_the_size_of_the_words(device: Device, kind: str) -> None:
    device.rng.generator(kind).bits(3)
    assert device.fills[0].out.dtype.name == ("u64" if "sobol64" in kind else "u32")


def test_each_call_takes_what_its_elements_take(device: Device) -> None:
    g = device.rng.philox(seed=3)
    g.uniform((2, 3))
    g.normal(1)
    g.uniform(2, dtype="f64")  # begins at an even word
    g.integers(0, 5, 3, dtype="i64")
    g.gamma(1.0, size=3, dtype="f64")
    g.discrete(ref(4), 2)
    g.permutation(4)
    g.bits()
    assert device.places() == [0, 6, 8, 12, 18, 22, 26, 34]
    assert g.position == 35
    assert {op.seed for op in device.fills} == {3}
    assert [op.out.dtype.name for op in device.fills] == ["f32", "f32", "f64", "i64", "f64", "i32", "i64", "u32"]


def test_every_method_makes_its_message(device: Device) -> None:
    g = device.rng.generator("philox64", 1, position=10)
    g.log_normal(2, mean=1.0, std=2.0)
    g.exponential(2, rate=3.0)
    g.cauchy(2, loc=1.0, scale=2.0)
    g.beta(1.0, 2.0, 2)
    g.poisson(4.0, 2)
    tags = [op.tag() for op in device.fills]
    assert tags == [f"rng.fill_{name}" for name in ("log_normal", "exponential", "cauchy", "beta", "poisson")]
    assert (device.fills[0].mean, device.fills[0].std, device.fills[1].rate) == (1.0, 2.0, 3.0)
    assert device.places() == [10, 12, 14, 16, 18]


def test_points_are_counted_whatever_their_dimensions(device: Device) -> None:
    g = device.rng.sobol(3, scramble=True, seed=9, bits=64)
    assert (g.kind, g.dimensions) == ("scrambled_sobol64", 3)
    g.uniform((5, 3))
    g.normal((2, 2, 3), dtype="f64")
    assert device.places() == [0, 5]
    assert g.position == 9
    for size in (3, (3, 2)):
        with pytest.raises(ShapeError, match="the points have 3 dimensions; pass an array with two or more axes"):
            g.uniform(size)
    line = device.rng.sobol()
    line.uniform(4)
    line.uniform((4, 1))
    with pytest.raises(ShapeError, match="the points have 1 dimension; create the generator with dimensions=2"):
        line.uniform((4, 2))
    assert line.position == 8


@pytest.mark.parametrize(
    "call",
    [
        lambda g: g.normal(4, std=-1.0),
        lambda g: g.normal(4, dtype="i32"),
        lambda g: g.integers(5, 5, 4),
        lambda g: g.normal(4, out=ref(5)),
        lambda g: g.normal((2, "x")),
        lambda g: g.normal(-4),
    ],
)
def test_a_refused_call_takes_nothing(device: Device, call: Any) -> None:
    g = device.rng.philox()
    g.position = 7
    with pytest.raises(ShapeError):
        call(g)
    assert g.position == 7
    device.full = True
    with pytest.raises(MailboxFull):
        g.normal(4)
    assert (g.position, device.fills) == (7, [])


def test_what_numpy_has_first_is_not_taken_for_a_size(device: Device) -> None:
    for name in ("uniform", "normal", "log_normal", "exponential", "cauchy"):
        with pytest.raises(TypeError, match="positional argument"):
            getattr(device.rng.philox(), name)(0, 1, 5)
    assert device.fills == []


def test_out_is_filled(device: Device) -> None:
    g, out = device.rng.philox(), ref(3, 2, dtype="f64")
    assert g.normal(out=out) is out
    assert g.normal((3, 2), dtype="f64", out=out) is out
    assert device.places() == [0, 12]
    with pytest.raises(ShapeError, match=r"dtype is f32 and out is f64\[3, 2\]; leave dtype out"):
        g.normal(dtype="f32", out=out)
    assert device.places() == [0, 12]


def test_kinds_are_checked_where_a_generator_is_made(device: Device) -> None:
    with pytest.raises(ShapeError, match="kind 'pcg64' is not a generator"):
        device.rng.generator("pcg64")
    with pytest.raises(ShapeError, match="philox has 1 to 1"):
        device.rng.generator("philox", dimensions=2)
    with pytest.raises(UnsupportedOp, match="use philox"):
        device.rng.xorwow().gamma(1.0, size=3)
    for seed in (1.5, None):
        with pytest.raises(TypeError, match=f"seed is {seed}; pass an integer"):
            device.rng.philox(seed)  # type: ignore[arg-type]
    for seed in (-1, 2**64):
        with pytest.raises(ShapeError, match=rf"seed is {seed}; it must lie between 0 and 2\*\*64 - 1"):
            device.rng.philox(seed)
    with pytest.raises(TypeError, match="ordering = 'bogus': use one of 'default', 'best', 'legacy'"):
        device.rng.generator("philox", ordering="bogus")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"dimensions is 2.0; pass an integer"):
        device.rng.sobol(2.0)  # type: ignore[arg-type]
    for name in ("philox", "philox64", "xorwow", "mrg32k3a", "mt19937", "mtgp32"):
        assert getattr(device.rng, name)(5).kind == name
    assert repr(device.rng.philox(5)) == "RngGenerator('philox', seed=5, position=0)"


def test_skip_and_set_back(device: Device) -> None:
    g = device.rng.xorwow()
    g.skip(1000)
    g.uniform(10)
    g.position = 1000
    g.uniform(10)
    assert device.places() == [1000, 1000]
    for position in (-1, 2**64):
        with pytest.raises(ShapeError, match="it must lie between"):
            g.position = position
    with pytest.raises(TypeError, match=r"position is 1.0; pass an integer"):
        g.position = 1.0  # type: ignore[assignment]
    with pytest.raises(TypeError, match=r"count is '3'; pass an integer"):
        g.skip("3")  # type: ignore[arg-type]
    assert g.position == 1010


def test_threads_never_take_the_same_numbers(device: Device) -> None:
    g: RngGenerator[Any] = device.rng.philox()

    def draw() -> None:
        for n in range(1, 200):
            g.uniform(n % 7)

    together(draw, [()] * 4)
    taken = [(op.position, op.out.size) for op in device.fills]
    assert len(taken) == 4 * 199
    assert taken == sorted(taken), "in the order of their places"
    assert all(at + n == after for (at, n), (after, _) in itertools.pairwise(taken))
