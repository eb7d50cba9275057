"""Calls of the level 3 ops. See :mod:`products` for row-major matrices in cuBLAS."""

from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.blas.level2 import matrix_at, triangle
from callboard.backends.cuda.blas.products import (
    PREFIX,
    gemm_run,
    kernel_run,
    operation,
    product_of,
    short_gemm,
    steps_of,
    types_of,
)
from callboard.backends.cuda.blas.scalars import factor_of, pointers
from callboard.backends.cuda.copies import copier
from callboard.backends.cuda.plans import nothing
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.core.operand import Operand
from callboard.kernel.blas import Geam, Gemm, Hemm, Her2k, Herk, Symm, Syr2k, Syrk, Trmm, Trsm

if TYPE_CHECKING:
    from callboard.backends.cuda.blas.cublas import Cublas, Run

__all__ = ["added", "aligned_for_i8", "geam", "gemm", "rank_2k", "rank_k", "triangular", "two_sided", "where_aligned"]

LEFT, RIGHT = 0, 1
NON_UNIT, UNIT = 0, 1


def gemm(cublas: "Cublas", op: Gemm) -> "Run":
    """``launch(stream, a, b, out, c, alpha, beta)``."""
    dtype = op.a.dtype
    out = op.infer()["out"] if op.out is None else op.out.layout
    m, n = out.shape
    k = op.a.shape[0] if op.transpose_a else op.a.shape[1]
    types = types_of(dtype, op.tf32)
    factors = (factor_of(op.alpha, types.scale), factor_of(op.beta, types.scale))
    form_a, form_b, form_out = matrix_at(op.a.layout), matrix_at(op.b.layout), matrix_at(out)
    flags = (op.transpose_a, op.transpose_b), (op.conj_a, op.conj_b)
    product = product_of(dtype, form_a, form_b, form_out, *flags)
    name = types.classic or "gemm_ex"
    if m == 0 or n == 0:
        return cublas.guarded(nothing, name)
    if op.c is None and k and not any(f.is_array for f in factors):
        short = short_gemm(cublas, types, product)
        if short is not None:
            return short
    run = None
    if k:
        run = added(cublas, gemm_run(cublas, types, product, factors), op.c, out, op.beta)
        if dtype.name != "i8":
            return cublas.guarded(run, name)
    kernel = kernel_run(
        cublas,
        dtype,
        (m, n, k),
        steps_of(op.a.layout, op.transpose_a),
        steps_of(op.b.layout, op.transpose_b),
        None if op.c is None else steps_of(op.c.layout),
        steps_of(out),
        factors,
        conj=flags[1],
    )
    aligned = run is not None and aligned_for_i8(product.m, product.n, k, form_a.ld, form_b.ld)
    return cublas.guarded(where_aligned(run, kernel) if run is not None and aligned else kernel, name)


def aligned_for_i8(*extents: int) -> bool:
    """True if cuBLAS multiplies i8 matrices of these extents and strides: multiples of 4 only."""
    return all(n % 4 == 0 for n in extents)


def where_aligned(run: "Run", kernel: "Run") -> "Run":
    """Take cuBLAS where both i8 factors also start at a multiple of 4 bytes, else the kernel."""

    def choose(a: int, b: int, out: int, c: int | None, alpha: Any, beta: Any) -> None:
        (kernel if (a | b) & 3 else run)(a, b, out, c, alpha, beta)

    return choose


def added(cublas: "Cublas", run: "Run", c: Operand | None, out: Layout, beta: Any) -> "Run":
    """``run(a, b, out, alpha, beta)`` as ``run(a, b, out, c, alpha, beta)``.

    cuBLAS adds in place, so ``c`` is copied into ``out`` first, unless it is ``out`` or is multiplied by 0.
    """
    if c is None:
        return lambda a, b, out, c, alpha, beta: run(a, b, out, alpha, beta)
    move = copier(cublas.driver, cublas.device.kernels, c.layout, out)
    always = isinstance(beta, Operand)

    def run_added(a: int, b: int, out: int, c: int, alpha: Any, beta: Any) -> None:
        if c != out and (always or beta != 0.0):
            move(cublas.stream.native, c, out)
        run(a, b, out, alpha, beta)

    return run_added


