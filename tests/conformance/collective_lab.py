"""Every collective, on any number of ranks: inputs and steps of each rank, and the expected results."""

from typing import Any, NamedTuple

import numpy as np

from callboard.core.dtype import DTYPES
from callboard.kernel.collective import Step
from callboard.kernel.collective.part import REDUCED, REDUCTIONS
from callboard.testing.tolerances import assert_close

Array = np.ndarray[Any, Any]

KINDS = (
    *("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_v"),
    *("gather", "scatter", "send", "barrier"),
)
IN_PLACE = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "scatter")
OPS = ("sum", "prod", "min", "max", "avg")
DTYPE_NAMES = tuple(d.name for d in REDUCED)


class RankCase(NamedTuple):
    """What one rank does.

    Attributes:
        step: Positions are 0 where there is an array.
        source, both: What it is given; None: nothing of this kind.
        target: Shape of what it receives in; None: nothing.
        want: What ``target``, or ``both``, holds in the end.
    """

    step: Step
    source: Array | None
    both: Array | None
    target: tuple[int, ...] | None
    want: Array | None


def numbers(dtype: str, shape: tuple[int, ...], seed: int) -> Array:
    """Small numbers whose sums and products every dtype holds."""
    drawn = np.random.default_rng(seed).integers(1, 4, shape)
    return drawn.astype(DTYPES[dtype].np)


def reduced(op: str, xs: list[Array], factors: list[float] | None = None) -> Array:
    """The reduction in f64, or in 64 bits."""
    dtype = xs[0].dtype
    wide = np.int64 if dtype.kind in "iu" else np.float64
    rows = np.stack([x.astype(wide) for x in xs])
    if factors is not None:
        rows = rows * np.asarray(factors, wide).reshape(-1, *[1] * xs[0].ndim)
    if op == "avg":
        total = rows.sum(0)
        return (total // len(xs) if wide is np.int64 else total / len(xs)).astype(dtype)
    found: Array = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max}[op](rows, axis=0)  # type: ignore[operator]
    return found.astype(dtype)


def cases(
    kind: str, size: int, dtype: str, *, op: str = "sum", in_place: bool = False, rows: int = 3, root: int | None = None
) -> list[RankCase]:
    """A case for each rank, whose arrays have ``rows`` rows of 2, or that many for each rank.

    Args:
        kind: One of :data:`KINDS`; ``send`` sends from the last rank to rank 0.
        size: Ranks.
        dtype: Of all arrays.
        op: Of a reduction.
        in_place: One of :data:`IN_PLACE` in place.
        rows: See above.
        root: The last rank by default.
    """
    root = size - 1 if root is None else root
    many, few = (size * rows, 2), (rows, 2)
    split = kind in ("reduce_scatter", "all_to_all", "scatter")
    xs = [numbers(dtype, many if split else few, seed=r) for r in range(size)]
    whole = [np.concatenate(xs)] * size if kind in ("all_gather", "gather") else xs
    found: list[RankCase] = []
    total = reduced(op, xs) if kind in REDUCTIONS else xs[0]
    for r in range(size):
        mine = slice(r * rows, (r + 1) * rows)
        at_root = r == root
        step = Step(kind, op, root if kind in ("reduce", "broadcast", "gather", "scatter") else 0)  # type: ignore[arg-type]
        source: Array | None = xs[r]
        target: Array | None
        both: Array | None = None
        if kind == "all_reduce":
            target = total
        elif kind == "reduce":
            target = total if at_root else None
        elif kind == "broadcast":
            source, target = (xs[root] if at_root else None), xs[root]
        elif kind == "all_gather":
            target = whole[r]
        elif kind == "gather":
            target = whole[r] if at_root else None
        elif kind == "reduce_scatter":
            target = total[mine]
        elif kind == "scatter":
            source, target = (xs[root] if at_root else None), xs[root][mine]
        elif kind == "all_to_all":
            target = np.concatenate([x[mine] for x in xs])
        elif kind == "all_to_all_v":
            counts = [[(i + j) % 3 for j in range(size)] for i in range(size)]
            xs_v = [numbers(dtype, (sum(row), 2), seed=i) for i, row in enumerate(counts)]
            pieces = [np.split(x, np.cumsum(row)[:-1])[r] for x, row in zip(xs_v, counts, strict=True)]
            source, target = xs_v[r], np.concatenate(pieces)
            step = Step(kind, counts=tuple(2 * c for row in counts for c in row))
        elif kind == "send":
            source = xs[size - 1] if r == size - 1 and size > 1 else None
            target = xs[size - 1] if r == 0 and size > 1 else None
            step = Step("send" if source is not None else "recv", root=0 if source is not None else size - 1)
        else:
            source = target = None
        if in_place and target is not None and (kind not in ("broadcast", "reduce", "gather", "scatter") or at_root):
            if kind == "all_gather" or kind == "gather":
                both = np.zeros_like(target)
                both[mine] = xs[r]
                want = target
            elif kind == "reduce_scatter" or kind == "scatter":
                assert source is not None
                both = source
                want = both.copy()
                want[mine] = target
            else:
                both, want = source, target
            found.append(RankCase(with_places(step, None, None, both), None, both, None, want))
        else:
            found.append(
                RankCase(
                    with_places(step, source, target, None),
                    source,
                    None,
                    None if target is None else target.shape,
                    target,
                )
            )
    return found


def with_places(step: Step, source: Any, target: Any, both: Any) -> Step:
    """The step, whose arrays are the first of their kind."""
    places = [-1 if array is None else 0 for array in (source, target, both)]
    return Step(step.kind, step.op, step.root, *places, step.factor, step.counts)


def takes_part(case: RankCase) -> bool:
    """Whether the rank does anything."""
    return case.step.kind == "barrier" or not (case.source is None and case.both is None and case.target is None)


def close(got: Array, want: Array, case: Step, size: int) -> None:
    """What is moved is the same, what is reduced within rounding: on a GPU after each addition."""
    if case.kind in REDUCTIONS and got.dtype.kind not in "iu":
        assert_close(got, want.astype(np.float64), got.dtype, max(size, 2), kind="sum")
    else:
        np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))
