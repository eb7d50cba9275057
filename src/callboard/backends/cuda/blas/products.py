"""Matrix products as cuBLAS takes them: column-major, with types and the kind of arithmetic spelled out.

A row-major matrix is, read column-major, its transpose. So for a row-major result the factors change places:
``out.T = op(b).T @ op(a).T``, and every transposition flag counts relative to the memory.
"""

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from callboard.backends.cuda.blas.scalars import Factor, device_getters, host_cell, pointers
from callboard.backends.cuda.launching import kernel_launcher
from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout
from callboard.kernel.blas.strides import Matrix

if TYPE_CHECKING:
    from callboard.backends.cuda.blas.cublas import Cublas, Run
    from callboard.backends.cuda.handle import Handle
    from callboard.backends.cuda.stream import CudaStream

__all__ = [
    "CUDA_TYPE",
    "PREFIX",
    "Product",
    "Steps",
    "Types",
    "gemm_run",
    "kernel_run",
    "operation",
    "product_of",
    "scale_dtype",
    "short_gemm",
    "steps_of",
    "types_of",
]

PREFIX = {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}
"""Name prefixes of the classic functions by dtype."""
CUDA_TYPE = {"f16": 2, "bf16": 14, "f32": 0, "f64": 1, "c64": 4, "c128": 5, "i8": 3, "i32": 10}
"""``cudaDataType``."""
COMPUTE_32F, COMPUTE_64F, COMPUTE_32I, COMPUTE_32F_FAST_TF32 = 68, 70, 72, 77
ALGO_DEFAULT = -1
N, T, C = 0, 1, 2
"""``cublasOperation_t``."""


class Types(NamedTuple):
    """Types of a product.

    Attributes:
        factor, result: ``cudaDataType`` of the factors and of the result.
        compute: ``cublasComputeType_t``.
        scale: dtype of alpha and beta.
        classic: ``"sgemm"`` … if that function does it, else None: ``gemm_ex``.
    """

    factor: int
    result: int
    compute: int
    scale: DType
    classic: str | None


class Product(NamedTuple):
    """A product in column-major order: ``result[m, n] = op(first)[m, k] @ op(second)[k, n]``.

    Attributes:
        swapped: ``first`` is the op's ``b``.
    """

    op_first: int
    op_second: int
    m: int
    n: int
    k: int
    ld_first: int
    ld_second: int
    ld_out: int
    swapped: bool


class Steps(NamedTuple):
    """Steps of one matrix (of a stack) in elements."""

    row: int
    col: int
    batch: int = 0


def steps_of(layout: Layout, transpose: bool = False) -> Steps:
    """Steps of a matrix, or of its transpose."""
    row, col = layout.strides
    return Steps(col, row) if transpose else Steps(row, col)


def scale_dtype(dtype: DType) -> DType:
    """The dtype of alpha and beta beside arrays of ``dtype``."""
    if dtype.name in ("f16", "bf16"):
        return DTYPES["f32"]
    return DTYPES["i32"] if dtype.name == "i8" else dtype


def types_of(dtype: DType, tf32: bool | None) -> Types:
    """Types of the product of two arrays of ``dtype``."""
    code = CUDA_TYPE[dtype.name]
    scale = scale_dtype(dtype)
    if dtype.name == "i8":
        return Types(code, CUDA_TYPE["i32"], COMPUTE_32I, scale, None)
    if dtype.name in ("f64", "c128"):
        return Types(code, code, COMPUTE_64F, scale, f"{PREFIX[dtype.name]}gemm")
    if tf32:
        return Types(code, code, COMPUTE_32F_FAST_TF32, scale, None)
    prefix = PREFIX.get(dtype.name)
    return Types(code, code, COMPUTE_32F, scale, prefix and f"{prefix}gemm")


def operation(transposed: bool, conj: bool, dtype: DType) -> int:
    """``cublasOperation_t`` of an operand that is (not) transposed relative to its memory."""
    if not transposed:
        return N  # a conjugate alone is not an operation of cuBLAS; such ops have been refused or go another way
    return C if conj and dtype.is_complex else T


def product_of(
    dtype: DType, a: Matrix, b: Matrix, out: Matrix, transpose: tuple[bool, bool], conj: tuple[bool, bool]
) -> Product:
    """``out = op(a) @ op(b)`` column-major.

    Args:
        dtype: The dtype of the factors.
        a, b, out: Layouts in memory.
        transpose, conj: Whether ``op`` transposes, and conjugates, ``a`` and ``b``.
    """
    op_a = operation(a.transposed ^ transpose[0] ^ out.transposed, conj[0], dtype)
    op_b = operation(b.transposed ^ transpose[1] ^ out.transposed, conj[1], dtype)
    k = a.rows if transpose[0] else a.cols
    if out.transposed:
        return Product(op_a, op_b, out.rows, out.cols, k, a.ld, b.ld, out.ld, swapped=False)
    return Product(op_b, op_a, out.cols, out.rows, k, b.ld, a.ld, out.ld, swapped=True)


