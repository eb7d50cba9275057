"""Kernels of a Philox fill: whole aligned groups at once, the rest by the kernel for any position."""

from typing import Any

import pytest

from callboard.backends.cuda.rng import philox as module
from callboard.backends.cuda.rng.arguments import FillArgs

Launch = tuple[str, int, int, int]
"""Kernel, address, position, elements."""


class Stream:
    native = 3


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    """What has been launched."""
    found: list[Launch] = []

    def launcher(device: Any, source: str, name: str, items: int, args: FillArgs) -> Any:
        assert source == "rng_f32"
        return lambda stream: found.append((name, args.out or 0, args.position, args.count))

    monkeypatch.setattr(module, "launcher", launcher)
    return found


def run(kind: str, count: int, out: int, position: int, step: int = 1) -> None:
    device: Any = None
    stream: Any = Stream()
    module.philox(device, kind, "rng_f32", "unit", step, 4 * step, FillArgs(count=count))(stream, out, 9, position)


@pytest.mark.parametrize(
    "kind, count, out, position, step, wanted",
    [
        ("philox", 8, 256, 0, 1, [("philox_unit", 256, 0, 8)]),
        ("philox", 10, 256, 4, 1, [("philox_unit", 256, 4, 8), ("philox_unit_cut", 288, 12, 2)]),
        ("philox", 10, 256, 5, 1, [("philox_unit_cut", 256, 5, 10)]),
        ("philox", 10, 260, 4, 1, [("philox_unit_cut", 260, 4, 10)]),
        ("philox", 3, 256, 0, 1, [("philox_unit_cut", 256, 0, 3)]),
        ("philox", 5, 512, 8, 2, [("philox_unit", 512, 8, 4), ("philox_unit_cut", 544, 16, 1)]),
        ("philox64", 17, 256, 8, 1, [("philox64_unit", 256, 8, 16), ("philox64_unit_cut", 320, 24, 1)]),
        ("philox64", 16, 256, 4, 1, [("philox64_unit_cut", 256, 4, 16)]),
        ("philox64", 16, 272, 8, 1, [("philox64_unit", 272, 8, 16)]),
    ],
)
def test_groups(
    launched: list[Launch], kind: str, count: int, out: int, position: int, step: int, wanted: list[Launch]
) -> None:
    run(kind, count, out, position, step)
    assert launched == wanted
