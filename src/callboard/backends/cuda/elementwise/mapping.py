"""Plans of expressions on elements: the kernel's text, and its launches."""

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_void_p
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.elementwise.arguments import (
    Field,
    arguments_class,
    arguments_text,
    number_fields,
    put_number,
)
from callboard.backends.cuda.elementwise.axes import Walk, walk_of
from callboard.backends.cuda.elementwise.text import HELD, STORED, element_text, headers, loaded, stored
from callboard.backends.cuda.elementwise.walking import offsets_text, put_walk, walk_fields
from callboard.backends.cuda.kernels import data_text
from callboard.core.dtype import DType
from callboard.core.layout import Layout, layout_of
from callboard.kernel.elementwise import Map, MapMany
from callboard.kernel.elementwise.map import program_of, shape_of_operands
from callboard.kernel.elementwise.program import Program
from callboard.kernel.elementwise.shapes import spread

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.elementwise.library import CudaElementwise
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["map_many", "map_one", "map_text"]

THREADS = 256
IN_FLIGHT = 64
"""Bytes of each array that a thread loads before it computes."""
MAX_BLOCKS = 1 << 16
"""Enough to fill any GPU many times; the kernels step over the rest."""


def names_of(operands: int, results: int) -> tuple[str, ...]:
    """The arrays of a kernel by name."""
    return (*(f"x{i}" for i in range(operands)), *(f"y{i}" for i in range(results)))


