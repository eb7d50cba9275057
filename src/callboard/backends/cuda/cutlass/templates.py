"""A product with its epilogue as C++ of CUTLASS 3 for Hopper: one kernel, and the C functions that launch it.

The epilogue is one node of CUTLASS's visitor tree, ``Sm90Compute``, whose function is generated from ours; the arrays
are its leaves. It is computed in f32 on the accumulators in registers.
"""

import ctypes
from ctypes import c_float, c_int, c_int64, c_void_p

from callboard.backends.cuda.cutlass.hopper import (
    BYTES,
    CHECK,
    ELEMENTS,
    FACTORS,
    HARDWARE,
    HEADERS,
    RUN,
    far,
    far_steps,
    function_text,
    tiled,
)
from callboard.backends.cuda.cutlass.text import functions_text
from callboard.backends.cuda.cutlass.tilings import Tiling
from callboard.kernel.cutlass import Gemm
from callboard.kernel.cutlass.epilogue import INPUTS
from callboard.kernel.cutlass.fused import Problem

__all__ = ["MAX_INPUTS", "Call", "gemm_text", "why_no_template"]

MAX_INPUTS = 8


class Call(ctypes.Structure):
    """``Call`` of the generated text: a call's addresses, extents, steps in elements and numbers."""

    _fields_ = (
        *((name, c_void_p) for name in ("a", "b", "c", "out")),
        ("inputs", c_void_p * MAX_INPUTS),
        *((name, c_int64) for name in ("m", "n", "k", "batch")),
        *((name, c_int64) for name in ("a_step", "a_batch", "b_step", "b_batch")),
        *((name, c_int64) for name in ("c_step", "c_batch", "out_step", "out_batch")),
        ("rows", c_int64 * MAX_INPUTS),
        ("batches", c_int64 * MAX_INPUTS),
        ("swizzle", c_int),
        ("raster", c_int),
        ("alpha", c_float),
        ("beta", c_float),
    )


FIELDS = """
struct Call {
    const void *a, *b, *c;
    void* out;
    const void* inputs[8];
    long long m, n, k, batch, a_step, a_batch, b_step, b_batch, c_step, c_batch, out_step, out_batch;
    long long rows[8], batches[8];
    int swizzle, raster;
    float alpha, beta;
};
"""

BODY = """
namespace fusion = cutlass::epilogue::fusion;
using TileOfBlock = cute::Shape<cute::Int<{tile_m}>, cute::Int<{tile_n}>, cute::Int<{tile_k}>>;
using Cluster = cute::Shape<cute::Int<{cluster_m}>, cute::Int<{cluster_n}>, cute::_1>;
using Schedule = cutlass::epilogue::TmaWarpSpecialized{warps};
using Along = cute::Stride<cute::_0, cute::_1, int64_t>;
using Down = cute::Stride<cute::_1, cute::_0, int64_t>;
using Across = cute::Stride<int64_t, cute::_1, int64_t>;
using ElementA = {a};
using ElementB = {b};
using ElementC = {c};
using ElementD = {out};
using Parts = cutlass::epilogue::collective::detail::EpilogueDescriptor<
    TileOfBlock, cutlass::epilogue::collective::EpilogueTileAuto, ElementC, ElementD, Schedule>;
template <class Element>
using Held = cutlass::epilogue::collective::detail::AuxLoadDescriptor<Parts, cutlass::layout::RowMajor, Element>;
template <class Element>
using Matrix = fusion::Sm90AuxLoad<Parts::StagesC, typename Parts::EpilogueTile, Element, Across,
    typename Held<Element>::SmemLayoutAtom, typename Held<Element>::CopyOpS2R>;
using Tree = fusion::Sm90EVT<
    fusion::Sm90Compute<callboard::Epilogue, ElementD, float, cutlass::FloatRoundStyle::round_to_nearest>{leaves}>;
using CollectiveEpilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileOfBlock, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float,
    ElementC, cutlass::layout::RowMajor, {align_c}, ElementD, cutlass::layout::RowMajor, {align_out},
    Schedule, Tree>::CollectiveOp;
using CollectiveMainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, ElementA, {layout_a}, {align_a},
    ElementB, {layout_b}, {align_b}, float, TileOfBlock, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
        sizeof(typename CollectiveEpilogue::SharedStorage))>,
    cutlass::gemm::KernelTmaWarpSpecialized{schedule}>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<
    cute::Shape<int, int, int, int>, CollectiveMainloop, CollectiveEpilogue, cutlass::gemm::PersistentScheduler>;
using Device = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

static typename Device::Arguments arguments_of(const Call& p) {{
    typename Kernel::StrideA a{{}};
    typename Kernel::StrideB b{{}};
    typename Kernel::StrideC c{{}};
    typename Kernel::StrideD out{{}};
    cute::get<{step_a}>(a) = p.a_step;
    cute::get<2>(a) = p.a_batch;
    cute::get<{step_b}>(b) = p.b_step;
    cute::get<2>(b) = p.b_batch;
    cute::get<0>(c) = {c_step};
    cute::get<2>(c) = {c_batch};
    cute::get<0>(out) = p.out_step;
    cute::get<2>(out) = p.out_batch;
    typename Tree::Arguments tree{{{tree}}};
{hardware}    typename Device::Arguments given{{
        cutlass::gemm::GemmUniversalMode::kGemm,
        {{(int)p.m, (int)p.n, (int)p.k, (int)p.batch}},
        {{(const ElementA*)p.a, a, (const ElementB*)p.b, b}},
        {{tree, (const {addend}*){c_at}, c, (ElementD*)p.out, out}},
        hardware}};
    given.scheduler.max_swizzle_size = p.swizzle;
    given.scheduler.raster_order = (decltype(given.scheduler.raster_order))p.raster;
    return given;
}}

extern "C" long long callboard_workspace(const Call* call) {{
    const auto arguments = arguments_of(*call);
{check}    return (long long)Device::get_workspace_size(arguments);
}}

extern "C" int callboard_launch(const Call* call, void* workspace, void* stream) {{
    Device device;
    const cutlass::Status made = device.initialize(arguments_of(*call), workspace, (cudaStream_t)stream);
{run}"""


