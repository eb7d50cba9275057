"""Products of groups of rows as C++ of CUTLASS 3 for Hopper: a kernel that finds the groups, and one that multiplies.

The extents of the groups are known on the device only. So the first kernel writes the address, extents and steps of
each group's matrices where the second, CUTLASS's array kernel, reads them; it also fills the rows that are in no group.
The tiles are those that PyTorch chooses for its grouped product (``_grouped_mm``).

The arrays of the epilogue are leaves of CUTLASS's tree. One matrix takes the place of CUTLASS's ``c``, whose loads run
ahead; arrays with a number for each row, and further matrices, have an address for each group.
"""

import ctypes
from ctypes import c_float, c_int, c_int64, c_void_p
from typing import Any, NamedTuple

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
from callboard.backends.cuda.cutlass.templates import MAX_INPUTS
from callboard.backends.cuda.cutlass.text import functions_text
from callboard.backends.cuda.cutlass.tilings import Tiling
from callboard.backends.cuda.kernels import data_text
from callboard.core.layout import Layout
from callboard.kernel.cutlass import GroupedGemm
from callboard.kernel.cutlass.epilogue import INPUTS
from callboard.kernel.cutlass.fused import Problem

__all__ = ["ADDEND", "GroupedCall", "ReadArray", "grouped_text", "leaves_of", "put_extents", "sums_of", "why_no_groups"]

DTYPES = ("f16", "bf16", "f8_e4m3")
"""Of the factors."""
ADDEND = MAX_INPUTS
"""The place of ``c`` behind the inputs."""


class GroupedCall(ctypes.Structure):
    """``GroupedCall`` of the generated text; steps in elements."""

    _fields_ = (
        *((name, c_void_p) for name in ("a", "b", "offsets", "out", "group")),
        *((name, c_int64) for name in ("rows", "n", "k", "groups", "a_step", "b_step", "b_group", "out_step")),
        ("arrays", c_void_p * (ADDEND + 1)),
        ("array_steps", c_int64 * (ADDEND + 1)),
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
    const void* arrays[9];  // of the epilogue; the last one is c
    long long array_steps[9];  // of rows; of groups, where there is a number for each column
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
using ElementC = {c};
using ElementD = {out};
using Along = cute::Stride<cute::_0, cute::_1, int64_t>;
using Down = cute::Stride<cute::_1, cute::_0, cute::_0>;
using Single = cutlass::Array<float, 1>;
using Function = callboard::Epilogue<Single>;
using Tree = fusion::Sm90EVT<
    fusion::Sm90Compute<callboard::Epilogue, ElementD, float, cutlass::FloatRoundStyle::round_to_nearest>,
    fusion::Sm90AccFetch{leaves}>;
using CollectiveEpilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileOfBlock, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float,
    ElementC, cutlass::layout::RowMajor*, {align_c}, ElementD, cutlass::layout::RowMajor*, {align_out},
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
{declared}}};

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
{taken}    return at - start;
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
{placed}        }}
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
            const long long at = first + __ffs(none) - 1;
            ElementD* const target = (ElementD*)p.out + at * p.out_step;
            for (long long i = lane; i < p.n; i += 32) {{
                const float value = Function{{}}(Single{{0.f}}{read}, {{p.alpha, p.beta}})[0];
                target[i] = cutlass::NumericConverter<ElementD, float>{{}}(value);
            }}
        }}
    }}
}}

