"""CUDA C++ of an expression: the kernel ``map``."""

from collections.abc import Sequence
from typing import Any

from callboard.backends.cuda.elementwise.arguments import Field, arguments_text, number_fields
from callboard.backends.cuda.elementwise.axes import Walk
from callboard.backends.cuda.elementwise.text import HELD, STORED, element_text, headers, loaded, stored
from callboard.backends.cuda.elementwise.walking import offsets_text, walk_fields
from callboard.backends.cuda.kernels import data_text
from callboard.core.dtype import DType
from callboard.kernel.elementwise.program import Program

__all__ = ["THREADS", "at_once", "map_fields", "map_text", "names_of"]

THREADS = 256
IN_FLIGHT = 16
"""Bytes of each array that a thread loads before it computes."""


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
        program: The computation.
        dtypes: The dtypes of the operands, then of the results.
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
        f"    {index} first = ({index})blockIdx.x * {THREADS * together} + threadIdx.x;",
        "    for (; first < p.packs; first += stride) {",
    ]
    for name, kind, i in inputs:
        pack = 1 if walk.repeated[i] else walk.pack
        lines.append(f"        Pack<{kind}, {pack}> {name}[{together}];")
    lines += [f"        {offset} o_{name}[{together}];" for name, _, _ in outputs]
    lines += ["        #pragma unroll", f"        for (int k = 0; k < {together}; k++) {{"]
    lines += [f"            const {index} pack = first + k * {THREADS};", "            if (pack >= p.packs) continue;"]
    lines += [f"            {offset} {', '.join(f'f_{name} = 0' for name in walked)};"]
    rolls = dict(zip(names, walk.rolls, strict=False))
    lines += [f"            {line}" for line in offsets_text(walk, walked, "pack", into="f_{}", rolls=rolls)]
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
    """Code for the elements after the last whole pack, one element per thread."""

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