def why_no_template(op: Gemm, problem: Problem) -> str | None:
    """The reason why there is no template for a message, with a cure; None if there is one."""
    dtype = problem.result.dtype
    if op.a.dtype.name not in FACTORS or op.b.dtype is not op.a.dtype:
        return f"a is {op.a.dtype}; its templates have {', '.join(FACTORS)}"
    if dtype.name not in ELEMENTS or (op.c is not None and op.c.dtype.name not in ELEMENTS):
        return f"out is {dtype}; its templates have {', '.join(ELEMENTS)}"
    if op.reductions:
        return "the epilogue has reductions; leave engine out"
    if len(op.inputs) > MAX_INPUTS:
        return f"the epilogue has {len(op.inputs)} arrays, its templates at most {MAX_INPUTS}"
    if op.a.dtype.itemsize == 1 and (far(op.a.layout)[0] != 0 or far(op.b.layout)[0] != 1):
        return "fp8 factors need their inner axis adjacent: a row-major, b transposed"
    out = problem.result if op.out is None else op.out.layout
    layouts = {"a": op.a.layout, "b": op.b.layout, "c": None if op.c is None else op.c.layout, "out": out}
    for name, layout in layouts.items():
        if layout is not None and (
            far(layout) is None or any(s * layout.dtype.itemsize % BYTES for s in far_steps(layout))
        ):
            return (
                f"{name} is {layout!r}; its rows (or columns) must be adjacent and start at multiples of {BYTES} bytes"
            )
    kinds = {node.name: node.kind for node in op.epilogue if node.kind in INPUTS}
    for name, one in zip(op.names, op.inputs, strict=True):
        if kinds[name] != "tensor" and one.shape[-1] > 1 and one.strides[-1] != 1:
            return f"{name} is {one.layout!r}; its last axis must have no gaps: pass dev.copy({name})"
        if kinds[name] == "matrix" and any(s * one.dtype.itemsize % BYTES for s in far_steps(one.layout)):
            return f"{name} is {one.layout!r}; its rows must start at multiples of {BYTES} bytes: pass dev.copy({name})"
    if problem.result.shape[-1] * min(dtype.itemsize, *(x.dtype.itemsize for x in op.inputs), 4) % BYTES:
        return f"out has {problem.result.shape[-1]} columns; rows of all arrays must be whole units of {BYTES} bytes"
    return None


