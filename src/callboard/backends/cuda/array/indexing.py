"""Plans of gathers and scatters on a GPU: one kernel walks the result, and looks up the address of each element."""

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.array.arguments import PickArgs
from callboard.backends.cuda.array.movement import layout_of_out
from callboard.backends.cuda.axes import AXES
from callboard.backends.cuda.launching import THREADS, kernel_launcher, linear_grid, suffix
from callboard.backends.cuda.plans import Outcome
from callboard.backends.cuda.readback import CudaStatus
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.core.operand import Operand
from callboard.kernel.array import Gather, Scatter, TakeAlong
from callboard.kernel.array.checks import broadcast, broadcast_shape

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Picks", "gather", "scatter", "take_along", "too_many"]

FAULTS = 24
"""Bytes of ``PickArgs.fault``."""

Steps = tuple[int, ...]


class Picks:
    """A plan: the walk over the result of a gather, or over the values of a scatter.

    Args:
        device: The device.
        tag: Tag of the op; with ``name``, the name of the operand whose layout is ``indexed``, for errors.
        kernel: ``"gather"`` or ``"scatter"``.
        ordered: Returns the addresses of ``(src, indices, out)`` from the arguments of the op's launch.
        shape: Extents of the walk's axes; the steps below are along these axes.
        src, out, indices: Steps of the operands; 0 along axes that they do not have.
        picked: Operands of the indices.
        axes: Axes of ``indexed`` that the indices select from, one for each index array.
        name, indexed: See ``tag``.
    """

    def __init__(
        self,
        device: "CudaDevice",
        tag: str,
        kernel: str,
        ordered: Callable[..., tuple[int, Sequence[int], int]],
        shape: tuple[int, ...],
        steps: tuple[Steps, Steps, list[Steps]],
        picked: Sequence[Operand],
        axes: Sequence[int],
        name: str,
        indexed: Layout,
    ) -> None:
        self._tag, self._ordered = tag, ordered
        self._picked, self._axes, self._name, self._indexed = picked, axes, name, indexed
        src, out, indices = steps
        extents, merged = joint_steps(shape, [src, out, *indices])
        self._args = args = PickArgs(count=1, axes=len(extents), picks=len(picked))
        for extent in shape:
            args.count *= extent
        args.extent[: len(extents)] = extents
        for field, own in zip((args.src_step, args.out_step, *args.index_step), merged, strict=False):
            field[: len(own)] = own
        for i, (one, axis) in enumerate(zip(picked, axes, strict=True)):
            args.limit[i], args.step[i], args.kind[i] = indexed.shape[axis], indexed.strides[axis], one.dtype.code
        self._outcome = Outcome(device, FAULTS, self._check)
        args.fault = self._outcome.address
        item = indexed.dtype.itemsize
        kernels = [f"{kernel}_{suffix(item, args.count)}"]
        if kernel == "scatter":  # nothing is written if an index is out of range
            kernels.insert(0, "within" if args.count < 1 << 32 else "within_wide")
        grid = linear_grid(args.count)
        self._runs = [
            kernel_launcher(device.driver, device.kernels.get("array", name), grid, (THREADS, 1), args)
            for name in kernels
        ]

    def __call__(self, stream: "CudaStream", *dynamic: Any) -> CudaStatus | None:
        """Enqueue it and return a status that raises ``ShapeError`` if an index is out of range."""
        args, native = self._args, stream.native
        if not args.count:
            return None
        src, indices, out = self._ordered(*dynamic)
        self._outcome.clear(native)
        args.src, args.out = src, out
        args.index[: len(indices)] = indices
        for run in self._runs:
            run(native)
        return self._outcome.status

    def _check(self, outcome: bytes) -> None:
        wrong, value, which = struct.unpack("<QqQ", outcome)
        if wrong:
            several = "" if self._tag == "array.take_along" else f"[{which}]"
            raise ShapeError(
                f"{self._tag}: indices{several} holds {value}, out of range for axis {self._axes[which]} of "
                f"{self._name}, which is {self._indexed!r} ({wrong} of {self._args.count} are)"
            )

    def close(self) -> None:
        """Free the memory; nothing uses it any more."""
        self._outcome.close()