@plans(Geam, inline=True)
def geam(cublas: "Cublas", op: Geam) -> "Run":
    """``run(a, b, out, alpha, beta)``."""
    dtype = op.a.dtype
    out = op.infer()["out"] if op.out is None else op.out.layout
    form_a, form_b, form = matrix_at(op.a.layout), matrix_at(op.b.layout), matrix_at(out)
    rows, cols = (form.rows, form.cols) if form.transposed else (form.cols, form.rows)
    if out.size == 0:
        return nothing
    # Column-major, op(a) is transposed if its order differs from that of out and it is not transposed, or conversely.
    op_a = operation(form_a.transposed ^ op.transpose_a ^ form.transposed, op.conj_a, dtype)
    op_b = operation(form_b.transposed ^ op.transpose_b ^ form.transposed, op.conj_b, dtype)
    lda, ldb, ldc, handle = form_a.ld, form_b.ld, form.ld, cublas.handle
    fn = cublas.function(f"{PREFIX[dtype.name]}geam", rows, cols, lda, ldb, ldc)
    hand = pointers(cublas, (factor_of(op.alpha, dtype), factor_of(op.beta, dtype)))

    def run(a: int, b: int, out: int, alpha: Any, beta: Any) -> None:
        p_alpha, p_beta = hand(alpha, beta)
        fn(handle, op_a, op_b, rows, cols, p_alpha, a, lda, p_beta, b, ldb, out, ldc)

    return run


@plans(Herk, Syrk, inline=True)
def rank_k(cublas: "Cublas", op: Syrk | Herk) -> "Run":
    """``run(a, c, alpha, beta)``."""
    dtype = op.a.dtype
    form, result = matrix_at(op.a.layout), matrix_at(op.c.layout)
    n, k = result.rows, form.rows if op.transpose else form.cols
    if n == 0:
        return nothing
    transposed = form.transposed == op.transpose  # relative to the memory, read column-major
    trans = operation(transposed, isinstance(op, Herk), dtype)
    uplo = triangle(op.lower, result)
    name = f"{PREFIX[dtype.name]}{'herk' if isinstance(op, Herk) else 'syrk'}"
    scale = dtype.real if isinstance(op, Herk) else dtype
    handle, lda, ldc = cublas.handle, form.ld, result.ld
    fn = cublas.function(name, n, k, lda, ldc)
    hand = pointers(cublas, (factor_of(op.alpha, scale), factor_of(op.beta, scale)))

    def run(a: int, c: int, alpha: Any, beta: Any) -> None:
        p_alpha, p_beta = hand(alpha, beta)
        fn(handle, uplo, trans, n, k, p_alpha, a, lda, p_beta, c, ldc)

    return run if isinstance(op, Syrk) else real_diagonal(cublas, run, op, n, k, result.ld)


@plans(Her2k, Syr2k, inline=True)
def rank_2k(cublas: "Cublas", op: Syr2k | Her2k) -> "Run":
    """``run(a, b, c, alpha, beta)``. For a Hermitian product in row-major matrices, cuBLAS sees the conjugate."""
    dtype, hermitian = op.a.dtype, isinstance(op, Her2k)
    form_a, form_b, result = matrix_at(op.a.layout), matrix_at(op.b.layout), matrix_at(op.c.layout)
    n, k = result.rows, form_a.rows if op.transpose else form_a.cols
    if n == 0:
        return nothing
    trans = operation(form_a.transposed == op.transpose, hermitian, dtype)
    uplo, handle, lda, ldb, ldc = triangle(op.lower, result), cublas.handle, form_a.ld, form_b.ld, result.ld
    fn = cublas.function(f"{PREFIX[dtype.name]}{'her2k' if hermitian else 'syr2k'}", n, k, lda, ldb, ldc)
    hand = pointers(cublas, (factor_of(op.alpha, dtype), factor_of(op.beta, dtype.real if hermitian else dtype)))
    swapped = hermitian and not result.transposed

    def run(a: int, b: int, c: int, alpha: Any, beta: Any) -> None:
        p_alpha, p_beta = hand(alpha, beta)
        first, second = ((b, ldb), (a, lda)) if swapped else ((a, lda), (b, ldb))
        fn(handle, uplo, trans, n, k, p_alpha, *first, *second, p_beta, c, ldc)

    return run


