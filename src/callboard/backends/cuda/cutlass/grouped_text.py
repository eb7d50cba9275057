"""Products of groups of rows as C++ of CUTLASS 3 for Hopper: a kernel that finds the groups, and one that multiplies.

The extents of the groups are known on the device only. So the first kernel writes the address, extents and steps of
each group's matrices where the second, CUTLASS's array kernel, reads them; it also fills the rows that are in no group.
The tiles are those that PyTorch chooses for its grouped product (``_grouped_mm``).
"""

import ctypes
from ctypes import c_float, c_int, c_int64, c_void_p
from typing import Any

import msgspec

from callboard.backends.cuda.cutlass.hopper import (
    BYTES,
    CHECK,
    ELEMENTS,
    FACTORS,
    HARDWARE,
    HEADERS,
    RUN,
    far_axis,
    far_step,
    function_text,
    tiled,
)
from callboard.backends.cuda.cutlass.text import functions_text
from callboard.backends.cuda.cutlass.tilings import Tiling
from callboard.core.layout import Layout
from callboard.kernel.cutlass import GroupedGemm
from callboard.kernel.cutlass.fused import Problem

__all__ = ["GroupedCall", "compiled_for", "grouped_text", "is_whole", "put_extents", "why_no_groups"]


class GroupedCall(ctypes.Structure):
    """``GroupedCall`` of the generated text; steps in elements."""

    _fields_ = (
        *((name, c_void_p) for name in ("a", "b", "offsets", "out", "group")),
        *((name, c_int64) for name in ("rows", "n", "k", "groups", "a_step", "b_step", "b_group", "out_step")),
        ("swizzle", c_int),
        ("raster", c_int),
        ("alpha", c_float),
        ("beta", c_float),
    )


FIELDS = """
struct GroupedCall {
    const void *a, *b;
    const int* offsets;
    void* out;
    int* group;  // of each row, -1 for none; null: not wanted
    long long rows, n, k, groups, a_step, b_step, b_group, out_step;
    int swizzle, raster;
    float alpha, beta;
};
"""

BODY = """
namespace fusion = cutlass::epilogue::fusion;
using Shape = cutlass::gemm::GroupProblemShape<cute::Shape<int, int, int>>;
using TileOfBlock = cute::Shape<cute::Int<{tile_m}>, cute::Int<{tile_n}>, cute::Int<{tile_k}>>;
using Cluster = cute::Shape<cute::Int<{cluster_m}>, cute::Int<{cluster_n}>, cute::_1>;
using ElementA = {a};
using ElementB = {b};
using ElementD = {out};
using Function = callboard::Epilogue<cutlass::Array<float, 1>>;
using Tree = fusion::Sm90EVT<
    fusion::Sm90Compute<callboard::Epilogue, ElementD, float, cutlass::FloatRoundStyle::round_to_nearest>,
    fusion::Sm90AccFetch>;
using CollectiveEpilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileOfBlock, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float,
    void, cutlass::layout::RowMajor*, {align_out}, ElementD, cutlass::layout::RowMajor*, {align_out},
    cutlass::epilogue::PtrArrayTmaWarpSpecialized{schedule}, Tree>::CollectiveOp;
using CollectiveMainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, ElementA, cutlass::layout::RowMajor*, {align},
    ElementB, {layout_b}*, {align}, float, TileOfBlock, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
        sizeof(typename CollectiveEpilogue::SharedStorage))>,
    cutlass::gemm::KernelPtrArrayTmaWarpSpecialized{schedule}>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape, CollectiveMainloop, CollectiveEpilogue>;
using Device = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

struct Groups {{  // one of each for every group
    typename Shape::UnderlyingProblemShape* extents;
    const ElementA** a;
    const ElementB** b;
    ElementD** out;
    typename Kernel::InternalStrideA* a_steps;
    typename Kernel::InternalStrideB* b_steps;
    typename Kernel::InternalStrideD* out_steps;
}};

static long long placed(char* at, long long groups, Groups& found) {{
    char* const start = at;
    const auto take = [&](auto*& place) {{
        place = reinterpret_cast<std::remove_reference_t<decltype(place)>>(at);
        at += (groups * sizeof(*place) + 255) / 256 * 256;
    }};
    take(found.extents);
    take(found.a);
    take(found.b);
    take(found.out);
    take(found.a_steps);
    take(found.b_steps);
    take(found.out_steps);
    return at - start;
}}

__global__ void __launch_bounds__(256) prepare(const GroupedCall p, const Groups found) {{
    if (blockIdx.x == 0) {{
        for (int g = threadIdx.x; g < p.groups; g += 256) {{
            const int low = max(p.offsets[g], 0), high = (int)min((long long)p.offsets[g + 1], p.rows);
            const long long top = min((long long)low, p.rows);
            found.extents[g] = {{max(high - low, 0), (int)p.n, (int)p.k}};
            found.a[g] = (const ElementA*)p.a + top * p.a_step;
            found.b[g] = (const ElementB*)p.b + g * p.b_group;
            found.out[g] = (ElementD*)p.out + top * p.out_step;
            cute::get<0>(found.a_steps[g]) = p.a_step;
            cute::get<{step_b}>(found.b_steps[g]) = p.b_step;
            cute::get<0>(found.out_steps[g]) = p.out_step;
        }}
    }}
    const int lane = threadIdx.x % 32;
    for (long long first = blockIdx.x * 256ll + threadIdx.x - lane; first < p.rows; first += gridDim.x * 256ll) {{
        const long long row = first + lane;
        int group = -1;
        for (int g = 0; g < p.groups; ++g) {{
            group = row >= p.offsets[g] && row < p.offsets[g + 1] ? g : group;
        }}
        if (p.group && row < p.rows) {{
            p.group[row] = group;
        }}
        for (unsigned none = __ballot_sync(0xffffffff, group < 0 && row < p.rows); none; none &= none - 1) {{
            cutlass::Array<float, 1> zero;
            zero[0] = 0.f;
            const float value = Function{{}}(zero, {{p.alpha, p.beta}})[0];
            ElementD* const target = (ElementD*)p.out + (first + __ffs(none) - 1) * p.out_step;
            for (long long i = lane; i < p.n; i += 32) {{
                target[i] = cutlass::NumericConverter<ElementD, float>{{}}(value);
            }}
        }}
    }}
}}

static typename Device::Arguments arguments_of(const GroupedCall& p, const Groups& found) {{
{hardware}    typename Tree::Arguments tree{{{{}}, {{p.alpha, p.beta}}}};
    typename Device::Arguments given{{
        cutlass::gemm::GemmUniversalMode::kGrouped,
        {{(int)p.groups, found.extents, nullptr}},
        {{found.a, found.a_steps, found.b, found.b_steps}},
        {{tree, nullptr, nullptr, found.out, found.out_steps}},
        hardware}};
    given.scheduler.max_swizzle_size = p.swizzle;
    given.scheduler.raster_order = (decltype(given.scheduler.raster_order))p.raster;
    return given;
}}

extern "C" long long callboard_workspace(const GroupedCall* call) {{
    Groups found;
    const long long own = placed(nullptr, call->groups, found);
    const auto arguments = arguments_of(*call, found);
{check}    return own + (long long)Device::get_workspace_size(arguments);
}}

extern "C" int callboard_launch(const GroupedCall* call, void* workspace, void* stream) {{
    Groups found;
    const long long own = placed((char*)workspace, call->groups, found);
    const long long blocks = (call->rows + 255) / 256;
    prepare<<<(unsigned)(blocks < 1 ? 1 : blocks > 1056 ? 1056 : blocks), 256, 0, (cudaStream_t)stream>>>(*call, found);
    Device device;
    const cutlass::Status made =
        device.initialize(arguments_of(*call, found), (char*)workspace + own, (cudaStream_t)stream);
{run}"""


