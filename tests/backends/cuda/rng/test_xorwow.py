"""Segments of a fill with XORWOW, and the arguments of its kernels."""

import ctypes
from typing import Any

import numpy as np
import pytest

from callboard.backends.cuda.rng import xorwow as module
from callboard.backends.cuda.rng.arguments import FillArgs
from callboard.backends.cuda.rng.xorwow import SEGMENTS, Xorwow
from callboard.core.backend import Memory
from callboard.kernel.rng.xorwow import LANES, power, times


class Stream:
    native = 3

    def synchronize(self) -> None:
        """At once."""


class Device:
    """Host memory; kernels are their names."""

    def __init__(self) -> None:
        self.blocks: dict[int, Any] = {}
        self.kernels = self
        self.driver = self
        self.fails = False

    def allocate(self, nbytes: int) -> Memory:
        block = np.zeros(nbytes, np.uint8)
        self.blocks[block.ctypes.data] = block
        return Memory(block.ctypes.data, nbytes)

    def release(self, memory: Memory) -> None:
        del self.blocks[memory.address]

    def get(self, source: str, name: str) -> Any:
        return f"{source} {name}"

    def memcpy_htod(self, out: int, image: int, nbytes: int, stream: int) -> int:
        ctypes.memmove(out, image, nbytes)
        return int(self.fails)

    def check(self, code: int, call: str) -> None:
        if code:
            raise RuntimeError(call)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Kernel, threads and place of each launch."""
    found: list[tuple[str, int, int]] = []

    def launcher(driver: Any, function: Any, grid: int, block: tuple[int, int], args: FillArgs) -> Any:
        return lambda stream: found.append((function, grid * block[0] * block[1], args.position))

    monkeypatch.setattr(module, "kernel_launcher", launcher)
    return found


def filled(device: Device, count: int, step: int, *, seeded: bool = False) -> FillArgs:
    args = FillArgs(count=count)
    stream: Any = Stream()
    shared = Xorwow(device, stream)  # type: ignore[arg-type]
    shared.fill("rng_f32", "uniform", step, args, seeded=seeded)(stream, 256, 9, 4096)
    return args


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("count", [1, 100, 4096, 10**5, 10**6, 10**8, 3 * 10**9])
def test_segments_hold_every_row_wherever_the_fill_begins(
    launched: list[tuple[str, int, int]], count: int, step: int
) -> None:
    args = filled(Device(), count, step)
    (begin, lanes, _), *spread, (make, threads, position) = launched
    assert (begin, lanes) == ("rng_words xorwow_begin", 32 * LANES)
    assert (make, position, args.size) == ("rng_f32 xorwow_uniform", 4096, 1 << args.bits)
    segments = threads * step // LANES
    assert 1 <= segments <= SEGMENTS
    rows = -(-(LANES - 1 + count * step) // LANES)
    assert (segments - 1) * args.size < rows <= segments * args.size
    assert spread == ([("rng_words xorwow_spread", 32 * LANES * (segments - 1), 4096)] if segments > 1 else [])


def test_matrices_are_those_of_rows_and_lanes(launched: list[tuple[str, int, int]]) -> None:
    device = Device()
    args = filled(device, 10, 1, seeded=True)
    table = np.frombuffer(device.blocks[args.table], np.uint32).reshape(-1, 5, 160)
    assert table.shape[0] == 52 + 12
    one = np.array([[1], [2], [3], [4], [5]], np.uint32)
    for exponent, at in ((0, 0), (7, 7), (51, 51), (67, 52), (78, 63)):
        np.testing.assert_array_equal(times(table[at], one), times(power(exponent), one))
    assert args.shift == 1


def test_one_table_for_all_fills(launched: list[tuple[str, int, int]]) -> None:
    device, stream = Device(), Stream()
    shared: Any = Xorwow(device, stream)  # type: ignore[arg-type]
    for count in (5, 10**6):
        shared.fill("rng_f32", "normal", 1, FillArgs(count=count), seeded=False)
    assert len(device.blocks) == 2
    shared.close()
    shared.close()
    assert not device.blocks


def test_a_table_that_cannot_be_copied_is_given_back(launched: list[tuple[str, int, int]]) -> None:
    device, stream = Device(), Stream()
    shared: Any = Xorwow(device, stream)  # type: ignore[arg-type]
    device.fails = True
    with pytest.raises(RuntimeError, match="cuMemcpyHtoDAsync"):
        shared.fill("rng_f32", "normal", 1, FillArgs(count=5), seeded=False)
    shared.close()
    assert not device.blocks
