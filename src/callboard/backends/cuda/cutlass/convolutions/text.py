"""A convolution with its epilogue as C++ of CUTLASS 3 for Hopper: one kernel, an implicit matrix product.

CUTLASS's mainloop for convolutions loads patches by TMA, but it comes with a kernel whose blocks compute one tile each.
So it is put into the text of the product that :func:`flattened` gives, in the place of that product's mainloop: blocks
compute tiles one after the other, and one group of warps is at its epilogue while the other multiplies. Rows are
pixels, and the inner axis is (channels, s, r). ``wgrad`` is a batch of products, one for each tap of the filters; its
inner axis, the pixels, is divided among blocks (stream-K).
"""

from ctypes import c_int
from typing import Any

from callboard.backends.cuda.cutlass.convolutions.flat import flattened
from callboard.backends.cuda.cutlass.hopper import tiled
from callboard.backends.cuda.cutlass.templates import Call, Mainloop, gemm_text
from callboard.backends.cuda.cutlass.tilings import Tiling
from callboard.kernel.cutlass import Conv
from callboard.kernel.cutlass.fused import Problem

__all__ = ["ConvCall", "conv_text", "put_geometry"]


class ConvCall(Call):
    """``ConvCall`` of the generated text."""

    _fields_ = tuple((name, c_int * n) for name, n in (("images", 4), ("filters", 4), ("moves", 6)))


CALL = """
struct ConvCall : callboard::Call {
    int images[4], filters[4];
    int moves[6];  // stride, padding and dilation, of height and width
};
"""

MAINLOOP = """\
constexpr auto KIND = cutlass::conv::Operator::k{kind};
using TileOfConv = cute::Shape<{tile}>;
using Built = cutlass::conv::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, KIND, ElementA, cutlass::layout::TensorNHWC, 8,
    ElementB, cutlass::layout::TensorNHWC, 8, float, TileOfConv, Cluster,
    cutlass::conv::collective::StageCountAutoCarveout<static_cast<int>(
        sizeof(typename CollectiveEpilogue::SharedStorage))>,
    cutlass::conv::KernelImplicitTmaWarpSpecializedSm90{schedule}>;
using Implicit = cutlass::conv::collective::CollectiveConv<
    cutlass::conv::MainloopSm90TmaGmmaWarpSpecializedImplicitGemm<KIND, Built::PipelineStages, 2, Cluster>,
    TileOfConv, ElementA, ElementB, typename Built::TiledMma,
    cutlass::conv::collective::detail::Sm90ImplicitGemmTileTraits<
        typename Built::GmemTiledCopyA, typename Built::SmemLayoutA>,
    cutlass::conv::collective::detail::Sm90ImplicitGemmTileTraits<
        typename Built::GmemTiledCopyB, typename Built::SmemLayoutB>>;
using Geometry = typename Implicit::ProblemShape;

struct CollectiveMainloop : Implicit {{  // as the kernels of products expect it
    struct DispatchPolicy : Implicit::DispatchPolicy {{
        using Schedule = cutlass::gemm::KernelTmaWarpSpecialized{schedule};
    }};
    using TileShape = cute::Shape<cute::Int<{tile_m}>, cute::Int<{tile_n}>, {inner}>;
    using StrideA = cutlass::gemm::TagToStrideA_t<{layout_a}>;
    using StrideB = cutlass::gemm::TagToStrideB_t<{layout_b}>;
    static constexpr int NumProducerThreadEvents = 1;
    struct Arguments {{
        ElementA const* a;
        StrideA a_step;
        ElementB const* b;
        StrideB b_step;
        Geometry geometry;
    }};
    struct Params : Implicit::Params {{
        int s, r;
    }};

    template <class Extents>
    static Params to_underlying_arguments(Extents const&, Arguments const& p, void* scratch) {{
        const int r = p.geometry.{filters}[1], s = p.geometry.{filters}[2];
        return {{Implicit::to_underlying_arguments(p.geometry, {{p.a, p.b}}, scratch), s, r}};
    }}

    template <class Extents>
    static bool can_implement(Extents const&, Arguments const& p) {{
        return Implicit::can_implement(p.geometry, {{p.a, p.b}});
    }}

    // The kernel reads the numbers of tiles of the first two tensors; load() is given all four.
    template <class Extents>
    CUTLASS_DEVICE auto load_init(Extents const& extents, Params const& p) {{
        using namespace cute;
        auto [m, n, k, l] = extents;
        auto tiles = Implicit::load_init(make_tuple(m, {columns}, k, _1{{}}), p);
        auto a = shape(get<0>(tiles));
        auto b = shape(get<1>(tiles));
        return make_tuple(make_identity_tensor(append<5>(a, _1{{}})),
            make_identity_tensor(make_shape(get<0>(b), get<1>(b), {across}, get<3>(b), l)), get<0>(tiles),
            get<1>(tiles));
    }}

    template <class Tiles, class Tile, class Depth>
    CUTLASS_DEVICE void load(Params const& p, MainloopPipeline pipeline, PipelineState state, Tiles const& tiles,
        Tile const& tile, Depth depth, int count, int thread, uint32_t rank, TensorStorage& shared) {{
        using namespace cute;
        auto [m, n, k, l] = tile;
        auto at = make_coord(m, {column}, _, _0{{}});
        Implicit::load(p, pipeline, state, make_tuple(get<2>(tiles), get<3>(tiles)), at, depth, count, thread, rank,
            shared);
    }}
}};

static Geometry geometry_of(const ConvCall& p) {{
    const int *const i = p.images, *const f = p.filters, *const m = p.moves;
    return {{cutlass::conv::Mode::kCrossCorrelation, {{i[0], i[1], i[2], i[3]}}, {{f[0], f[1], f[2], f[3]}},
        {{m[2], m[3]}}, {{m[2], m[3]}}, {{m[0], m[1]}}, {{m[4], m[5]}}, 1}};
}}

"""

