"""A matrix and vectors: how each op of level 2 is called."""

from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.blas.level1 import HALVES, vector_at, vector_copy
from callboard.backends.cuda.blas.products import (
    PREFIX,
    Product,
    Steps,
    gemm_run,
    kernel_run,
    operation,
    scale_dtype,
    steps_of,
    types_of,
)
from callboard.backends.cuda.blas.scalars import Factor, factor_of, pointers
from callboard.backends.cuda.plans import nothing
from callboard.core.layout import Layout
from callboard.core.library import plans
from callboard.core.operand import Operand
from callboard.kernel.blas import Gbmv, Gemv, Ger, Gerc, Geru, Spr, Syr
from callboard.kernel.blas.strides import Matrix, matrix_of

if TYPE_CHECKING:
    from callboard.backends.cuda.blas.cublas import Cublas, Run

__all__ = ["gemv", "ger", "kernel_gemv", "matrix_at", "symmetric_rank_1", "triangle", "with_addend"]

LOWER, UPPER = 0, 1


def matrix_at(layout: Layout) -> Matrix:
    """The layout as a matrix; the message has checked that it is one."""
    found = matrix_of(layout)
    assert found is not None
    return found


def triangle(lower: bool, form: Matrix) -> int:
    """``cublasFillMode_t``: in a row-major matrix, read column-major, the triangles change places."""
    return LOWER if lower == form.transposed else UPPER


@plans(Gemv, inline=True)
def gemv(cublas: "Cublas", op: Gemv) -> "Run":
    """``run(a, x, out, y, alpha, beta)``.

    ``gemv`` has neither halves nor a conjugate without a transposition: those go as the product of a row with a
    matrix, ``out[1, m] = x[1, n] @ op(a).T``, if the vectors run forwards, else to a custom kernel, as what cuBLAS
    would leave out does (an inner extent of 0).
    """
    dtype = op.a.dtype
    form = matrix_at(op.a.layout)
    out = op.infer()["out"] if op.out is None else op.out.layout
    m, n = out.size, op.x.size
    if m == 0:
        return nothing
    transposed = op.transpose == form.transposed  # relative to the memory, read column-major
    conj = op.conj and dtype.is_complex
    scale = scale_dtype(dtype)
    factors = (factor_of(op.alpha, scale), factor_of(op.beta, scale))
    x_vector, out_vector = vector_at(op.x.layout), vector_at(out)
    if n == 0:
        return kernel_gemv(cublas, op, out, factors)
    if dtype.name not in HALVES and not (conj and not transposed):
        run = _classic_gemv(cublas, op, form, out, operation(transposed, op.conj, dtype), factors)
    elif x_vector.inc > 0 and out_vector.inc > 0:
        # x as a row needs no transposition; a's flag is turned round, which turns the conjugate alone into C.
        product = Product(
            operation(False, False, dtype),
            operation(not transposed, op.conj, dtype),
            *(1, m, n),
            *(x_vector.inc, form.ld, out_vector.inc),
            swapped=True,
        )
        run = gemm_run(cublas, types_of(dtype, None), product, factors)
    else:
        return kernel_gemv(cublas, op, out, factors)
    return with_addend(cublas, run, op.y, out, op.beta)


def _classic_gemv(
    cublas: "Cublas", op: Gemv, form: Matrix, out: Layout, operation: int, factors: tuple[Factor, Factor]
) -> "Run":
    item = op.a.dtype.itemsize
    x, y = vector_at(op.x.layout), vector_at(out)
    rows, cols = (form.rows, form.cols) if form.transposed else (form.cols, form.rows)
    ld, incx, incy, dx, dy = form.ld, x.inc, y.inc, x.first * item, y.first * item
    handle = cublas.handle
    fn = cublas.function(f"{PREFIX[op.a.dtype.name]}gemv", rows, cols, ld, incx, incy)
    hand = pointers(cublas, factors)

    def run(a: int, x: int, out: int, alpha: Any, beta: Any) -> None:
        p_alpha, p_beta = hand(alpha, beta)
        fn(handle, operation, rows, cols, p_alpha, a, ld, x + dx, incx, p_beta, out + dy, incy)

    return run


def kernel_gemv(cublas: "Cublas", op: Gemv | Gbmv, out: Layout, factors: tuple[Factor, Factor]) -> "Run":
    """Return a plan with a custom kernel; for a band matrix only if ``x`` is empty: the matrix is then not read."""
    row, col = op.a.strides if not op.transpose else op.a.strides[::-1]
    return kernel_run(
        cublas,
        op.a.dtype,
        (out.size, 1, op.x.size),
        Steps(row, col),
        Steps(op.x.strides[0], 0),
        None if op.y is None else Steps(op.y.strides[0], 0),
        Steps(out.strides[0], 0),
        factors,
        conj=(op.conj, False),
    )