def joint_steps(shape: Steps, steps: Sequence[Steps]) -> tuple[Steps, list[Steps]]:
    """The fewest axes that reach the same elements in all arrays: extents of 1 dropped, neighbours merged."""
    extents: list[int] = []
    found: list[tuple[int, ...]] = []
    for extent, own in zip(shape, zip(*steps, strict=True), strict=True):
        if extent == 1:
            continue
        if extents and all(wide == step * extent for wide, step in zip(found[-1], own, strict=True)):
            extents[-1] *= extent
            found[-1] = own
        else:
            extents.append(extent)
            found.append(own)
    return tuple(extents), [tuple(column) for column in zip(*found, strict=True)]


def too_many(op: Gather | Scatter | TakeAlong) -> str | None:
    """The reason why the kernel cannot iterate over the axes, None if it can."""
    over = op.values.layout if isinstance(op, Scatter) else layout_of_out(op)
    wide = sum(extent > 1 for extent in over.shape)
    return f"{wide} axes; at most {AXES}" if wide > AXES else None


def _steps(of: Layout, indices: Sequence[Operand], place: int, walked: Layout) -> tuple[Steps, list[Steps]]:
    """Steps of the indexed array's other axes, and of the indices, along the axes of the walk."""
    picked = broadcast_shape("indices", [one.shape for one in indices])
    behind = walked.ndim - place - len(picked)
    rest = of.strides[len(indices) :]
    own = (*rest[:place], *(0,) * len(picked), *rest[place:])
    return own, [(*(0,) * place, *broadcast(one.layout, picked).strides, *(0,) * behind) for one in indices]


@plans(Gather, refuses=too_many)
def gather(device: "CudaDevice", op: Gather) -> Picks:
    """The plan of a gather; may compile now."""
    out, src = layout_of_out(op), op.src.layout
    own, indices = _steps(src, op.indices, op.place, out)
    steps = (own, out.strides, indices)
    axes = range(len(op.indices))
    return Picks(device, "array.gather", "gather", _as_given, out.shape, steps, op.indices, axes, "src", src)


@plans(Scatter, refuses=too_many)
def scatter(device: "CudaDevice", op: Scatter) -> Picks:
    """The plan of a scatter; may compile now."""
    values, out = op.values.layout, op.out.layout
    own, indices = _steps(out, op.indices, op.place, values)
    steps = (values.strides, own, indices)
    axes = range(len(op.indices))
    return Picks(device, "array.scatter", "scatter", _out_first, values.shape, steps, op.indices, axes, "out", out)


@plans(TakeAlong, refuses=too_many)
def take_along(device: "CudaDevice", op: TakeAlong) -> Picks:
    """The plan of a gather along lines; may compile now."""
    out, src, axis = layout_of_out(op), op.src.layout, op.axis % op.src.ndim
    lines = (*out.shape[:axis], src.shape[axis], *out.shape[axis + 1 :])
    own = broadcast(src, lines).strides
    own = (*own[:axis], 0, *own[axis + 1 :])
    steps = (own, out.strides, [broadcast(op.indices.layout, out.shape).strides])
    return Picks(device, "array.take_along", "gather", _one_index, out.shape, steps, (op.indices,), (axis,), "src", src)


def _as_given(src: int, indices: Sequence[int], out: int) -> tuple[int, Sequence[int], int]:
    return src, indices, out


def _out_first(out: int, values: int, indices: Sequence[int]) -> tuple[int, Sequence[int], int]:
    return values, indices, out


def _one_index(src: int, index: int, out: int) -> tuple[int, Sequence[int], int]:
    return src, (index,), out
