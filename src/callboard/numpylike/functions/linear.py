"""``np.linalg``."""

import math
from typing import Any

import numpy

from callboard.arrays.handles import cast
from callboard.arrays.linalg.matrices import floating
from callboard.numpylike.binding import Array, Arrays, Dtype, function

LA = "linalg"


def _square(a: Any) -> Any:
    if a.ndim < 2:
        raise numpy.linalg.LinAlgError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional")
    if a.shape[-1] != a.shape[-2]:
        raise numpy.linalg.LinAlgError("Last 2 dimensions of the array must be square")
    return a


def _plain(name: str) -> None:
    def plain(np: Any, a: Array) -> Any:
        return getattr(np.xp.linalg, name)(_square(a))

    plain.__name__, plain.__doc__ = name, f"``xp.linalg.{name}``, of stacks of matrices, too."
    function(LA)(plain)


for _name in ("inv", "det", "slogdet"):
    _plain(_name)


def _real(np: Any, a: Any, values: Any, *rest: Any) -> tuple[Any, ...]:
    """Real results where a device that waits finds no imaginary part, as in NumPy; elsewhere they stay complex."""
    waits = a._port.services.blocking and not a.dtype.is_complex
    whole = waits and not bool(np.any(np.imag(values) != 0))
    return tuple(np.copy(np.xp.real(x)) if whole else x for x in (values, *rest))


@function(LA)
def eig(np: Any, a: Array) -> Any:
    """Eigenvalues and right eigenvectors. Of real matrices it waits, since they may be real or complex."""
    found = np.xp.linalg.eig(_square(a))
    return type(found)(*_real(np, a, *found))


@function(LA)
def eigvals(np: Any, a: Array) -> Any:
    """Eigenvalues; likewise."""
    return _real(np, a, np.xp.linalg.eigvals(_square(a)))[0]


@function(LA)
def cholesky(np: Any, a: Array, upper: bool) -> Any:
    """The triangular factors of positive definite matrices."""
    return np.xp.linalg.cholesky(_square(a), upper=upper)


def _lower(np: Any, a: Any, UPLO: str) -> Any:
    if UPLO.upper() not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    return _square(a) if UPLO.upper() == "L" else np.conj(np.matrix_transpose(_square(a)))


@function(LA)
def eigh(np: Any, a: Array, UPLO: str = "L") -> Any:
    """Eigenvalues and eigenvectors of symmetric or Hermitian matrices."""
    return np.xp.linalg.eigh(_lower(np, a, UPLO))


@function(LA)
def eigvalsh(np: Any, a: Array, UPLO: str = "L") -> Any:
    """The eigenvalues of symmetric or Hermitian matrices."""
    return np.xp.linalg.eigvalsh(_lower(np, a, UPLO))


@function(LA)
def solve(np: Any, a: Array, b: Array) -> Any:
    """Linear equations."""
    return np.xp.linalg.solve(_square(a), b)


@function(LA)
def lstsq(np: Any, a: Array, b: Array, rcond: Any) -> Any:
    """Least squares: the solution, the residuals, the rank and the singular values. It waits for the rank."""
    if rcond == -1:
        rcond = float(numpy.finfo(floating(a.dtype).np).eps)
    x, left, rank, s = np.xp.linalg.lstsq(a, b, rcond)
    if a._port.services.blocking:
        rank = int(rank)
        if rank != a.shape[-1] or a.shape[-2] <= rank:
            left = left[..., :0]
    return x, left, rank, s


@function(LA)
def svd(np: Any, a: Array, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """Singular values and vectors."""
    return np.xp.linalg.svd(a, full_matrices=full_matrices) if compute_uv else np.xp.linalg.svdvals(a)


@function(LA)
def svdvals(np: Any, x: Array) -> Any:
    """The singular values."""
    return np.xp.linalg.svdvals(x)


@function(LA)
def qr(np: Any, a: Array, mode: str) -> Any:
    """Orthogonal and triangular factors."""
    if mode in ("full", "f"):
        mode = "reduced"
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"Unrecognized mode {mode!r}; reduced, complete or r")
    found = np.xp.linalg.qr(a, mode="reduced" if mode == "r" else mode)
    return found[1] if mode == "r" else found


@function(LA)
def pinv(np: Any, a: Array, rcond: Any, hermitian: bool, rtol: Any) -> Any:
    """The pseudo-inverses."""
    if rcond is not None and rtol is not None:
        raise ValueError("`rtol` and `rcond` can't be both set.")
    limit = rcond if rtol is None else rtol
    limit = 1e-15 if limit is None else limit
    return np.xp.linalg.pinv(a, rtol=limit if isinstance(limit, int | float) else np.asarray(limit))


@function(LA)
def matrix_rank(np: Any, A: Array, tol: Any, hermitian: bool, rtol: Any) -> Any:
    """The numbers of singular values above a limit."""
    if tol is not None and rtol is not None:
        raise ValueError("`tol` and `rtol` can't be both set.")
    if A.ndim < 2:
        return np.any(A != 0).astype("i64")
    if tol is not None:
        s = np.xp.linalg.svdvals(A)
        limit = tol if isinstance(tol, int | float) else np.expand_dims(np.asarray(tol), -1)
        return np.count_nonzero(s > limit, axis=-1)
    return np.xp.linalg.matrix_rank(A, rtol=rtol)


