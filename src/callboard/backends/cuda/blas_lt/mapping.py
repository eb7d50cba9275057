"""A message as cuBLASLt takes it: column-major, so with the factors in each other's place.

A row-major matrix is, read column-major, its transpose: ``out.T = op(b).T @ op(a).T``. cuBLASLt's ``A`` is our ``b``,
and its bias, one number for each row of a column-major result, is one for each of our columns.
"""

from typing import Any, NamedTuple

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout
from callboard.core.op import Outputs
from callboard.core.operand import Operand
from callboard.kernel.blas_lt import MatmulAux, MatmulBgrad
from callboard.kernel.blas_lt.checks import Stack, block_scales, is_fp8, scale_dtype, scale_kind, stack
from callboard.kernel.blas_lt.product import Product

__all__ = [
    "CUDA_TYPE",
    "EPILOGUE",
    "POINTERS",
    "Mapping",
    "addend_type",
    "aux_dtype",
    "bias_field",
    "layout_of_field",
    "mapping_of",
    "pointer_mode",
    "scale_modes",
    "writes_aux",
]

CUDA_TYPE = {"f16": 2, "bf16": 14, "f32": 0, "f64": 1, "i8": 3, "i32": 10, "f8_e4m3": 28, "f8_e5m2": 29}
"""``cudaDataType``."""
COMPUTE_32F, COMPUTE_64F, COMPUTE_32I, COMPUTE_32F_FAST_TF32 = 68, 70, 72, 77

EPILOGUE = {
    "none": 1,
    "relu": 2,
    "bias": 4,
    "relu_bias": 6,
    "gelu": 32,
    "gelu_bias": 36,
    "relu_aux": 130,
    "relu_aux_bias": 134,
    "drelu": 136,
    "drelu_bgrad": 152,
    "gelu_aux": 160,
    "gelu_aux_bias": 164,
    "dgelu": 192,
    "dgelu_bgrad": 208,
    "bgrad_b": 256,  # of cuBLASLt's A
    "bgrad_a": 512,
}
"""``cublasLtEpilogue_t``."""
SCALE_MODE = {"tensor": 0, "outer": 3, "block_1d": 4, "block_2d": 5}
"""``cublasLtMatmulMatrixScale_t``."""

POINTERS = {
    "bias": "BIAS_POINTER",
    "bias_grad": "BIAS_POINTER",
    "aux": "EPILOGUE_AUX_POINTER",
    "scale_a": "B_SCALE_POINTER",
    "scale_b": "A_SCALE_POINTER",
    "scale_out": "D_SCALE_POINTER",
    "amax": "AMAX_D_POINTER",
}
"""The descriptor attribute of each operand that is not a matrix of the product."""


class Mapping(NamedTuple):
    """The product of a message.

    Attributes:
        a, b: The factors.
        out: Layout of the result.
        m, n, k: Extents, row-major.
        batch: Matrices of the result.
        scale: dtype of alpha and beta.
        compute: ``cublasComputeType_t``.
        trans_a, trans_b: ``cublasOperation_t`` of our factors: 1 where column-major memory has to be transposed.
    """

    a: Stack
    b: Stack
    out: Layout
    m: int
    n: int
    k: int
    batch: int
    scale: DType
    compute: int
    trans_a: int
    trans_b: int


def layout_of_field(op: Product[Any], made: Outputs, name: str) -> Layout | None:
    """Return the layout of an operand that is given, or of an output that is allocated."""
    given: Operand | None = getattr(op, name, None)
    return made.get(name) if given is None else given.layout


def mapping_of(op: Product[Any], made: Outputs) -> Mapping:
    """Map the product of a message to a call of cuBLASLt."""
    a, b = stack(op, "a", op.a.layout), stack(op, "b", op.b.layout)
    out = layout_of_field(op, made, "out")
    assert out is not None
    m, n = out.shape[-2:]
    k = a.form.rows if op.transpose_a else a.form.cols
    factor = op.a.dtype.name
    compute = COMPUTE_64F if factor == "f64" else COMPUTE_32I if factor == "i8" else COMPUTE_32F
    if op.tf32:
        compute = COMPUTE_32F_FAST_TF32
    return Mapping(
        a,
        b,
        out,
        m,
        n,
        k,
        out.shape[0] if out.ndim == 3 else 1,
        scale_dtype(op.a.dtype, out.dtype),
        compute,
        int(a.form.transposed != op.transpose_a),
        int(b.form.transposed != op.transpose_b),
    )


def scale_modes(op: Product[Any], mapping: Mapping) -> tuple[int, int]:
    """``cublasLtMatmulMatrixScale_t`` of ``a`` and ``b``."""
    modes = []
    for scale, outer, transposed in ((op.scale_a, mapping.m, False), (op.scale_b, mapping.n, True)):
        kind = None if scale is None else scale_kind(block_scales(scale.shape, transposed), outer, mapping.k)
        modes.append(SCALE_MODE[kind or "tensor"])
    return modes[0], modes[1]


def addend_type(op: Product[Any], out: DType) -> int:
    """``cudaDataType`` of C: that of the result, but for fp8, which is added to in bf16."""
    if op.c is not None:
        return CUDA_TYPE[op.c.dtype.name]
    return CUDA_TYPE["bf16" if is_fp8(out) else out.name]


def bias_field(op: Product[Any]) -> str | None:
    """The operand that cuBLASLt's bias pointer names."""
    if isinstance(op, MatmulBgrad):
        return "bias_grad"
    return "bias" if op.traits.bias else None


def aux_dtype(op: Product[Any], made: Outputs) -> DType | None:
    """Return the dtype of GELU's auxiliary array; None if there is none."""
    if not op.traits.aux or op.traits.activation != "gelu":
        return None
    layout = layout_of_field(op, made, "aux")
    return DTYPES["bf16"] if layout is None else layout.dtype


def pointer_mode(op: Product[Any]) -> int:
    """Return the ``cublasLtPointerMode_t`` of alpha and beta: 1 if they are on the device."""
    return int(isinstance(op.alpha, Operand) or isinstance(op.beta, Operand))


def writes_aux(op: Product[Any]) -> bool:
    """True if the auxiliary array is an output."""
    return isinstance(op, MatmulAux)