PIXELS = {
    "inner": "cute::Shape<cute::Int<{tile_k}>>",
    "tile": "cute::Int<{tile_m}>, cute::Int<{tile_n}>, cute::Shape<cute::Int<{tile_k}>>",
    "filters": "shape_B",
    "columns": "n",
    "across": "get<2>(b)",
    "column": "n",
    "extents": "cute::Shape<int, int, int>",
    "layout_a": "cutlass::layout::RowMajor",
}
"""Of ``fprop`` and ``dgrad``: rows are pixels, and the inner axis is that of patches."""
TAPS = {
    "inner": "cute::Int<{tile_k}>",
    "tile": "cute::Int<{tile_m}>, cute::Shape<cute::Int<{tile_n}>>, cute::Shape<cute::Int<{tile_k}>>",
    "filters": "shape_C",
    "columns": "make_shape(n, p.s, p.r)",
    "across": "get<2, 0>(b)",
    "column": "make_coord(n, l % p.s, l / p.s)",
    "extents": "int",
    "depth": "(int)p.k",
    "layout_a": "cutlass::layout::ColumnMajor",
}
"""Of ``wgrad``: columns are those of patches, channels for each tap, and the inner axis is that of pixels."""
ROWS, COLUMNS = {"layout_b": "cutlass::layout::RowMajor"}, {"layout_b": "cutlass::layout::ColumnMajor"}
KINDS = {
    "fprop": {"kind": "Fprop", "depth": "{p.filters[3], p.filters[2], p.filters[1]}", **PIXELS, **COLUMNS},
    "dgrad": {"kind": "Dgrad", "depth": "{p.filters[0], p.filters[2], p.filters[1]}", **PIXELS, **ROWS},
    "wgrad": {"kind": "Wgrad", **TAPS, **ROWS},
}
INCLUDES = """\
#include "cutlass/conv/convolution.h"
#include "cutlass/conv/convnd_problem_shape.hpp"
#include "cutlass/conv/dispatch_policy.hpp"
#include "cutlass/conv/collective/collective_builder.hpp"
"""


def conv_text(op: Conv, problem: Problem, tiling: Tiling) -> str:
    """The source of a message's kernel; extents, strides, paddings and dilations are arguments of its functions."""
    flat, fields = flattened(op, problem), tiled(tiling, op.a.dtype.itemsize)
    own = {name: text.format(**fields) if "tile_" in text else text for name, text in KINDS[op.kind].items()}
    mainloop = Mainloop(
        text=MAINLOOP.format(**own, **fields),
        headers=INCLUDES,
        call=CALL,
        name="ConvCall",
        inner=own["extents"],
        depth=own["depth"],
        beside=", geometry_of(p)",
    )
    return gemm_text(flat, flat.problem(), tiling, mainloop)


def put_geometry(call: Any, op: Conv) -> None:
    """The extents of images and filters, and how filters move."""
    images, filters, _ = op.shapes()
    call.images[:], call.filters[:] = images, filters
    call.moves[:] = (*op.stride, *op.padding, *op.dilation)