def gemm_text(op: Gemm, problem: Problem, tiling: Tiling) -> str:
    """The source of a message's kernel; extents, steps and the order of tiles are arguments of its functions."""
    names = list(op.names)
    arrays = dict(zip(names, op.inputs, strict=True))
    kinds = {node.name: node.kind for node in op.epilogue if node.kind in INPUTS}
    out = ELEMENTS[problem.result.dtype.name]
    source = _source(op)
    leaves, given = ["fusion::Sm90AccFetch"], ["{}"]
    addend = None if op.c is None else op.c.dtype
    if op.c is not None:
        leaves.append(f"fusion::Sm90SrcFetch<{ELEMENTS[op.c.dtype.name]}>")
        given.append("{}")
    for i, name in enumerate(names):
        if i == source:
            addend = arrays[name].dtype
            leaf, value = f"fusion::Sm90SrcFetch<{ELEMENTS[addend.name]}>", "{}"
        else:
            leaf, value = _leaf(kinds[name], arrays[name].dtype.name, i)
        leaves.append(leaf)
        given.append(value)
    if len(leaves) > 3:  # CUTLASS keeps the arguments of more than four nodes in a tuple
        given = [f"typename {leaf}::Arguments{value}" for leaf, value in zip(leaves, given, strict=True)]
        given.append("callboard::Epilogue<float>::Arguments{p.alpha, p.beta}")
    else:
        given.append("{p.alpha, p.beta}")
    (axis_a, _), (axis_b, _) = far(op.a.layout), far(op.b.layout)
    major = "cutlass::layout::RowMajor", "cutlass::layout::ColumnMajor"
    size = op.a.dtype.itemsize
    body = BODY.format(
        hardware=HARDWARE,
        check=CHECK,
        run=RUN,
        a=FACTORS[op.a.dtype.name],
        b=FACTORS[op.b.dtype.name],
        c="void" if addend is None else ELEMENTS[addend.name],
        addend=out if addend is None else ELEMENTS[addend.name],
        c_at="p.c" if source is None else f"p.inputs[{source}]",
        c_step="p.c_step" if source is None else f"p.rows[{source}]",
        c_batch="p.c_batch" if source is None else f"p.batches[{source}]",
        out=out,
        leaves="".join(f",\n    {leaf}" for leaf in leaves),
        tree=", ".join(given),
        layout_a=major[axis_a],
        layout_b=major[axis_b],
        align_a=BYTES // size,
        align_b=BYTES // size,
        align_c=BYTES // (problem.result.dtype if addend is None else addend).itemsize,
        align_out=BYTES // problem.result.dtype.itemsize,
        step_a=axis_a,
        step_b=1 - axis_b,  # CUTLASS's b is [n, k]
        warps="Cooperative" if tiling.schedule == "Cooperative" else "",  # of the epilogue
        **tiled(tiling, size),
    )
    return "\n".join([HEADERS, "namespace callboard {", functions_text("float"), function_text(op), FIELDS, "}"]) + (
        "\nusing callboard::Call;\n" + body
    )


def _source(op: Gemm) -> int | None:
    """The position of the array that takes the place of ``c``, whose loads run ahead of the epilogue; None for none."""
    kinds = {node.name: node.kind for node in op.epilogue if node.kind in INPUTS}
    matrices = [
        at
        for at, (name, one) in enumerate(zip(op.names, op.inputs, strict=True))
        if kinds[name] == "matrix" and one.dtype.name in ELEMENTS
    ]
    return matrices[0] if matrices and op.c is None else None


def _leaf(kind: str, dtype: str, at: int) -> tuple[str, str]:
    """The node that loads an input, and its arguments."""
    element = ELEMENTS.get(dtype, "double")
    pointer = f"(const {element}*)p.inputs[{at}]"
    if kind == "tensor":
        return f"fusion::Sm90ScalarBroadcast<{element}>", f"{{{{{element}(0)}}, {{{pointer}}}, {{}}}}"
    step = f"p.batches[{at}]"
    if kind == "column":
        return (
            f"fusion::Sm90RowBroadcast<0, TileOfBlock, {element}, {element}, Along>",
            f"{{{pointer}, {element}(0), Along{{cute::_0{{}}, cute::_1{{}}, {step}}}}}",
        )
    if kind == "row":
        return (
            f"fusion::Sm90ColBroadcast<0, TileOfBlock, {element}, {element}, Down>",
            f"{{{pointer}, {element}(0), Down{{cute::_1{{}}, cute::_0{{}}, {step}}}}}",
        )
    return (
        f"Matrix<{element}>"
        if dtype in ELEMENTS
        else f"fusion::Sm90AuxLoad<0, void, {element}, Across, void, void, 1>",
        f"{{{pointer}, {element}(0), Across{{p.rows[{at}], cute::_1{{}}, {step}}}}}",
    )
