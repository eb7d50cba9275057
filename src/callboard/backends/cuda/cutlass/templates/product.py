"""The text of a product's kernel."""

from typing import NamedTuple

from callboard.backends.cuda.cutlass.hopper import (
    BYTES,
    CHECK,
    ELEMENTS,
    FACTORS,
    HARDWARE,
    HEADERS,
    RUN,
    far,
    function_text,
    tiled,
)
from callboard.backends.cuda.cutlass.templates.arrays import addend_of, leaves_of
from callboard.backends.cuda.cutlass.templates.call import FIELDS
from callboard.backends.cuda.cutlass.templates.scales import blocks_text, scales_of
from callboard.backends.cuda.cutlass.text import functions_text
from callboard.backends.cuda.cutlass.tilings import Tiling
from callboard.kernel.cutlass import Gemm
from callboard.kernel.cutlass.fused import Problem

__all__ = ["INPUT", "RESULTS", "Mainloop", "gemm_text"]


class Input(NamedTuple):
    """What the tensor cores make of factors of a dtype.

    Attributes:
        element: The factors; f32 is loaded as TF32.
        sums: The accumulators.
    """

    element: str
    sums: str = "float"


class Mainloop(NamedTuple):
    """What multiplies, beside CUTLASS's mainloop for products: text that a kernel with another one has in its place.

    Attributes:
        text: Defines ``CollectiveMainloop``.
        headers: Lines that include what it needs.
        call: Defines the argument of the functions, a struct derived from ``Call``.
        name: Of that struct.
        inner, depth: Type and value of the inner extent.
        beside: What the mainloop is given behind both factors.
    """

    text: str
    headers: str
    call: str
    name: str
    inner: str
    depth: str
    beside: str


INPUT = {name: Input(element) for name, element in FACTORS.items()}
INPUT |= {"f32": Input("float"), "i8": Input("int8_t", "int32_t")}
"""By the dtype of the factors."""
RESULTS = {"float": ELEMENTS, "int32_t": ELEMENTS | {"i32": "int32_t"}}
"""Dtypes of results, by the accumulators."""

EXACT = """
template <class T> struct Epilogue {
    struct Arguments { float alpha, beta; };
};
template <int N> struct Epilogue<cutlass::Array<int, N>> {
    using Values = cutlass::Array<int, N>;
    using Arguments = Epilogue<int>::Arguments;
    CUTLASS_DEVICE Values operator()(Values const& acc, Arguments const& p) const {
        Values found;
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < N; ++i) {
            found[i] = p.alpha == 1.f ? acc[i] : to_i32(p.alpha * (float)acc[i]);
        }
        return found;
    }
};
"""
"""Of i32 results without an epilogue: sums that f32 cannot hold pass unchanged."""
SPLIT = """\
    using Mode = decltype(given.scheduler.decomposition_mode);
    given.scheduler.splits = p.splits;
    given.scheduler.decomposition_mode = p.splits > 1 ? Mode::SplitK : Mode::StreamK;
"""

MAINLOOP = """\
using CollectiveMainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, ElementA, {layout_a}, {align_a},
    ElementB, {layout_b}, {align_b}, {sums}, TileOfBlock, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
        sizeof(typename CollectiveEpilogue::SharedStorage))>,
    cutlass::gemm::KernelTmaWarpSpecialized{schedule}{scaled}>::CollectiveOp;
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
{scaling}using Parts = cutlass::epilogue::collective::detail::EpilogueDescriptor<
    TileOfBlock, cutlass::epilogue::collective::EpilogueTileAuto, ElementC, ElementD, Schedule>;
template <class Element>
using Held = cutlass::epilogue::collective::detail::AuxLoadDescriptor<Parts, cutlass::layout::RowMajor, Element>;
template <class Element>
using Matrix = fusion::Sm90AuxLoad<Parts::StagesC, typename Parts::EpilogueTile, Element, Across,
    typename Held<Element>::SmemLayoutAtom, typename Held<Element>::CopyOpS2R>;
using Tree = fusion::Sm90EVT<
    fusion::Sm90Compute<callboard::Epilogue, ElementD, {computed}, cutlass::FloatRoundStyle::round_to_nearest>{leaves}>;
using CollectiveEpilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileOfBlock, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, {sums}, float,
    ElementC, cutlass::layout::RowMajor, {align_c}, ElementD, cutlass::layout::RowMajor, {align_out},
    Schedule, Tree>::CollectiveOp;
{mainloop}using Kernel = cutlass::gemm::kernel::GemmUniversal<
    cute::Shape<int, int, {inner}, int>, CollectiveMainloop, CollectiveEpilogue, cutlass::gemm::{scheduler}>;
using Device = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

static typename Device::Arguments arguments_of(const {call}& p) {{
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
        {{(int)p.m, (int)p.n, {depth}, (int)p.batch}},
        {{(const ElementA*)p.a, a, (const ElementB*)p.b, b{beside}}},
        {{tree, (const {addend}*){c_at}, c, (ElementD*)p.out, out}},
        hardware}};
    given.scheduler.max_swizzle_size = p.swizzle;
    given.scheduler.raster_order = (decltype(given.scheduler.raster_order))p.raster;
{split}    return given;
}}

extern "C" long long callboard_workspace(const {call}* call) {{
    const auto arguments = arguments_of(*call);
{check}    return (long long)Device::get_workspace_size(arguments);
}}

extern "C" int callboard_launch(const {call}* call, void* workspace, void* stream) {{
    Device device;
    const cutlass::Status made = device.initialize(arguments_of(*call), workspace, (cudaStream_t)stream);
{run}"""