def why_no_groups(op: GroupedGemm, problem: Problem) -> str | None:
    """The reason why there is no template for a message, with a cure; None if there is one."""
    if op.a.dtype.name not in ("f16", "bf16") or op.b.dtype is not op.a.dtype:
        return f"a is {op.a.dtype}; the templates of groups have f16 and bf16"
    if not problem.result.size or not op.b.size:
        return "there is nothing to multiply; leave engine out"
    if far_axis(op.a.layout) != 0:
        return f"a is {op.a.layout!r}; its rows must have no gaps: pass dev.copy(a)"
    layouts = [("a", op.a.layout), ("b", op.b.layout), *([("out", op.out.layout)] if op.out is not None else [])]
    for name, layout in layouts:
        if far_axis(layout) is None or any(s != 1 and s * layout.dtype.itemsize % BYTES for s in layout.strides):
            return (
                f"{name} is {layout!r}; its rows (or columns) must be adjacent and start at multiples of {BYTES} bytes"
            )
    if op.out is not None and far_axis(op.out.layout) != 0:
        return f"out is {op.out.layout!r}; its rows must have no gaps"
    if problem.result.shape[-1] * op.a.dtype.itemsize % BYTES:
        return f"out has {problem.result.shape[-1]} columns; its rows must be whole units of {BYTES} bytes"
    return None


def is_whole(op: GroupedGemm) -> bool:
    """True if the template can also execute the epilogue: it reads no array, and reduces nothing."""
    return not op.inputs and not op.reductions and op.c is None and op.result_dtype.name in ELEMENTS


def compiled_for(op: GroupedGemm) -> GroupedGemm:
    """The message that the template executes: ``op``, or the one whose result is its sums in f32."""
    if is_whole(op):
        return op
    none: dict[str, Any] = {"epilogue": (), "inputs": (), "reductions": (), "c": None, "out": None}
    return msgspec.structs.replace(op, **none, alpha=1.0, beta=0.0, out_dtype="f32")


def grouped_text(op: GroupedGemm, tiling: Tiling) -> str:
    """The source of the kernels of a message that :func:`compiled_for` gives."""
    size, out = op.a.dtype.itemsize, op.result_dtype
    axis = far_axis(op.b.layout)
    assert axis is not None
    body = BODY.format(
        hardware=HARDWARE,
        check=CHECK,
        run=RUN,
        a=FACTORS[op.a.dtype.name],
        b=FACTORS[op.b.dtype.name],
        out=ELEMENTS[out.name],
        align=BYTES // size,
        align_out=BYTES // out.itemsize,
        layout_b="cutlass::layout::RowMajor" if axis == 0 else "cutlass::layout::ColumnMajor",
        step_b=1 - axis,
        **tiled(tiling, size),
    )
    headers = HEADERS + '#include "cutlass/gemm/group_array_problem_shape.hpp"\n'
    own = ["namespace callboard {", functions_text("float"), function_text(op), FIELDS, "}"]
    return "\n".join([headers, *own, "using callboard::GroupedCall;", body])


def put_extents(call: Any, op: GroupedGemm, out: Layout) -> None:
    """The extents and steps of a message."""
    (call.rows, call.k), (call.groups, _, call.n) = op.a.shape, op.b.shape
    call.a_step, call.b_step, call.out_step = far_step(op.a.layout), far_step(op.b.layout), far_step(out)
    call.b_group = op.b.strides[0]