def at_once(walk: Walk, dtypes: Sequence[DType]) -> int:
    """Packs that a thread loads before it computes."""
    return max(1, min(8, IN_FLIGHT // (walk.pack * max(d.itemsize for d in dtypes))) // (2 if len(dtypes) > 4 else 1))


def map_fields(program: Program, names: Sequence[str], walk: Walk) -> list[Field]:
    """The fields of the kernel's arguments."""
    numbers = [program.steps[at].dtype for at in program.numbers]
    return [
        *((name, "void*") for name in names),
        *number_fields(numbers),
        ("packs", "i64" if walk.wide else "u32"),
        ("tail", "u32"),
        *walk_fields(walk, names),
    ]


def map_text(program: Program, dtypes: Sequence[DType], walk: Walk) -> str:
    """CUDA C++ of the kernel ``map``.

    Args:
        program: What to compute.
        dtypes: Of the operands, then of the results.
        walk: Over all of them.
    """
    count = len(dtypes) - len(program.results)
    names = names_of(count, len(program.results))
    index = "i64" if walk.wide else "u32"
    offset = "i64" if walk.wide else "i32"
    together = at_once(walk, dtypes)
    used = {s.value for s in program.steps if s.function == "operand"}
    inputs = [(names[i], STORED[dtypes[i].name], i) for i in sorted(used)]
    outputs = [(names[i], STORED[dtypes[i].name], i) for i in range(count, len(names))]
    walked = [name for name, _, _ in (*inputs, *outputs)]
    lines = [
        *(data_text(name).decode() for name in headers(program)),
        arguments_text(map_fields(program, names, walk)),
        element_text(program),
        f'extern "C" __global__ void __launch_bounds__({THREADS}) map(const Args p) {{',
        f"    const {index} stride = ({index})gridDim.x * {THREADS * together};",
        f"    for ({index} first = ({index})blockIdx.x * {THREADS * together} + threadIdx.x; first < p.packs; first += stride) {{",
    ]
    for name, kind, i in inputs:
        pack = 1 if walk.repeated[i] else walk.pack
        lines.append(f"        Pack<{kind}, {pack}> {name}[{together}];")
    lines += [f"        {offset} o_{name}[{together}];" for name, _, _ in outputs]
    lines += ["        #pragma unroll", f"        for (int k = 0; k < {together}; k++) {{"]
    lines += [f"            const {index} pack = first + k * {THREADS};", "            if (pack >= p.packs) continue;"]
    lines += [f"            {offset} {', '.join(f'f_{name} = 0' for name in walked)};"]
    lines += [f"            {line}" for line in offsets_text(walk, walked, "pack", into="f_{}")]
    for name, kind, i in inputs:
        pack = 1 if walk.repeated[i] else walk.pack
        lines.append(f"            {name}[k] = *(const Pack<{kind}, {pack}>*)((const {kind}*)p.{name} + f_{name});")
    lines += [f"            o_{name}[k] = f_{name};" for name, _, _ in outputs]
    lines += ["        }", "        #pragma unroll", f"        for (int k = 0; k < {together}; k++) {{"]
    lines += [f"            if (first + k * {THREADS} >= p.packs) continue;"]
    lines += [f"            Pack<{kind}, {walk.pack}> {name};" for name, kind, _ in outputs]
    lines += ["            #pragma unroll", f"            for (int j = 0; j < {walk.pack}; j++) {{"]
    given = [loaded(dtypes[i], f"{name}[k].at[{'0' if walk.repeated[i] else 'j'}]") for name, _, i in inputs]
    lines += [f"                {line}" for line in _computed(program, given, outputs, dtypes, "{}.at[j]")]
    lines += ["            }"]
    lines += [
        f"            *(Pack<{kind}, {walk.pack}>*)(({kind}*)p.{name} + o_{name}[k]) = {name};"
        for name, kind, _ in outputs
    ]
    lines += ["        }", "    }"]
    if walk.pack > 1 and len(walk.extents) == 1:
        lines += _tail_text(program, walk, inputs, outputs, dtypes)
    return "\n".join([*lines, "}", ""])


def _computed(
    program: Program, given: Sequence[str], outputs: Sequence[Any], dtypes: Sequence[DType], into: str
) -> list[str]:
    """Lines that compute one element and store it."""
    held = [f"h_{name}" for name, _, _ in outputs]
    kinds = [_held(program, i) for i in range(len(outputs))]
    lines = [f"{kind} {name};" for kind, name in zip(kinds, held, strict=True)]
    lines.append(f"element({', '.join(['p', *given, *held])});")
    lines += [
        f"{into.format(name)} = {stored(dtypes[i], value)};" for (name, _, i), value in zip(outputs, held, strict=True)
    ]
    return lines


def _held(program: Program, result: int) -> str:
    return HELD[program.steps[program.results[result]].dtype.name]


def _tail_text(
    program: Program, walk: Walk, inputs: Sequence[Any], outputs: Sequence[Any], dtypes: Sequence[DType]
) -> list[str]:
    """What lies behind the last whole pack, an element for a thread."""

    def at(i: int) -> str:
        return "0" if walk.repeated[i] else "at"

    given = [loaded(dtypes[i], f"((const {kind}*)p.{name})[{at(i)}]") for name, kind, i in inputs]
    stores = [(f"(({kind}*)p.{name})[at]", kind, i) for name, kind, i in outputs]
    index = "i64" if walk.wide else "u32"
    held = [f"h_{name}" for name, _, _ in outputs]
    return [
        "    if (blockIdx.x == 0 && threadIdx.x < p.tail) {",
        f"        const {index} at = p.packs * {walk.pack} + threadIdx.x;",
        *(f"        {_held(program, i)} {name};" for i, name in enumerate(held)),
        f"        element({', '.join(['p', *given, *held])});",
        *(f"        {place} = {stored(dtypes[i], value)};" for (place, _, i), value in zip(stores, held, strict=True)),
        "    }",
    ]


class MapKernel:
    """A kernel for one walk, and its arguments.

    Args:
        device: Where it is compiled.
        program: What to compute.
        dtypes: Of the operands, then of the results.
        walk: Over all of them.
    """

    def __init__(self, device: "CudaDevice", program: Program, dtypes: Sequence[DType], walk: Walk) -> None:
        names = names_of(len(dtypes) - len(program.results), len(program.results))
        args: Any = arguments_class(map_fields(program, names, walk))()
        args.packs, args.tail = walk.packs, walk.tail
        put_walk(args, walk, names)
        self._args = args
        self._names = names
        self._put = [put_number(f"n{i}", program.steps[at].dtype) for i, at in enumerate(program.numbers)]
        text = map_text(program, dtypes, walk).encode()
        self._function = device.kernels.compile("elementwise", text, "map")
        self._driver = device.driver
        groups = -(-walk.packs // (THREADS * at_once(walk, dtypes)))
        self._grid = max(1, min(groups, MAX_BLOCKS))
        self._params = (c_void_p * 1)(ctypes.addressof(args))

    def __call__(self, stream: int, addresses: Sequence[int], numbers: Sequence[Any]) -> None:
        """Enqueue it."""
        args = self._args
        for name, address in zip(self._names, addresses, strict=True):
            setattr(args, name, address)
        for put, number in zip(self._put, numbers, strict=True):
            put(args, number)
        code = self._driver.launch_kernel(
            self._function, self._grid, 1, 1, THREADS, 1, 1, 0, stream, self._params, None
        )
        if code:
            raise self._driver.error(code, "cuLaunchKernel")


class MapPlan:
    """An expression over arrays of these layouts: by packs where the addresses of a call allow it."""

    def __init__(
        self,
        device: "CudaDevice",
        program: Program,
        shape: tuple[int, ...],
        operands: Sequence[Layout],
        results: Sequence[Layout],
    ) -> None:
        self._program = program
        self._empty = 0 in shape
        if self._empty:
            return
        layouts = [*operands, *results]
        dtypes = [layout.dtype for layout in layouts]
        steps = [spread(layout, shape) for layout in layouts]
        sizes = [dtype.itemsize for dtype in dtypes]
        walk = walk_of(shape, steps, sizes, len(operands))
        self._packed = MapKernel(device, program, dtypes, walk)
        self._single = self._packed
        self._aligned: list[tuple[int, int]] = []
        if walk.pack > 1:
            self._single = MapKernel(device, program, dtypes, walk_of(shape, steps, sizes, len(operands), packed=False))
            self._aligned = [(i, min(16, size * walk.pack) - 1) for i, size in enumerate(sizes) if not walk.repeated[i]]

    def __call__(
        self, stream: "CudaStream", operands: Sequence[int], scalars: Sequence[Any] | None, results: Sequence[int]
    ) -> None:
        """Enqueue it; addresses of element 0 of each array."""
        if self._empty:
            return
        addresses = (*operands, *results)
        numbers = self._program.values(scalars)
        apart = any(addresses[i] & mask for i, mask in self._aligned)
        (self._single if apart else self._packed)(stream.native, addresses, numbers)


Plan = Callable[..., None]


def map_one(library: "CudaElementwise", op: Map) -> Plan:
    """Called with ``(stream, operands, scalars, out)``."""
    program = program_of(op)
    shape = shape_of_operands(op)
    made = layout_of(program.steps[program.results[0]].dtype, shape)
    layout = made if op.out is None else op.out.layout
    plan = MapPlan(library.device, program, shape, [operand.layout for operand in op.operands], [layout])
    return lambda stream, operands, scalars, out: plan(stream, operands, scalars, (out,))


def map_many(library: "CudaElementwise", op: MapMany) -> Plan:
    """Called with ``(stream, operands, scalars, outs)``."""
    operands, outs = ([one.layout for one in many] for many in (op.operands, op.outs))
    return MapPlan(library.device, program_of(op, op.keep), shape_of_operands(op), operands, outs)