def real_diagonal(cublas: "Cublas", run: "Run", op: Herk, n: int, k: int, ld: int) -> "Run":
    """``run``, and the imaginary diagonal of ``c`` cleared where cuBLAS returns early without doing it.

    It does so if nothing is added (``k`` or ``alpha`` is 0) and ``beta`` is 1.
    """
    item = op.c.dtype.itemsize
    on_device = isinstance(op.alpha, Operand) or isinstance(op.beta, Operand)
    memset, check = cublas.driver.memset_2d_32, cublas.driver.check

    def run_real(a: int, c: int, alpha: Any, beta: Any) -> None:
        run(a, c, alpha, beta)
        if on_device or ((k == 0 or alpha == 0.0) and beta == 1.0):
            code = memset(c + item // 2, (ld + 1) * item, 0, item // 8, n, cublas.stream.native)
            check(code, "cuMemsetD2D32Async")

    return run_real


@plans(Hemm, Symm, inline=True)
def two_sided(cublas: "Cublas", op: Symm | Hemm) -> "Run":
    """``run(a, b, out, c, alpha, beta)``. Row-major, ``out.T = b.T @ a.T``: ``a`` changes sides."""
    dtype = op.a.dtype
    out = op.infer()["out"] if op.out is None else op.out.layout
    form_a, form_b, form = matrix_at(op.a.layout), matrix_at(op.b.layout), matrix_at(out)
    if out.size == 0:
        return nothing
    rows, cols = (form.rows, form.cols) if form.transposed else (form.cols, form.rows)
    side = LEFT if op.left == form.transposed else RIGHT
    uplo = triangle(op.lower, form_a)
    name = f"{PREFIX[dtype.name]}{'hemm' if isinstance(op, Hemm) else 'symm'}"
    handle, lda, ldb, ldc = cublas.handle, form_a.ld, form_b.ld, form.ld
    fn = cublas.function(name, rows, cols, lda, ldb, ldc)
    hand = pointers(cublas, (factor_of(op.alpha, dtype), factor_of(op.beta, dtype)))

    def run(a: int, b: int, out: int, alpha: Any, beta: Any) -> None:
        p_alpha, p_beta = hand(alpha, beta)
        fn(handle, side, uplo, rows, cols, p_alpha, a, lda, b, ldb, p_beta, out, ldc)

    return added(cublas, run, op.c, out, op.beta)


@plans(Trmm, Trsm, inline=True)
def triangular(cublas: "Cublas", op: Trsm | Trmm) -> "Run":
    """``run(a, b, alpha)``, in place of ``b``."""
    dtype = op.a.dtype
    form_a, form = matrix_at(op.a.layout), matrix_at(op.b.layout)
    if op.b.size == 0:
        return nothing
    rows, cols = (form.rows, form.cols) if form.transposed else (form.cols, form.rows)
    side = LEFT if op.left == form.transposed else RIGHT
    uplo = triangle(op.lower, form_a)
    trans = operation(form_a.transposed ^ op.transpose ^ form.transposed, op.conj, dtype)
    diagonal = UNIT if op.unit_diagonal else NON_UNIT
    handle, lda, ldb = cublas.handle, form_a.ld, form.ld
    in_place = isinstance(op, Trsm)  # trmm takes an output, which may be b
    fn = cublas.function(f"{PREFIX[dtype.name]}{'trsm' if in_place else 'trmm'}", rows, cols, lda, ldb)
    hand = pointers(cublas, (factor_of(op.alpha, dtype),))

    def run(a: int, b: int, alpha: Any) -> None:
        (p_alpha,) = hand(alpha)
        if in_place:
            fn(handle, side, uplo, trans, diagonal, rows, cols, p_alpha, a, lda, b, ldb)
        else:
            fn(handle, side, uplo, trans, diagonal, rows, cols, p_alpha, a, lda, b, ldb, b, ldb)

    return run