def gemm_text(op: Gemm, problem: Problem, tiling: Tiling, instead: Mainloop | None = None) -> str:
    """The source of a message's kernel; extents, steps and the order of tiles are arguments of its functions.

    Args:
        op: The message, with placeholders.
        problem: Its shapes.
        tiling: How the result is divided.
        instead: Another mainloop than that of products.
    """
    made, size = INPUT[op.a.dtype.name], op.a.dtype.itemsize
    out = RESULTS[made.sums][problem.result.dtype.name]
    exact = out == "int32_t" and not op.epilogue and op.c is None
    scales = scales_of(op)
    blocks = blocks_text(scales)
    beside = [] if blocks else [scale.name for scale in scales]
    addend = addend_of(op)
    leaves = leaves_of(op, addend)
    given = [leaf.arguments for leaf in leaves]
    if len(leaves) > 3:  # CUTLASS keeps the arguments of more than four nodes in a tuple
        given = [f"typename {leaf.type}::Arguments{leaf.arguments}" for leaf in leaves]
        given.append("callboard::Epilogue<float>::Arguments{p.alpha, p.beta}")
    else:
        given.append("{p.alpha, p.beta}")
    (axis_a, _), (axis_b, _) = far(op.a.layout), far(op.b.layout)
    major = "cutlass::layout::RowMajor", "cutlass::layout::ColumnMajor"
    pair = "cute::tuple<{}, typename Scales::LayoutSF{}>" if blocks else "{}"
    loaded = None if addend.dtype is None else ELEMENTS[addend.dtype.name]
    mainloop = instead or Mainloop(
        text=MAINLOOP.format(
            layout_a=pair.format(major[axis_a], "A"),
            layout_b=pair.format(major[axis_b], "B"),
            align_a=BYTES // size,
            align_b=BYTES // size,
            sums=made.sums,
            scaled="FP8BlockScaledAccum" if blocks else "",
            schedule=tiling.schedule,
        ),
        headers="",
        call="using callboard::Call;\n",
        name="Call",
        inner="int",
        depth="(int)p.k",
        beside="".join(f", (const float*)p.{one.name}, layout_of_{one.name}(p)" for one in scales if blocks),
    )
    body = BODY.format(
        mainloop=mainloop.text,
        inner=mainloop.inner,
        depth=mainloop.depth,
        beside=mainloop.beside,
        call=mainloop.name,
        scheduler="StreamKScheduler" if tiling.splits else "PersistentScheduler",
        hardware=HARDWARE,
        check=CHECK,
        run=RUN,
        a=made.element,
        b=made.element,
        c=loaded or "void",
        addend=loaded or out,
        c_at="p.c" if addend.input is None else f"p.inputs[{addend.input}]",
        c_step="p.c_step" if addend.input is None else f"p.rows[{addend.input}]",
        c_batch="p.c_batch" if addend.input is None else f"p.batches[{addend.input}]",
        out=out,
        sums=made.sums,
        computed=made.sums if exact else "float",
        leaves="".join(f",\n    {leaf.type}" for leaf in leaves),
        tree=", ".join(given),
        align_c=BYTES // (addend.dtype or problem.result.dtype).itemsize,
        align_out=BYTES // problem.result.dtype.itemsize,
        step_a=axis_a,
        step_b=1 - axis_b,  # CUTLASS's b is [n, k]
        scaling=blocks,
        split=SPLIT if tiling.splits else "",
        warps="Cooperative" if tiling.schedule == "Cooperative" else "",  # of the epilogue
        **tiled(tiling, size),
    )
    function = EXACT if exact else function_text(op, beside)
    own = ["namespace callboard {", functions_text("float"), function, FIELDS, "}"]
    return "\n".join([HEADERS + mainloop.headers, *own]) + "\n" + mainloop.call + body
