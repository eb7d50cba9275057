"""The table of tolerances between a result and a reference in higher precision.

The bound on element *i* is ``factor * (unit * |want[i]| + sqrt(terms) * accumulator * scale[i])``: rounding of the
result (``|want[i]|`` counts as the smallest normal number at least, since subnormals are evenly spaced) and of
``terms`` partial sums (which grows with the square root for data that is not made to defeat it; Higham and Mary,
"A New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41, 2019).
"""

from typing import Any, Literal, NamedTuple

import ml_dtypes
import numpy as np

from callboard.core.dtype import DTypeLike, as_dtype

__all__ = ["ACTIVATION", "FACTORS", "ROUNDOFF", "Kind", "Roundoff", "assert_close"]

_finfo: Any = ml_dtypes.finfo  # NumPy's too
Coarse = Literal["tf32", "half", "brain"]
Kind = Literal["exact", "rounded", "elementwise", "sum", "transform", "solve"]


class Roundoff(NamedTuple):
    """Unit roundoff of a dtype.

    Attributes:
        unit: Unit roundoff of the dtype, half the distance from 1 to the next number.
        accumulator: Unit roundoff of the dtype that sums are accumulated in: float32 for dtypes of 16 bits and fewer.
    """

    unit: float
    accumulator: float


ROUNDOFF: dict[str, Roundoff] = {
    "f64": Roundoff(2**-53, 2**-53),
    "c128": Roundoff(2**-53, 2**-53),
    "f32": Roundoff(2**-24, 2**-24),
    "c64": Roundoff(2**-24, 2**-24),
    "tf32": Roundoff(2**-24, 2**-11),  # no dtype: f32 whose products are rounded to TF32 first
    "f16": Roundoff(2**-11, 2**-24),
    "half": Roundoff(2**-11, 2**-11),  # no dtype: f16 whose partial sums are f16 too
    "bf16": Roundoff(2**-8, 2**-24),
    "brain": Roundoff(2**-8, 2**-8),  # no dtype: bf16 whose partial sums are bf16 too, or factors rounded to bf16
    "f8_e5m2": Roundoff(2**-3, 2**-14),  # the FP8 tensor cores of Hopper keep 14 bits of the products they add
    "f8_e4m3": Roundoff(2**-4, 2**-14),
    "f4_e2m1": Roundoff(2**-2, 2**-24),
}

_COARSE: dict[str, Any] = {"tf32": np.float32, "half": np.float16, "brain": ml_dtypes.bfloat16}

ACTIVATION = 2**-18
"""Error of GELU and of its derivative beside an argument or a derivative of 1, where a library evaluates their tanh in
single precision with approximate instructions (:data:`FACTORS` multiply it); cuBLASLt 13.1 on an H200: 1.4e-5."""

FACTORS: dict[Kind, float] = {
    "exact": 0,  # copies, fills, permutations
    "rounded": 1.01,  # one rounding; the reference has a rounding of its own
    "elementwise": 4,  # a few operations an element
    "sum": 8,  # dot products, reductions, matrix products
    "transform": 16,  # Fourier transforms, of any number of points
    "solve": 64,  # triangular solves and factorisations of well-conditioned matrices
}


def assert_close(
    got: Any,
    want: Any,
    dtype: DTypeLike | Coarse,
    terms: int = 1,
    *,
    kind: Kind | None = None,
    scale: Any = None,
    factors: DTypeLike | None = None,
    between: Any = 0,
) -> None:
    """Compare a result with a reference.

    Args:
        got: Array or number.
        want: Same shape, in higher precision than ``dtype`` (float64 or complex128 if there is one).
        dtype: The dtype of the computation; ``"tf32"`` for f32 products in TF32, ``"half"`` for f16 summed in f16,
            ``"brain"`` for bf16 summed in bf16. Integers and bool are compared exactly.
        terms: Number of products or elements that are summed for one element.
        kind: Row of :data:`FACTORS`; by default ``"sum"`` where ``terms > 1``, else ``"elementwise"``.
        scale: Magnitude of the partial sums, broadcast against ``want`` (for ``a @ b`` at best ``|a| @ |b|``); by
            default the largest ``|want|`` for sums and solves, ``|want|`` itself otherwise.
        factors: The dtype of the multiplied and summed numbers, if the result is stored in another one (fp8 to bf16).
        between: Magnitude of intermediate results that may have been rounded to ``dtype``, broadcast against ``want``.

    Raises:
        AssertionError: Shapes differ, an element is too far away, or an infinity or NaN is at a place where the other
            has none; names the worst element and its bound.
    """
    name = dtype if isinstance(dtype, str) and dtype in _COARSE else as_dtype(dtype).name
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, f"got has shape {got.shape}, want {want.shape}"
    if name not in ROUNDOFF:
        wrong = got != want
        assert not wrong.any(), _report(got, want, np.asarray(wrong, np.float64), np.zeros(want.shape), name)
        return
    if kind is None:
        kind = "sum" if terms > 1 else "elementwise"
    wide = np.complex128 if np.iscomplexobj(want) or np.iscomplexobj(got) else np.float64
    limits = _finfo(_COARSE.get(name) or as_dtype(dtype).np)
    with np.errstate(all="ignore"):
        stored = want.astype(got.dtype).astype(wide)  # may overflow to an infinity
        got, want = got.astype(wide), want.astype(wide)
        special = ~np.isfinite(stored) | ~np.isfinite(got)
        same = (got == stored) | (np.isnan(got) & np.isnan(stored))
        size = np.abs(np.where(special, 0, want))
        if scale is None:
            scale = size.max(initial=0) if kind in ("sum", "solve") else size
        unit, accumulator = ROUNDOFF[name]
        if factors is not None:
            accumulator = max(accumulator, ROUNDOFF[as_dtype(factors, "factors").name].accumulator)
        reach = unit * np.maximum(size, float(limits.smallest_normal)) + np.sqrt(
            max(terms, 1)
        ) * accumulator * np.asarray(scale, np.float64)
        reach = reach + unit * np.asarray(between, np.float64)
        bound = np.broadcast_to(FACTORS[kind] * reach, want.shape)
        away = np.abs(got - want)
    bad = np.where(special, ~same, ~(away <= bound))
    excess = np.where(special, np.inf, away / np.maximum(bound, 1e-300))
    assert not bad.any(), _report(got, want, np.where(bad, excess, 0), bound, f"{name}, {kind}, {terms} terms")


def _report(got: Any, want: Any, excess: Any, bound: Any, what: str) -> str:
    at = np.unravel_index(int(np.argmax(excess)), excess.shape)
    index = tuple(int(i) for i in at)
    return (
        f"{int(np.count_nonzero(excess))} of {excess.size} elements differ ({what}); worst at {index}: "
        f"got {got[at]!s}, want {want[at]!s}, allowed {bound[at]:.3g}"
    )
