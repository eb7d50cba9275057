"""What the templates of CUTLASS 3 for Hopper share: dtypes, headers, layouts, the function of the epilogue."""

from collections.abc import Sequence
from typing import Any

from callboard.backends.cuda.cutlass.text import value_text
from callboard.backends.cuda.cutlass.tilings import Tiling
from callboard.core.layout import Layout
from callboard.kernel.cutlass.epilogue import EpilogueNode
from callboard.kernel.cutlass.fused import Fused

__all__ = [
    "BYTES",
    "CHECK",
    "ELEMENTS",
    "FACTORS",
    "HARDWARE",
    "HEADERS",
    "RUN",
    "batch_step",
    "far",
    "far_axis",
    "far_step",
    "far_steps",
    "function_text",
    "tiled",
]

BYTES = 16
"""TMA loads and stores start at multiples of this many bytes."""
FACTORS = {"f16": "cutlass::half_t", "bf16": "cutlass::bfloat16_t", "f8_e4m3": "cutlass::float_e4m3_t"}
ELEMENTS = FACTORS | {"f32": "float", "i8": "int8_t"}

HEADERS = """
#include "cutlass/cutlass.h"
#include "cutlass/numeric_types.h"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp"
"""

HARDWARE = """\
    static int processors = 0;
    int device = 0;
    cudaGetDevice(&device);
    if (!processors) {
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    }
    cutlass::KernelHardwareInfo hardware;
    hardware.device_id = device;
    hardware.sm_count = processors;
"""
"""The device of the calling thread, as `hardware`."""

CHECK = """\
    if (Device::can_implement(arguments) != cutlass::Status::kSuccess) {
        return -1;
    }
"""
"""Of `arguments`, when the scratch is measured."""

RUN = """\
    if (made != cutlass::Status::kSuccess) {
        return (int)made;
    }
    return (int)device.run((cudaStream_t)stream);
}
"""
"""The end of a launch, behind the status `made`."""

FAST = """
__device__ float inverse(float x) {
    float found;
    asm("rcp.approx.f32 %0, %1;" : "=f"(found) : "f"(x));
    return found;
}
template <> __device__ float function_sigmoid<float>(float x) { return inverse(1.f + __expf(-x)); }
template <> __device__ float function_silu<float>(float x) { return x * inverse(1.f + __expf(-x)); }
template <> __device__ float function_gelu<float>(float x) {
    return x * function_sigmoid<float>(1.5957691216057308f * (x + 0.044715f * x * x * x));  // (1 + tanh(y)) / 2
}
"""
"""Functions by the GPU's approximate instructions, right to five digits: for results of two bytes and less."""


def far(layout: Layout) -> Any:
    """The axis that is not adjacent, 0 or 1 of the last two, and its step; None if neither axis is adjacent."""
    row, col = layout.strides[-2:]
    rows, cols = layout.shape[-2:]
    if col == 1 or cols == 1:
        return 0, row if rows > 1 else cols
    return (1, col if cols > 1 else rows) if row == 1 or rows == 1 else None


def far_steps(layout: Layout) -> list[int]:
    """The steps that are not 1."""
    found = far(layout)
    return [found[1], batch_step(layout)] if found else []


def far_step(layout: Layout) -> int:
    """The step of the axis that is not adjacent."""
    found = far(layout)
    assert found is not None
    return int(found[1])


def far_axis(layout: Layout) -> int | None:
    """Which of the last two axes is not adjacent, 0 or 1; None if neither is adjacent."""
    found = far(layout)
    return None if found is None else int(found[0])


def batch_step(layout: Layout) -> int:
    """The distance of matrices; 0 for one that serves all."""
    return layout.strides[0] if len(layout.shape) == 3 and layout.shape[0] > 1 else 0


def tiled(tiling: Tiling, itemsize: int) -> dict[str, Any]:
    """The fields of a text that name a tiling."""
    return {
        "tile_m": tiling.rows,
        "tile_n": tiling.columns,
        "tile_k": tiling.depth // itemsize,
        "cluster_m": tiling.cluster[0],
        "cluster_n": tiling.cluster[1],
        "schedule": tiling.schedule,
    }


def function_text(op: Fused[Any], scales: Sequence[str] = ()) -> str:
    """The function of ``Sm90Compute``, element by element.

    Args:
        op: The message.
        scales: Names of the arrays that the sums are multiplied by; parameters behind the sums.
    """
    places = {name: at for at, name in enumerate(op.names)}  # the names themselves are no part of the binary's key
    arrays: Sequence[str] = [
        "acc",
        *scales,
        *(["add"] if op.c is not None else []),
        *(f"in{at}" for at in places.values()),
    ]

    def read(node: EpilogueNode) -> str:
        return f"in{places[node.name]}[i]"

    lines = [FAST] if op.result_dtype.itemsize <= 2 else []
    lines += ["template <class T> struct Epilogue {", "    struct Arguments { float alpha, beta; };", "};"]
    lines += ["template <int N> struct Epilogue<cutlass::Array<float, N>> {"]
    lines += ["    using Values = cutlass::Array<float, N>;", "    using Arguments = Epilogue<float>::Arguments;"]
    taken = ", ".join([*(f"Values const& {name}" for name in arrays), "Arguments const& p"])
    lines += [f"    CUTLASS_DEVICE Values operator()({taken}) const {{", "        Values found;"]
    lines += ["        CUTLASS_PRAGMA_UNROLL", "        for (int i = 0; i < N; ++i) {"]
    add = " + (p.beta != 0.f ? p.beta * add[i] : 0.f)" if op.c is not None else ""
    scaled = "".join(f" * {name}[i]" for name in scales)
    lines += [f"            const A x = p.alpha * acc[i]{scaled}{add};"]
    lines += [f"            const A v{at} = {value_text(node, read)};" for at, node in enumerate(op.epilogue)]
    lines += [f"            found[i] = {_ranged(op, f'v{len(op.epilogue) - 1}' if op.epilogue else 'x')};"]
    return "\n".join([*lines, "        }", "        return found;", "    }", "};"])


def _ranged(op: Fused[Any], value: str) -> str:
    """A value that is exact in the result's dtype, or that the conversion rounds as we do."""
    return f"(A)to_i8({value})" if op.result_dtype.name == "i8" else value
