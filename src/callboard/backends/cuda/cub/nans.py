"""NaNs of keys that CUB has sorted: its radix sort orders by bits, so those with a sign are at the wrong end."""

from collections.abc import Callable

from callboard.backends.cuda.cub.arguments import CubArgs, element_kernel
from callboard.backends.cuda.cub.cccl import Cccl
from callboard.backends.cuda.launching import linear_grid
from callboard.backends.cuda.plans import PlanMemory
from callboard.core.layout import Layout

__all__ = ["Nans"]

PARTS = 1024
"""In which the given keys are counted, by a block each."""
STATE = 3 * 8
"""Bytes before the counts of the parts."""
WORKS = ("nans_looked_for", "nans_counted", "nans_left_out", "nans_put")


class Nans:
    """Kernels that move the NaNs of a sorted line to their end, in the order of the input, with their bits.

    One thread checks both ends of the line. If there are no NaNs, or equal ones at the right end, which a stable sort
    has left in order, the other kernels do nothing: a few microseconds. Otherwise the NaNs are read again from the
    given keys, and the keys that followed misplaced NaNs are moved through memory of the plan.

    Args:
        cccl: Has the device.
        memory: Memory of the plan.
        keys: Layout of the keys.
        n: Length of a line.
        descending: True for descending order.
        size: Bytes of a value beside each key; 0 if there are no values.
    """

    def __init__(self, cccl: Cccl, memory: PlanMemory, keys: Layout, n: int, descending: bool, size: int = 0) -> None:
        item = keys.dtype.itemsize
        grid = min(linear_grid(n), PARTS)
        room = -(-n * item // 16) * 16
        self._args = CubArgs(n=n, m=grid, k=size, room=room, least=descending)
        self._aside, self._state = memory.take(room + n * size), memory.take(STATE + 8 * grid)
        self._steps: list[Callable[[int], None]] = [
            element_kernel(cccl.device, work, keys.dtype, self._args, 1 if at == 0 else grid)
            for at, work in enumerate(WORKS)
        ]

    def __call__(self, native: int, keys: int, out_keys: int, values: int = 0, out_values: int = 0) -> None:
        """Enqueue the kernels after the sort, with the addresses of its inputs and outputs."""
        args = self._args
        args.a, args.b, args.c, args.d = keys, values, self._aside.ptr, self._state.ptr
        args.out, args.second = out_keys, out_values
        for step in self._steps:
            step(native)
