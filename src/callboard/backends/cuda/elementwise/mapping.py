"""Plans of expressions on elements: the launches of their kernels."""

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.elementwise.across import Across, across
from callboard.backends.cuda.elementwise.arguments import arguments_class, put_number
from callboard.backends.cuda.elementwise.axes import Walk, rolled_walk, walk_of
from callboard.backends.cuda.elementwise.map_text import THREADS, at_once, map_fields, map_text, names_of
from callboard.backends.cuda.elementwise.walking import put_walk
from callboard.backends.cuda.launching import kernel_launcher
from callboard.core.dtype import DType
from callboard.core.layout import Layout, layout_of
from callboard.core.library import plans
from callboard.kernel.elementwise import Map, MapMany
from callboard.kernel.elementwise.map import program_of, shape_of_operands
from callboard.kernel.elementwise.program import Program
from callboard.kernel.elementwise.shapes import spread
from callboard.kernel.elementwise.tree import Name, Number

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream
    from callboard.backends.cuda.workspace import HasWorkspace, Room

__all__ = ["map_many", "map_one"]

MAX_BLOCKS = 1 << 20
"""Enough to fill any GPU many times; the kernels step over the rest."""


class MapKernel:
    """A kernel for one walk, and its arguments.

    Args:
        device: Device that it is compiled for.
        program: The computation.
        dtypes: The dtypes of the operands, then of the results.
        walk: Over all of them.
    """

    def __init__(self, device: "CudaDevice", program: Program, dtypes: Sequence[DType], walk: Walk) -> None:
        names = names_of(len(dtypes) - len(program.results), len(program.results))
        args: Any = arguments_class(map_fields(program, names, walk))()
        args.packs, args.tail = walk.packs, walk.tail
        put_walk(args, walk, names)
        self._args = args
        self._addresses = struct.Struct(f"@{len(names)}Q").pack_into  # they come first in the structure
        self._put = [put_number(f"n{i}", program.steps[at].dtype) for i, at in enumerate(program.numbers)]
        text = map_text(program, dtypes, walk).encode()
        function = device.kernels.compile("elementwise", text, "map")
        groups = -(-walk.packs // (THREADS * at_once(walk, dtypes)))
        self._launch = kernel_launcher(device.driver, function, max(1, min(groups, MAX_BLOCKS)), (THREADS, 1), args)

    def __call__(self, stream: int, addresses: Sequence[int], numbers: Sequence[Any]) -> None:
        """Enqueue it."""
        args = self._args
        self._addresses(args, 0, *addresses)
        if numbers:
            for put, number in zip(self._put, numbers, strict=True):
                put(args, number)
        self._launch(stream)


class MapPlan:
    """An expression over arrays of these layouts: by packs if the addresses of a call allow it.

    Operands that are contiguous along another axis than the result are first transposed in scratch memory.
    """

    def __init__(
        self,
        library: "HasWorkspace",
        program: Program,
        shape: tuple[int, ...],
        operands: Sequence[Layout],
        results: Sequence[Layout],
        shifts: Sequence[Sequence[int]] = (),
    ) -> None:
        self._numbers = values_of(program)
        self._library = library
        self._room: Room | None = None
        self._moves: list[Across] = []
        self._empty = 0 in shape
        if self._empty:
            return
        device = library.device
        dtypes = [layout.dtype for layout in (*operands, *results)]
        steps = [spread(layout, shape) for layout in (*operands, *results)]
        scratch = 0
        for i, (layout, own) in enumerate(zip(operands, steps, strict=False)):
            move = across(device, i, layout.dtype, shape, own, steps[len(operands)], scratch)
            if move is not None:
                self._moves.append(move)
                steps[i] = move.steps
                scratch = move.end
        sizes = [dtype.itemsize for dtype in dtypes]
        walk = rolled_walk(shape, steps, shifts) if shifts else walk_of(shape, steps, sizes, len(operands))
        self._packed = MapKernel(device, program, dtypes, walk)
        self._single = self._packed
        self._aligned: list[tuple[int, int]] = []
        if walk.pack > 1:
            self._single = MapKernel(device, program, dtypes, walk_of(shape, steps, sizes, len(operands), packed=False))
            self._aligned = [(i, min(16, size * walk.pack) - 1) for i, size in enumerate(sizes) if not walk.repeated[i]]
        if scratch:
            self._room = library.workspace.lease(scratch)

    def __call__(
        self, stream: "CudaStream", operands: Sequence[int], scalars: Sequence[Any] | None, results: int | Sequence[int]
    ) -> None:
        """Enqueue it; addresses of element 0 of each array, of one result or of several."""
        if self._empty:
            return
        addresses = [*operands, *((results,) if isinstance(results, int) else results)]
        numbers = self._numbers(scalars)
        if self._room is not None:
            for move in self._moves:
                place = self._room.memory.address + move.begin
                move.copy(stream.native, addresses[move.operand], place)
                addresses[move.operand] = place
        kernel = self._packed
        for i, mask in self._aligned:
            if addresses[i] & mask:
                kernel = self._single
                break
        kernel(stream.native, addresses, numbers)

    def close(self) -> None:
        """Free its share of the workspace; its work is done."""
        if self._room is not None:
            self._library.workspace.leave(self._room)
            self._room = None


def values_of(program: Program) -> Callable[[Sequence[Number] | None], Sequence[Number]]:
    """Return ``program.values``, or the identity if the kernel takes each number unchanged."""
    if not program.numbers:
        return lambda given: ()
    steps = [program.steps[at] for at in program.numbers]
    plain = all(isinstance(step.value, Name) and step.dtype.is_float for step in steps)
    if plain and not program.bools and [step.value.name for step in steps] == list(program.names):
        return lambda given: given or ()
    return program.values


Plan = Callable[..., None]


@plans(Map)
def map_one(library: "HasWorkspace", op: Map) -> Plan:
    """Called with ``(stream, operands, scalars, out)``."""
    program = program_of(op)
    shape = shape_of_operands(op)
    made = layout_of(program.steps[program.results[0]].dtype, shape)
    layout = made if op.out is None else op.out.layout
    return MapPlan(library, program, shape, [operand.layout for operand in op.operands], [layout], op.shifts)


@plans(MapMany)
def map_many(library: "HasWorkspace", op: MapMany) -> Plan:
    """Called with ``(stream, operands, scalars, outs)``."""
    operands, outs = ([one.layout for one in many] for many in (op.operands, op.outs))
    return MapPlan(library, program_of(op, op.keep), shape_of_operands(op), operands, outs)