static typename Device::Arguments arguments_of(const GroupedCall& p, const Groups& found) {{
{hardware}    typename Tree::Arguments tree{{{tree}}};
    typename Device::Arguments given{{
        cutlass::gemm::GemmUniversalMode::kGrouped,
        {{(int)p.groups, found.extents, nullptr}},
        {{found.a, found.a_steps, found.b, found.b_steps}},
        {{tree, {ahead}, found.out, found.out_steps}},
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
    if op.a.dtype.name not in DTYPES or op.b.dtype is not op.a.dtype:
        return f"a is {op.a.dtype} and b {op.b.dtype}; the templates of groups have two of {', '.join(DTYPES)}"
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
    if op.a.dtype.itemsize == 1 and far_axis(op.b.layout) != 1:
        return f"b is {op.b.layout!r}; fp8 matrices need their inner axis adjacent: pass dev.copy(b.mT).mT"
    if op.out is not None and far_axis(op.out.layout) != 0:
        return f"out is {op.out.layout!r}; its rows must have no gaps"
    if problem.result.shape[-1] * op.a.dtype.itemsize % BYTES:
        return f"out has {problem.result.shape[-1]} columns; its rows must be whole units of {BYTES} bytes"
    return None


class ReadArray(NamedTuple):
    """An array of an epilogue that a template reads.

    Attributes:
        place: In the arrays of :class:`GroupedCall`.
        kind: ``"matrix"``, ``"column"``, ``"row"`` or ``"tensor"``.
        layout: Of the array.
        ahead: It takes the place of CUTLASS's ``c``.
    """

    place: int
    kind: str
    layout: Layout
    ahead: bool

    @property
    def element(self) -> str:
        """Its dtype in C++."""
        return ELEMENTS.get(self.layout.dtype.name, "double")


def leaves_of(op: GroupedGemm) -> list[ReadArray] | None:
    """The arrays of the epilogue, ``c`` first; None if a template cannot execute the epilogue with its product."""
    width = op.result_dtype.itemsize
    if op.reductions or len(op.inputs) > MAX_INPUTS or op.result_dtype.name not in ELEMENTS:
        return None
    if op.b.shape[2] * width % BYTES:
        return None
    kinds = {node.name: node.kind for node in op.epilogue if node.kind in INPUTS}
    given = [(ADDEND, "matrix", op.c.layout)] if op.c is not None else []
    given += [(at, kinds[name], one.layout) for at, (name, one) in enumerate(zip(op.names, op.inputs, strict=True))]
    if not all(_is_read(kind, layout) for _, kind, layout in given):
        return None
    matrices = [at for at, kind, layout in given if kind == "matrix" and layout.dtype.name in ELEMENTS]
    return [ReadArray(*one, ahead=one[0] == matrices[0] if matrices else False) for one in given]


def _is_read(kind: str, layout: Layout) -> bool:
    """True if a leaf reads an array of this layout: without gaps, rows of a matrix by whole units."""
    if kind == "tensor":
        return True
    if layout.shape[-1] > 1 and layout.strides[-1] != 1:
        return False
    return kind != "matrix" or layout.shape[0] < 2 or layout.strides[0] * layout.dtype.itemsize % BYTES == 0


def sums_of(op: GroupedGemm) -> GroupedGemm:
    """The message whose result is the sums of another one, in f32."""
    none: dict[str, Any] = {"epilogue": (), "inputs": (), "reductions": (), "c": None, "out": None}
    return msgspec.structs.replace(op, **none, alpha=1.0, beta=0.0, out_dtype="f32")


def grouped_text(op: GroupedGemm, tiling: Tiling) -> str:
    """The source of the kernels of a message whose arrays have :func:`leaves_of`."""
    leaves = leaves_of(op)
    assert leaves is not None
    size, out = op.a.dtype.itemsize, op.result_dtype
    axis = far_axis(op.b.layout)
    assert axis is not None
    ahead = next((leaf for leaf in leaves if leaf.ahead), None)
    body = BODY.format(
        hardware=HARDWARE,
        check=CHECK,
        run=RUN,
        a=FACTORS[op.a.dtype.name],
        b=FACTORS[op.b.dtype.name],
        c="void" if ahead is None else ahead.element,
        out=ELEMENTS[out.name],
        align=BYTES // size,
        align_c=BYTES // (out if ahead is None else ahead.layout.dtype).itemsize,
        align_out=BYTES // out.itemsize,
        layout_b="cutlass::layout::RowMajor" if axis == 0 else "cutlass::layout::ColumnMajor",
        step_b=1 - axis,
        **_tree(leaves),
        **tiled(tiling, size),
    )
    headers = HEADERS + '#include "cutlass/gemm/group_array_problem_shape.hpp"\n'
    own = [functions_text("float"), function_text(op), FIELDS]
    if any(leaf.kind == "matrix" and not leaf.ahead for leaf in leaves):
        own.append(data_text("cutlass_rows.cuh").decode())
    return "\n".join([headers, "namespace callboard {", *own, "}", "using callboard::GroupedCall;", body])


def _tree(leaves: list[ReadArray]) -> dict[str, str]:
    """The parts of a text that are of its epilogue's arrays."""
    nodes: list[str] = []
    given = ["{}"]
    places: list[str] = []
    placed, read, ahead = "", "", "nullptr, nullptr"
    for leaf in leaves:
        at, element = leaf.place, leaf.element
        array, step = f"((const {element}*)p.arrays[{at}])", f"p.array_steps[{at}]"
        if leaf.kind in ("matrix", "row"):  # the rows of a group start at an address of their own
            places.append(f"const {element}** array{at}")
            placed += f"            found.array{at}[g] = {array} + top * {step};\n"
        if leaf.ahead:
            places.append(f"typename Kernel::InternalStrideC* steps{at}")
            placed += f"            cute::get<0>(found.steps{at}[g]) = {step};\n"
            ahead = f"found.array{at}, found.steps{at}"
        node, value, element_at = {
            "tensor": (
                f"fusion::Sm90ScalarBroadcast<{element}>",
                f"{{{{{element}(0)}}, {{{array}}}, {{}}}}",
                "0",
            ),
            "column": (
                f"fusion::Sm90RowBroadcast<0, TileOfBlock, {element}, {element}, Along>",
                f"{{{array}, {element}(0), Along{{cute::_0{{}}, cute::_1{{}}, {step}}}}}",
                "i",
            ),
            "row": (
                f"fusion::Sm90ColBroadcast<0, TileOfBlock, {element}*, {element}, Down>",
                f"{{found.array{at}, {element}(0), Down{{}}}}",
                f"at * {step}",
            ),
            "matrix": (
                f"fusion::Sm90SrcFetch<{element}>" if leaf.ahead else f"callboard::GroupedMatrix<{element}>",
                "{}" if leaf.ahead else f"{{found.array{at}, {step}}}",
                f"at * {step} + i",
            ),
        }[leaf.kind]
        nodes.append(node)
        given.append(value)
        read += f", Single{{(float){array}[{element_at}]}}"
    given.append("{p.alpha, p.beta}")
    if len(nodes) > 2:  # CUTLASS keeps the arguments of more than four nodes in a tuple
        names = ["fusion::Sm90AccFetch", *nodes]
        given = [f"typename {name}::Arguments{value}" for name, value in zip(names, given, strict=False)]
        given.append("callboard::Epilogue<float>::Arguments{p.alpha, p.beta}")
    fields = [place.rpartition(" ")[2] for place in places]
    return {
        "leaves": "".join(f",\n    {node}" for node in nodes),
        "declared": "".join(f"    {place};\n" for place in places),
        "taken": "".join(f"    take(found.{field});\n" for field in fields),
        "placed": placed,
        "read": read,
        "tree": ", ".join(given),
        "ahead": ahead,
    }


def put_extents(call: Any, op: GroupedGemm, out: Layout) -> None:
    """The extents and steps of a message."""
    (call.rows, call.k), (call.groups, _, call.n) = op.a.shape, op.b.shape
    call.a_step, call.b_step, call.out_step = far_step(op.a.layout), far_step(op.b.layout), far_step(out)
    call.b_group = op.b.strides[0]
    for leaf in leaves_of(op) or ():
        layout = leaf.layout
        if leaf.kind == "matrix" or len(layout.shape) == 2:
            call.array_steps[leaf.place] = layout.strides[0]
        elif leaf.kind == "row":
            call.array_steps[leaf.place] = 1
