"""Python loops over the elements of a ref: each element is an op of the device, so a long loop warns."""

import time
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callboard.core.ref.handle import GpuRef

__all__ = ["elements"]

LONG = 4.0
"""Seconds after which a loop warns."""
OFTEN = 250
"""Elements per second, from which on the loop itself is what takes the time, and not what is done with an element."""


now = time.monotonic


def elements(ref: "GpuRef[Any]", clock: Callable[[], float] | None = None) -> "Iterator[GpuRef[Any]]":
    """The elements of a ref of one axis. A loop that has taken long warns, once.

    Args:
        ref: The array.
        clock: Seconds.
    """
    clock = clock or now
    begin = clock()
    loop = iter(range(len(ref)))
    for i in loop:
        yield ref[i]
        taken = clock() - begin
        if LONG <= taken <= i / OFTEN:
            warnings.warn(_text(ref, i + 1, taken), RuntimeWarning, stacklevel=2)
            break
    for i in loop:
        yield ref[i]


def _text(ref: "GpuRef[Any]", count: int, taken: float) -> str:
    got = "x.get()" if ref._port.services.blocking else "await x.get()"
    return (
        f"a Python loop over {ref._told()} has taken {taken:.0f} s for {count} of {len(ref)} elements, each an op of "
        "the "
        f"device: compute there, as xp.max(x) does, or copy the values once, `{got}`, and loop over those"
    )