def with_addend(cublas: "Cublas", run: "Run", y: Operand | None, out: Layout, beta: Any) -> "Run":
    """Wrap a call that adds in place: ``y`` is copied into ``out`` first, unless it is ``out`` or ``beta`` is 0."""
    if y is None:
        return lambda a, x, out, y, alpha, beta: run(a, x, out, alpha, beta)
    move = vector_copy(cublas, y.layout, out)
    always = isinstance(beta, Operand)

    def run_added(a: int, x: int, out: int, y: int, alpha: Any, beta: Any) -> None:
        if y != out and (always or beta != 0.0):
            move(y, out)
        run(a, x, out, alpha, beta)

    return run_added


@plans(Ger, Gerc, Geru, inline=True)
def ger(cublas: "Cublas", op: Ger | Geru | Gerc) -> "Run":
    """``run(x, y, a, alpha)``. Read column-major, a row-major ``a`` is its transpose: ``x`` and ``y`` change places.

    ``gerc`` conjugates its second vector, which then is the wrong one: a product with an inner extent of 1 does it.
    """
    dtype = op.a.dtype
    form = matrix_at(op.a.layout)
    m, n = form.rows, form.cols
    if m == 0 or n == 0:
        return nothing
    factors = (factor_of(op.alpha, dtype),)
    if isinstance(op, Gerc) and not form.transposed:
        return _row_major_gerc(cublas, op, form, factors[0])
    item = dtype.itemsize
    first, second = vector_at(op.x.layout), vector_at(op.y.layout)
    if not form.transposed:
        m, n, first, second = n, m, second, first
    name = {Ger: "ger", Geru: "geru", Gerc: "gerc"}[type(op)]
    handle, ld, swapped = cublas.handle, form.ld, not form.transposed
    inc1, inc2, d1, d2 = first.inc, second.inc, first.first * item, second.first * item
    fn = cublas.function(PREFIX[dtype.name] + name, m, n, ld, inc1, inc2)
    hand = pointers(cublas, factors)

    def run(x: int, y: int, a: int, alpha: Any) -> None:
        (p_alpha,) = hand(alpha)
        first, second = (y, x) if swapped else (x, y)
        fn(handle, m, n, p_alpha, first + d1, inc1, second + d2, inc2, a, ld)

    return run


def _row_major_gerc(cublas: "Cublas", op: Gerc, form: Matrix, alpha: Factor) -> "Run":
    dtype = op.a.dtype
    x, y = vector_at(op.x.layout), vector_at(op.y.layout)
    one = cublas.one(dtype)
    if alpha.is_array:
        factors = (alpha, Factor(dtype, is_array=True))
        beta: Any = one
    else:
        factors = (alpha, Factor(dtype, is_array=False))
        beta = 1.0
    if x.inc < 0 or y.inc < 0:
        steps = steps_of(op.a.layout)
        kernel = kernel_run(
            cublas,
            dtype,
            (form.rows, form.cols, 1),
            Steps(op.x.strides[0], 0),
            Steps(0, op.y.strides[0]),
            steps,
            steps,
            factors,
            conj=(False, True),
        )
        return lambda x, y, a, alpha: kernel(x, y, a, a, alpha, beta)
    # a.T[n, m] += alpha * conj(y)[n, 1] @ x[1, m], the vectors read as rows.
    product = Product(2, 0, form.cols, form.rows, 1, y.inc, x.inc, form.ld, swapped=False)
    gemm = gemm_run(cublas, types_of(dtype, None), product, factors)
    return lambda x, y, a, alpha: gemm(y, x, a, alpha, beta)


@plans(Spr, Syr, inline=True)
def symmetric_rank_1(cublas: "Cublas", op: Syr | Spr) -> "Run":
    """``run(x, a, alpha)``. Packed by rows, a triangle is what cuBLAS has packed by columns as the other one."""
    dtype, vector = op.a.dtype, vector_at(op.x.layout)
    if vector.n == 0:
        return nothing
    form = Matrix(vector.n, vector.n, vector.n, False) if op.packed else matrix_at(op.a.layout)
    uplo, handle, n, inc = triangle(op.lower, form), cublas.handle, vector.n, vector.inc
    dx = vector.first * dtype.itemsize
    ld = () if op.packed else (form.ld,)
    fn = cublas.function(f"{PREFIX[dtype.name]}{'spr' if op.packed else 'syr'}", n, inc, *ld)
    hand = pointers(cublas, (factor_of(op.alpha, dtype),))

    def run(x: int, a: int, alpha: Any) -> None:
        (p_alpha,) = hand(alpha)
        fn(handle, uplo, n, p_alpha, x + dx, inc, a, *ld)

    return run
