"""Translation of a collective into the steps of each rank: checked before anything is sent."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from callboard.core.errors import DeviceMismatch, ShapeError
from callboard.core.layout import Layout
from callboard.core.operand import Operand
from callboard.core.ref import GpuRef
from callboard.device.client.handle import Device
from callboard.kernel.collective.part import REDUCED, REDUCTIONS, Kind, ReduceOp

__all__ = ["PreMulSum", "RankStep", "Request", "Requests"]

Ref = GpuRef[Any]
Made = tuple[str, tuple[int, ...]]
WORDS = ("sum", "prod", "min", "max", "avg")


class PreMulSum:
    """The sum of each rank's elements times a factor of that rank (``ncclRedOpCreatePreMulSum``).

    Args:
        factor: A real number for all ranks, or one for each; a 0-d ref of the rank's device and of the arrays' dtype in
            place of a number is read when the collective runs. It is rounded to the dtype, and so is each product.
    """

    __slots__ = ("factor",)

    def __init__(self, factor: "float | Ref | Sequence[float | Ref]") -> None:
        self.factor = factor

    def of(self, size: int) -> list[Any]:
        """The factor of each rank.

        Raises:
            ShapeError: Not as many as there are ranks.
        """
        if isinstance(self.factor, Operand | int | float):
            return [self.factor] * size
        try:
            factors = list(self.factor)
        except TypeError:
            raise TypeError(f"PreMulSum: factor is {self.factor!r}; pass a real number, or one for each rank") from None
        if len(factors) != size:
            raise ShapeError(f"PreMulSum: factor has {len(factors)} numbers; the world has {size} ranks")
        return factors

    def __repr__(self) -> str:
        return f"PreMulSum({self.factor!r})"


class RankStep(NamedTuple):
    """The part of one rank in a request.

    Attributes:
        source, target: Refs that are sent, and received in; None: none, or made.
        both: The ref that is sent and received in place; None if it is not in place.
        makes: Dtype and shape of a target that is made.
        root, counts, factor: Fields of the step.
        shows: Index of the rows of ``both`` that are the result; None: all.
    """

    source: Ref | None = None
    target: Ref | None = None
    both: Ref | None = None
    makes: Made | None = None
    root: int = 0
    counts: tuple[int, ...] = ()
    factor: Any = None
    shows: Any = None


class Request(NamedTuple):
    """A collective: the steps of each participating rank.

    Attributes:
        kind: Kind of the collective, for errors and statistics.
        ranks: Steps by rank; ``kinds`` names the kind of each rank's step if it differs from ``kind``.
        results: The ranks whose results are the refs of the reply, in order.
    """

    kind: Kind
    op: ReduceOp
    ranks: dict[int, RankStep]
    results: tuple[int, ...]
    kinds: dict[int, Kind] = {}  # noqa: RUF012 - a NamedTuple's default is not shared state: it is never changed


class Requests:
    """Makes requests for a world of these devices.

    All raise :class:`.ShapeError` (arrays that do not fit each other, a wrong root), :class:`.DeviceMismatch` (a ref of
    another rank's device), :class:`.GpuRefStale` and ``TypeError``, and name the collective and the rank.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = devices
        self._rank_of = {device.uuid: rank for rank, device in enumerate(devices)}

    @property
    def size(self) -> int:
        return len(self._devices)

    # -- reductions ----------------------------------------------------------------------------------------------------

    def all_reduce(self, xs: Sequence[Ref], op: Any, out: Sequence[Ref] | None) -> Request:
        xs = self._each("all_reduce", "xs", xs)
        outs = self._outs("all_reduce", out, xs, [x.shape for x in xs])
        word, factors = self._op("all_reduce", op, xs)
        ranks = {
            r: self._step(x, o, whole=o is not None and _same(x, o), factor=f)
            for r, (x, o, f) in enumerate(zip(xs, outs, factors, strict=True))
        }
        return Request("all_reduce", word, ranks, tuple(ranks))

    def reduce(self, xs: Sequence[Ref], op: Any, root: int, out: Ref | None) -> Request:
        xs = self._each("reduce", "xs", xs)
        self._root("reduce", root)
        self._fits("reduce", "out", root, out, xs[root], xs[root].shape)
        word, factors = self._op("reduce", op, xs)
        ranks = {r: RankStep(source=x, root=root, factor=f) for r, (x, f) in enumerate(zip(xs, factors, strict=True))}
        x = xs[root]
        whole = out is not None and _same(x, out)
        ranks[root] = self._step(x, out, whole=whole, root=root, factor=factors[root])
        return Request("reduce", word, ranks, (root,))

    def reduce_scatter(self, xs: Sequence[Ref], op: Any, out: Sequence[Ref] | None) -> Request:
        xs = self._each("reduce_scatter", "xs", xs)
        shape = self._share("reduce_scatter", "xs", xs[0])
        outs = self._outs("reduce_scatter", out, xs, [shape] * self.size)
        word, factors = self._op("reduce_scatter", op, xs)
        ranks = {}
        for r, (x, o, f) in enumerate(zip(xs, outs, factors, strict=True)):
            if o is not None and _is_slice(o, x, r):
                ranks[r] = RankStep(both=x, factor=f, shows=slice(r * shape[0], (r + 1) * shape[0]))
            else:
                ranks[r] = self._step(x, o, shape=shape, factor=f)
        return Request("reduce_scatter", word, ranks, tuple(ranks))

    # -- copies --------------------------------------------------------------------------------------------------------

    def broadcast(self, x: Ref, out: Sequence[Ref] | None) -> Request:
        root = self._holder("broadcast", "x", x)
        outs = self._outs("broadcast", out, [x] * self.size, [x.shape] * self.size)
        makes = (x.dtype.name, x.shape)
        ranks = {
            r: RankStep(target=o, makes=None if o is not None else makes, root=root)
            for r, o in enumerate(outs)
            if r != root
        }
        mine = outs[root]
        ranks[root] = self._step(x, mine, whole=mine is not None and _same(x, mine), root=root)
        return Request("broadcast", "sum", dict(sorted(ranks.items())), tuple(range(self.size)))

    def all_gather(self, xs: Sequence[Ref], out: Sequence[Ref] | None) -> Request:
        xs = self._each("all_gather", "xs", xs)
        shape = self._gathered(xs[0])
        outs = self._outs("all_gather", out, xs, [shape] * self.size)
        ranks = {
            r: RankStep(both=o) if o is not None and _is_slice(x, o, r) else self._step(x, o, shape=shape)
            for r, (x, o) in enumerate(zip(xs, outs, strict=True))
        }
        return Request("all_gather", "sum", ranks, tuple(ranks))

    def gather(self, xs: Sequence[Ref], root: int, out: Ref | None) -> Request:
        xs = self._each("gather", "xs", xs)
        self._root("gather", root)
        shape = self._gathered(xs[0])
        self._fits("gather", "out", root, out, xs[root], shape)
        ranks = {r: RankStep(source=x, root=root) for r, x in enumerate(xs)}
        if out is not None and _is_slice(xs[root], out, root):
            ranks[root] = RankStep(both=out, root=root)
        else:
            ranks[root] = self._step(xs[root], out, shape=shape, root=root)
        return Request("gather", "sum", ranks, (root,))

    def scatter(self, x: Ref, out: Sequence[Ref] | None) -> Request:
        root = self._holder("scatter", "x", x)
        shape = self._share("scatter", "x", x)
        outs = self._outs("scatter", out, [x] * self.size, [shape] * self.size)
        makes = (x.dtype.name, shape)
        ranks = {r: RankStep(target=o, makes=None if o is not None else makes, root=root) for r, o in enumerate(outs)}
        mine = outs[root]
        if mine is not None and _is_slice(mine, x, root):
            ranks[root] = RankStep(both=x, root=root, shows=slice(root * shape[0], (root + 1) * shape[0]))
        else:
            ranks[root] = self._step(x, mine, shape=shape, root=root)
        return Request("scatter", "sum", ranks, tuple(ranks))

    def all_to_all(self, xs: Sequence[Ref], out: Sequence[Ref] | None) -> Request:
        xs = self._each("all_to_all", "xs", xs)
        self._share("all_to_all", "xs", xs[0])
        outs = self._outs("all_to_all", out, xs, [x.shape for x in xs])
        ranks = {r: self._step(x, o) for r, (x, o) in enumerate(zip(xs, outs, strict=True))}
        return Request("all_to_all", "sum", ranks, tuple(ranks))

    def all_to_all_v(self, xs: Sequence[Ref], counts: Any, out: Sequence[Ref] | None) -> Request:
        xs = self._each("all_to_all_v", "xs", xs, alike=False)
        n = self.size
        try:
            rows = [[int(c) for c in row] for row in counts]
        except (TypeError, ValueError):
            raise TypeError(f"all_to_all_v: counts is {counts!r}; pass {n} x {n} integers") from None
        if [len(row) for row in rows] != [n] * n or any(c < 0 for row in rows for c in row):
            raise ShapeError(f"all_to_all_v: counts is {rows}; pass {n} x {n} integers >= 0, rows of each rank to each")
        rest = xs[0].shape[1:]
        for r, x in enumerate(xs):
            if x.ndim == 0 or x.shape[1:] != rest or x.shape[0] != sum(rows[r]):
                want = (sum(rows[r]), *rest)
                raise ShapeError(f"all_to_all_v: xs[{r}] is {x.layout!r}; by counts[{r}] its shape must be {want}")
        shapes = [(sum(row[r] for row in rows), *rest) for r in range(n)]
        outs = self._outs("all_to_all_v", out, xs, shapes)
        width = 1
        for extent in rest:
            width *= extent
        flat = tuple(c * width for row in rows for c in row)
        ranks = {
            r: self._step(x, o, shape=s, counts=flat) for r, (x, o, s) in enumerate(zip(xs, outs, shapes, strict=True))
        }
        return Request("all_to_all_v", "sum", ranks, tuple(ranks))

    def send(self, x: Ref, to: int, out: Ref | None) -> Request:
        source = self._holder("send", "x", x)
        self._root("send", to, "to")
        if to == source:
            raise ShapeError(f"send: x is on rank {to} already; copy it there (dev.copy)")
        self._fits("send", "out", to, out, x, x.shape)
        makes = None if out is not None else (x.dtype.name, x.shape)
        ranks = {source: RankStep(source=x, root=to), to: RankStep(target=out, makes=makes, root=source)}
        return Request("send", "sum", ranks, (to,), {to: "recv"})

    def barrier(self) -> Request:
        return Request("barrier", "sum", {r: RankStep() for r in range(self.size)}, ())

    # -- checks --------------------------------------------------------------------------------------------------------

    def _step(
        self, x: Ref, out: Ref | None, *, whole: bool = False, shape: tuple[int, ...] | None = None, **more: Any
    ) -> RankStep:
        if whole:
            return RankStep(both=out, **more)
        makes = None if out is not None else (x.dtype.name, x.shape if shape is None else shape)
        return RankStep(source=x, target=out, makes=makes, **more)

    def _each(self, kind: str, name: str, xs: Sequence[Ref], *, alike: bool = True) -> list[Ref]:
        try:
            refs = list(xs)
        except TypeError:
            raise TypeError(f"{kind}: {name} is {type(xs).__name__}; pass a ref of each rank, in their order") from None
        if len(refs) != self.size:
            raise ShapeError(f"{kind}: {name} has {len(refs)} refs; the world has {self.size} ranks, each has one")
        for rank, ref in enumerate(refs):
            self._here(kind, f"{name}[{rank}]", rank, ref)
            first = refs[0].layout
            if ref.dtype is not first.dtype or (alike and ref.shape != first.shape):
                raise ShapeError(f"{kind}: {name}[{rank}] is {ref.layout!r}, and {name}[0] is {first!r}; all are alike")
        return refs

    def _here(self, kind: str, name: str, rank: int, ref: Any) -> None:
        if not isinstance(ref, GpuRef):
            raise TypeError(f"{kind}: {name} is {type(ref).__name__}; pass a GpuRef of {self._devices[rank].name}")
        ref.access()
        if ref.device_id != self._devices[rank].uuid:
            raise DeviceMismatch(
                f"{kind}: {name} is on {ref.device}; rank {rank} is {self._devices[rank].name}, copy it there"
            )
        if not ref.layout.contiguous:
            raise ShapeError(f"{kind}: {name} is {ref.layout!r}; it must have no gaps (dev.copy)")

    def _holder(self, kind: str, name: str, ref: Any) -> int:
        if not isinstance(ref, GpuRef):
            raise TypeError(f"{kind}: {name} is {type(ref).__name__}; pass the GpuRef of the rank that sends it")
        rank = self._rank_of.get(ref.device_id)
        if rank is None:
            raise DeviceMismatch(f"{kind}: {name} is on {ref.device}, which is not a rank of this world")
        self._here(kind, name, rank, ref)
        return rank

    def _root(self, kind: str, root: Any, name: str = "root") -> None:
        if not isinstance(root, int) or isinstance(root, bool):
            raise TypeError(f"{kind}: {name} is {root!r}; pass the number of a rank")
        if not 0 <= root < self.size:
            raise ShapeError(f"{kind}: {name} is {root}; the ranks are 0 to {self.size - 1}")

    def _outs(
        self, kind: str, out: Sequence[Ref] | None, xs: Sequence[Ref], shapes: Sequence[tuple[int, ...]]
    ) -> list[Ref | None]:
        if out is None:
            return [None] * self.size
        refs = list(out)
        if len(refs) != self.size:
            raise ShapeError(f"{kind}: out has {len(refs)} refs; the world has {self.size} ranks, each has one")
        for rank, (ref, x, shape) in enumerate(zip(refs, xs, shapes, strict=True)):
            self._fits(kind, f"out[{rank}]", rank, ref, x, shape)
        return [*refs]

    def _fits(self, kind: str, name: str, rank: int, out: Any, x: Ref, shape: tuple[int, ...]) -> None:
        if out is None:
            return
        self._here(kind, name, rank, out)
        if out.dtype is not x.dtype or out.shape != shape:
            raise ShapeError(f"{kind}: {name} is {out.layout!r}; it must be {x.dtype} of shape {shape}")

    def _share(self, kind: str, name: str, x: Ref) -> tuple[int, ...]:
        if x.ndim == 0 or x.shape[0] % self.size:
            raise ShapeError(f"{kind}: {name} is {x.layout!r}; its first axis is split over {self.size} ranks evenly")
        return (x.shape[0] // self.size, *x.shape[1:])

    def _gathered(self, x: Ref) -> tuple[int, ...]:
        return (self.size,) if x.ndim == 0 else (self.size * x.shape[0], *x.shape[1:])

    def _op(self, kind: str, op: Any, xs: Sequence[Ref]) -> tuple[ReduceOp, list[Any]]:
        dtype = xs[0].dtype
        if kind in REDUCTIONS and dtype not in REDUCED:
            raise ShapeError(
                f"{kind}: xs are {dtype}, which cannot be reduced; these can: {', '.join(map(str, REDUCED))}"
            )
        if isinstance(op, PreMulSum):
            factors = op.of(self.size)
            for rank, factor in enumerate(factors):
                if isinstance(factor, Operand):
                    self._factor(kind, rank, factor, xs[rank].layout)
                elif isinstance(factor, bool) or not isinstance(factor, int | float):
                    raise TypeError(
                        f"{kind}: the factor of rank {rank} is {factor!r}; pass a real number, or a 0-d ref"
                    )
                elif dtype.np.kind in "iu" and not (bounds := np.iinfo(dtype.np)).min <= factor <= bounds.max:
                    raise ShapeError(
                        f"{kind}: the factor of rank {rank} is {factor}; xs are {dtype}, which holds the integers from "
                        f"{bounds.min} to {bounds.max}"
                    )
            return "sum", factors
        if op not in WORDS:
            raise ShapeError(f"{kind}: op is {op!r}; use one of {', '.join(WORDS)}, or a PreMulSum")
        return op, [None] * self.size

    def _factor(self, kind: str, rank: int, factor: Any, layout: Layout) -> None:
        self._here(kind, f"the factor of rank {rank}", rank, factor)
        if factor.ndim or factor.dtype is not layout.dtype:
            raise ShapeError(f"{kind}: the factor of rank {rank} is {factor.layout!r}; it must be a 0-d {layout.dtype}")


def _same(a: Ref, b: Ref) -> bool:
    return a.allocation is b.allocation and a.offset == b.offset and a.layout == b.layout


def _is_slice(part: Ref, whole: Ref, rank: int) -> bool:
    """True if ``part`` is the slice of ``whole`` that belongs to ``rank``: both are one array, used in place."""
    return part.allocation is whole.allocation and part.offset == whole.offset + rank * part.nbytes