def gemm_run(
    cublas: "Cublas", types: Types, product: Product, factors: tuple[Factor, Factor]
) -> "Callable[[int, int, int, Any, Any], None]":
    """``run(a, b, out, alpha, beta)``: ``out = alpha * op(a) @ op(b) + beta * out``."""
    op1, op2, m, n, k, ld1, ld2, ld_out, swapped = product
    head = (cublas.handle, op1, op2, m, n, k)
    extents = (m, n, k, ld1, ld2, ld_out)
    hand = pointers(cublas, factors)
    if types.classic is not None:
        classic = cublas.function(types.classic, *extents)

        def run_classic(a: int, b: int, out: int, alpha: Any, beta: Any) -> None:
            p_alpha, p_beta = hand(alpha, beta)
            first, second = (b, a) if swapped else (a, b)
            classic(*head, p_alpha, first, ld1, second, ld2, p_beta, out, ld_out)

        return run_classic
    gemm_ex = cublas.function("gemm_ex", *extents)
    factor, result, compute = types.factor, types.result, types.compute

    def run_ex(a: int, b: int, out: int, alpha: Any, beta: Any) -> None:
        p_alpha, p_beta = hand(alpha, beta)
        first, second = (b, a) if swapped else (a, b)
        gemm_ex(
            *head, p_alpha, first, factor, ld1, second, factor, ld2, p_beta, out, result, ld_out, compute, ALGO_DEFAULT
        )

    return run_ex


def short_gemm(cublas: "Cublas", types: Types, product: Product) -> "Run | None":
    """``launch(stream, a, b, out, c, alpha, beta)`` for the most frequent product of all, None if it is another.

    Classic types, numbers for factors, nothing added. One closure with everything bound: about 0.2 µs beside the call
    of the binding.
    """
    if types.classic is None:
        return None
    op1, op2, m, n, k, ld1, ld2, ld_out, swapped = product
    fn = cublas.function(types.classic, m, n, k, ld1, ld2, ld_out)
    handle, failure, name = cublas.handle, cublas.failure, types.classic
    at_alpha, put, alpha_cell = host_cell(types.scale)
    at_beta, _, beta_cell = host_cell(types.scale)
    last: Any = None

    def launch(stream: "CudaStream", a: int, b: int, out: int, c: None, alpha: Any, beta: Any) -> None:
        nonlocal last
        if stream is not cublas.stream:
            cublas.bind(stream)
        if cublas.mode != 0:
            cublas.point(0)
        if alpha != last or not alpha:  # -0.0 is another number than 0.0
            put(alpha)
            last = alpha
        try:
            if swapped:
                fn(handle, op1, op2, m, n, k, at_alpha, b, ld1, a, ld2, at_beta, out, ld_out)
            else:
                fn(handle, op1, op2, m, n, k, at_alpha, a, ld1, b, ld2, at_beta, out, ld_out)
        except failure as e:
            raise cublas.error(e, name) from None

    launch.keeps = alpha_cell, beta_cell  # type: ignore[attr-defined] # cuBLAS is given their addresses
    return launch


class ProductArgs(ctypes.Structure):
    """``ProductArgs`` of ``data/blas.cu``."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("a", "b", "c", "out", "alpha", "beta")),
        *((name, ctypes.c_int64) for name in ("m", "n", "k", "batch")),
        *((f"{name}_{axis}", ctypes.c_int64) for name in ("a", "b", "c", "out") for axis in ("row", "col", "batch")),
        ("conj_a", ctypes.c_int),
        ("conj_b", ctypes.c_int),
    )


def kernel_run(
    handle: "Handle",
    dtype: DType,
    extents: tuple[int, int, int],
    a: Steps,
    b: Steps,
    c: Steps | None,
    out: Steps,
    factors: tuple[Factor, Factor],
    *,
    conj: tuple[bool, bool] = (False, False),
    batch: int = 1,
) -> "Run":
    """``run(a, b, out, c, alpha, beta)`` by a custom kernel, for products that cuBLAS lacks. Any strides.

    ``out = alpha * a @ b + beta * c`` with ``extents`` ``(m, n, k)``; addresses of element 0. The kernel is compiled
    here if it has not been.
    """
    m, n, k = extents
    args = ProductArgs(m=m, n=n, k=k, batch=batch, conj_a=conj[0], conj_b=conj[1])
    for name, steps in (("a", a), ("b", b), ("c", c or Steps(0, 0)), ("out", out)):
        for axis in ("row", "col", "batch"):
            setattr(args, f"{name}_{axis}", getattr(steps, axis))
    gets = device_getters(handle, factors)
    blocks = min(-(-m // 16) * -(-n // 16) * batch, 1 << 16)
    function = handle.device.kernels.get("blas", f"product_{dtype.name}")
    launch = kernel_launcher(handle.driver, function, blocks, (16, 16), args)

    def run(a: int, b: int, out: int, c: int | None, alpha: Any, beta: Any) -> None:
        args.a, args.b, args.out, args.c = a, b, out, c
        args.alpha, args.beta = gets[0](alpha), gets[1](beta)
        launch(handle.stream.native)

    return run
