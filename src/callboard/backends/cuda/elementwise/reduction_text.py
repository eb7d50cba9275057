"""CUDA C++ of a reduction: the kernel ``reduce``, and ``reduce_end`` for partial results."""

from collections.abc import Sequence

from callboard.backends.cuda.elementwise.arguments import Field, arguments_text, number_fields
from callboard.backends.cuda.elementwise.axes import Walk
from callboard.backends.cuda.elementwise.shape import THREADS
from callboard.backends.cuda.elementwise.text import HELD, STORED, element_text, headers, loaded, stored
from callboard.backends.cuda.elementwise.walking import offsets_text, walk_fields
from callboard.backends.cuda.kernels import data_text
from callboard.core.dtype import DType
from callboard.kernel.elementwise.reduction import Reduction

__all__ = ["reduce_fields", "reduce_text"]

IN_FLIGHT = 64
"""Bytes of the largest operand that a thread loads before it computes."""

DATA = """
typedef Join_{function}<{held}> J;
typedef J::A A;
{arguments}
{element}
{finish}
__device__ void store(const Args& p, {index} output, A total) {{
    {offset} o_y0 = 0;
    {{
        {result_offset}
    }}
    {result} y;
    finish(p, ({total})J::total(total), y);
    (({stored_result}*)p.y0)[o_y0] = {stored_y};
}}
// Joins what the lanes of a result have; `apart`: from one lane's thread to the next.
__device__ void join_lanes(A* shared, u32 lane, u32 lanes, u32 apart) {{
    __syncthreads();
    for (u32 half = lanes / 2; half; half /= 2) {{
        if (lane < half) shared[threadIdx.x] = J::join(shared[threadIdx.x], shared[threadIdx.x + half * apart]);
        __syncthreads();
    }}
}}
extern "C" __global__ void __launch_bounds__({threads}) reduce(const Args p) {{
    __shared__ A shared[{threads}];
    const u32 results = {threads} / p.lanes;
    const u32 lane = {lane}, mine = {mine};
    const {index} output = ({index})blockIdx.x * results + mine;
    A total = J::none();
    if (output < p.outputs) {{
        {kept_offsets}
        const {index} from = ({index})blockIdx.y * p.share;
        const {index} end = from + p.share < p.packs ? from + p.share : p.packs;
        {index} at = from + lane;
        for (; at + {last_ahead} * p.lanes < end; at += {ahead} * p.lanes) {{
            {many}
        }}
        for (; at < end; at += p.lanes) {{
            {one}
        }}
        {tail}
    }}
    shared[threadIdx.x] = total;
    join_lanes(shared, lane, p.lanes, {apart});
    if (lane == 0 && output < p.outputs) {{
        if (p.splits > 1) ((A*)p.parts)[(i64)blockIdx.y * p.outputs + output] = shared[threadIdx.x];
        else store(p, output, shared[threadIdx.x]);
    }}
}}
extern "C" __global__ void __launch_bounds__({threads}) reduce_end(const Args p) {{
    __shared__ A shared[{threads}];
    const u32 results = {threads} / p.end_lanes;
    const u32 lane = threadIdx.x / results, mine = threadIdx.x % results;
    const {index} output = ({index})blockIdx.x * results + mine;
    A total = J::none();
    if (output < p.outputs) {{
        for (u32 part = lane; part < p.splits; part += p.end_lanes) {{
            total = J::join(total, ((const A*)p.parts)[(i64)part * p.outputs + output]);
        }}
    }}
    shared[threadIdx.x] = total;
    join_lanes(shared, lane, p.end_lanes, results);
    if (lane == 0 && output < p.outputs) store(p, output, shared[threadIdx.x]);
}}
"""


def reduce_fields(reduction: Reduction, operands: int, kept: Walk, inner: Walk) -> list[Field]:
    """The fields of the kernels' arguments."""
    names = [f"x{i}" for i in range(operands)]
    each, finish = reduction.each, reduction.finish
    index = "i64" if _wide(kept, inner) else "u32"
    return [
        *((name, "void*") for name in (*names, "y0", "parts")),
        *number_fields([each.steps[at].dtype for at in each.numbers]),
        *number_fields([finish.steps[at].dtype for at in finish.numbers], "m"),
        *((name, index) for name in ("outputs", "packs", "share", "first", "terms")),
        *((name, "u32") for name in ("lanes", "splits", "end_lanes")),
        *walk_fields(kept, (*names, "y0"), "k_"),
        *walk_fields(inner, names, "r_"),
    ]