@function(LA)
def matrix_power(np: Any, a: Array, n: int) -> Any:
    """Powers of square matrices."""
    import operator

    return np.xp.linalg.matrix_power(_square(a), operator.index(n))


@function(LA)
def multi_dot(np: Any, arrays: Arrays) -> Any:
    """The product of several matrices, in the cheapest order."""
    n = len(arrays)
    if n < 2:
        raise ValueError("Expecting at least two arrays.")
    first, last = arrays[0].ndim, arrays[-1].ndim
    lines = list(arrays)
    lines[0] = np.reshape(lines[0], (1, -1)) if first == 1 else lines[0]
    lines[-1] = np.reshape(lines[-1], (-1, 1)) if last == 1 else lines[-1]
    if any(x.ndim != 2 for x in lines):
        raise numpy.linalg.LinAlgError("arrays must be two-dimensional")
    sizes = [lines[0].shape[0], *(x.shape[1] for x in lines)]
    best: dict[tuple[int, int], tuple[int, int]] = {(i, i): (0, i) for i in range(n)}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            best[i, j] = min(
                (best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )

    def product(i: int, j: int) -> Any:
        return lines[i] if i == j else np.xp.matmul(product(i, best[i, j][1]), product(best[i, j][1] + 1, j))

    found = product(0, n - 1)
    if first == 1 and last == 1:
        return found[0, 0]
    return np.ravel(found) if 1 in (first, last) else found


@function(LA)
def norm(np: Any, x: Array, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Norms of vectors and matrices."""
    x = cast(x, floating(x.dtype))
    if axis is None:
        if ord is None or (ord in ("f", "fro") and x.ndim == 2) or (ord == 2 and x.ndim == 1):
            found = np.xp.linalg.vector_norm(np.ravel(x))
            return np.reshape(found, (1,) * x.ndim) if keepdims else found
        axis = tuple(range(x.ndim))
    elif not isinstance(axis, tuple):
        axis = (int(axis),)
    if len(axis) == 1:
        if isinstance(ord, str):
            raise ValueError(f"Invalid norm order {ord!r} for vectors")
        return np.xp.linalg.vector_norm(x, axis=axis, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axis) != 2:
        raise ValueError("Improper number of dimensions to norm.")
    if axis[0] % x.ndim == axis[1] % x.ndim:
        raise ValueError("Duplicate axes given.")
    if ord not in (None, "f", "fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        raise ValueError("Invalid norm order for matrices.")
    moved = np.moveaxis(x, axis, (-2, -1))
    found = np.xp.linalg.matrix_norm(moved, ord="fro" if ord in (None, "f") else ord)
    return np.expand_dims(found, tuple(a % x.ndim for a in axis)) if keepdims else found


@function(LA)
def vector_norm(np: Any, x: Array, axis: Any, keepdims: bool, ord: Any) -> Any:
    """Norms of vectors."""
    return np.xp.linalg.vector_norm(x, axis=axis, keepdims=keepdims, ord=ord)


@function(LA)
def matrix_norm(np: Any, x: Array, keepdims: bool, ord: Any) -> Any:
    """Norms of matrices."""
    return np.xp.linalg.matrix_norm(x, keepdims=keepdims, ord=ord)


@function(LA)
def cond(np: Any, x: Array, p: Any) -> Any:
    """Condition numbers."""
    if x.ndim < 2 or not x.size:
        raise numpy.linalg.LinAlgError("cond is not defined on empty arrays")
    if p in (None, 2, -2):
        s = np.xp.linalg.svdvals(x)
        found = s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    else:
        found = norm(np, x, p, (-2, -1)) * norm(np, np.xp.linalg.inv(x), p, (-2, -1))
    return np.where(np.isnan(found) & ~np.any(np.isnan(x), axis=(-2, -1)), math.inf, found)


@function(LA)
def diagonal(np: Any, x: Array, offset: int) -> Any:
    """The views of diagonals of matrices."""
    return np.xp.linalg.diagonal(x, offset=offset)


@function(LA)
def trace(np: Any, x: Array, offset: int, dtype: Dtype) -> Any:
    """The sums along diagonals of matrices."""
    return np.xp.linalg.trace(x, offset=offset, dtype=dtype)


@function(LA)
def tensorsolve(np: Any, a: Array, b: Array, axes: Any) -> Any:
    """Tensor equations."""
    if axes is not None:
        rest = [k for k in range(a.ndim) if k not in axes]
        a = np.transpose(a, (*rest, *axes))
    shape = a.shape[b.ndim :]
    if math.prod(shape) != math.prod(a.shape[: b.ndim]):
        raise numpy.linalg.LinAlgError("Input arrays must satisfy prod(a.shape[b.ndim:]) == prod(a.shape[:b.ndim])")
    return np.reshape(np.xp.linalg.solve(np.reshape(a, (b.size, -1)), np.ravel(b)), shape)


@function(LA)
def tensorinv(np: Any, a: Array, ind: int) -> Any:
    """The inverses of tensors."""
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    shape = (*a.shape[ind:], *a.shape[:ind])
    n = math.prod(a.shape[ind:])
    return np.reshape(np.xp.linalg.inv(_square(np.reshape(a, (-1, n)))), shape)