def reduce_text(reduction: Reduction, dtypes: Sequence[DType], kept: Walk, inner: Walk, along: bool) -> str:
    """The text of both kernels.

    Args:
        reduction: The computation.
        dtypes: The dtypes of the operands, then of the results.
        kept, inner: Walks over the results and over the terms.
        along: See :class:`~callboard.backends.cuda.elementwise.shape.Shape`.
    """
    count = len(dtypes) - 1
    used = sorted({step.value for step in reduction.each.steps if step.function == "operand"})
    names = [f"x{i}" for i in used]
    wide = _wide(kept, inner)
    index, offset = ("i64", "i64") if wide else ("u32", "i32")
    ahead = max(1, min(8, IN_FLIGHT // (inner.pack * max(dtypes[i].itemsize for i in used))))
    programs = (reduction.each, reduction.finish)
    files = max((headers(program) for program in programs), key=len)
    kept_offsets = [f"{offset} {', '.join(f'b_{name} = 0' for name in names)};", "{"]
    kept_offsets += [*offsets_text(kept, names, "output", "k_", "b_{}"), "}"]
    tail = _tail(reduction, dtypes, inner, used, index) if inner.pack > 1 and len(inner.extents) == 1 else []
    total, result = reduction.total, reduction.result
    body = DATA.format(
        function=reduction.function,
        held=HELD[reduction.accumulator.name],
        arguments=arguments_text(reduce_fields(reduction, count, kept, inner)),
        element=element_text(reduction.each),
        finish=element_text(reduction.finish, "finish", "m"),
        index=index,
        offset=offset,
        result_offset=" ".join(offsets_text(kept, ["y0"], "output", "k_", "o_{}")),
        result=HELD[result.name],
        total=HELD[total.name],
        stored_result=STORED[result.name],
        stored_y=stored(result, "y"),
        threads=THREADS,
        lane="threadIdx.x % p.lanes" if along else "threadIdx.x / results",
        mine="threadIdx.x / p.lanes" if along else "threadIdx.x % results",
        apart="1" if along else "results",
        kept_offsets=_indented(kept_offsets, 8),
        ahead=ahead,
        last_ahead=ahead - 1,
        many=_indented(_terms(reduction, dtypes, inner, used, offset, index, ahead), 12),
        one=_indented(_terms(reduction, dtypes, inner, used, offset, index, 1), 12),
        tail=_indented(tail, 8),
    )
    return "\n".join([*(data_text(name).decode() for name in (*files, "reductions.cuh")), body])


def _wide(kept: Walk, inner: Walk) -> bool:
    return kept.wide or inner.wide or kept.packs * inner.packs * inner.pack >= 1 << 31


def _terms(
    reduction: Reduction,
    dtypes: Sequence[DType],
    inner: Walk,
    used: Sequence[int],
    offset: str,
    index: str,
    ahead: int,
) -> list[str]:
    """Lines that load a number of packs and join their values."""
    names = [f"x{i}" for i in used]
    kinds = {i: f"Pack<{STORED[dtypes[i].name]}, {1 if inner.repeated[i] else inner.pack}>" for i in used}
    lines = [f"{kinds[i]} x{i}[{ahead}];" for i in used]
    lines += ["#pragma unroll", f"for (int k = 0; k < {ahead}; k++) {{"]
    lines += [f"    {offset} {', '.join(f'f_{name} = b_{name}' for name in names)};"]
    lines += [f"    {line}" for line in offsets_text(inner, names, "at + k * p.lanes", "r_", "f_{}")]
    for i in used:
        lines.append(f"    x{i}[k] = *(const {kinds[i]}*)((const {STORED[dtypes[i].name]}*)p.x{i} + f_x{i});")
    lines += ["}", "#pragma unroll", f"for (int k = 0; k < {ahead}; k++) {{"]
    lines += ["    #pragma unroll", f"    for (int j = 0; j < {inner.pack}; j++) {{"]
    given = [loaded(dtypes[i], f"x{i}[k].at[{'0' if inner.repeated[i] else 'j'}]") for i in used]
    lines += [f"        {HELD[reduction.accumulator.name]} y;", f"        element({', '.join(['p', *given, 'y'])});"]
    place = f"(i64)(at + k * p.lanes) * {inner.pack} + j"
    return [*lines, f"        total = J::take(total, y, {place});", "    }", "}"]


def _tail(reduction: Reduction, dtypes: Sequence[DType], inner: Walk, used: Sequence[int], index: str) -> list[str]:
    """Lines for the terms after the last whole pack, which the last split has."""
    given = [
        loaded(dtypes[i], f"((const {STORED[dtypes[i].name]}*)p.x{i})[b_x{i}{'' if inner.repeated[i] else ' + at'}]")
        for i in used
    ]
    return [
        "if (blockIdx.y == p.splits - 1) {",
        "    for (at = p.first + lane; at < p.terms; at += p.lanes) {",
        f"        {HELD[reduction.accumulator.name]} y;",
        f"        element({', '.join(['p', *given, 'y'])});",
        "        total = J::take(total, y, (i64)at);",
        "    }",
        "}",
    ]


def _indented(lines: Sequence[str], by: int) -> str:
    return f"\n{' ' * by}".join(lines)
