"""Plans of attention over whole arrays, of its gradients, and of merged parts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from callboard.backends.torch.attention.sequence import Extras, attend, gradients, work
from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.errors import ShapeError
from callboard.core.library import plans
from callboard.core.op import info_of
from callboard.core.operand import Role
from callboard.kernel.attention import Backward, BackwardBias, BackwardSink, Forward, Merge

__all__ = ["Call", "backward", "backward_sink", "flat", "forward", "heads_first", "merge", "shown", "spread"]


def heads_first(x: Tensor, order: str) -> Tensor:
    """An operand as ``[batch, heads, rows, dim]``."""
    return x.transpose(0, 1)[None] if x.ndim == 3 else x if order == "bhsd" else x.transpose(1, 2)


def spread(x: Tensor, ndim: int, order: str) -> Tensor:
    """``[batch, heads, rows, dim]`` in the order of an operand with so many axes."""
    return x[0].transpose(0, 1) if ndim == 3 else x if order == "bhsd" else x.transpose(1, 2)


def flat(lse: Tensor, ndim: int) -> Tensor:
    """Log-sum-exps ``[batch, heads, rows]`` beside an operand with so many axes; also the way back."""
    return lse if ndim == 4 else lse[0].T if lse.ndim == 3 else lse.T[None]


def shown(x: Tensor) -> str:
    """Numbers for an error."""
    return np.array2string(x.cpu().numpy(), threshold=8)


class Sequenced(NamedTuple):
    """A sequence of a call: where its queries and its keys are, and what is added to its scores."""

    q: Any
    k: Any
    item: int
    extras: Extras


class Call:
    """A message over whole arrays: its operands by name, and its sequences."""

    def __init__(self, op: Any) -> None:
        self._tag = type(op).__struct_config__.tag
        self.problem, self.ndim, self.order = op.problem(), op.q.ndim, op.layout
        self._names = [field.name for field in info_of(type(op)).dynamic if field.role is not Role.OUT]
        at = 0 if op.q.ndim == 3 else 2 if op.layout == "bhsd" else 1
        self._rows = op.q.shape[at], op.k.shape[at]

    def named(self, given: Sequence[Any]) -> dict[str, Any]:
        """The operands by name."""
        return dict(zip(self._names, given, strict=True))

    def first(self, x: Tensor) -> Tensor:
        """An operand with its heads before its rows."""
        return heads_first(x, self.order)

    def last(self, x: Tensor) -> Tensor:
        """The inverse of :meth:`first`."""
        return spread(x, self.ndim, self.order)

    def sequences(self, given: Mapping[str, Any]) -> Iterator[Sequenced]:
        """The sequences of a call.

        Raises:
            ShapeError: Lengths leave the operands; names the operand.
        """
        ragged, bias, slopes = self.problem.ragged, given["bias"], given["alibi_slopes"]
        spans = [self._spans(which, given, rows) for which, rows in zip("qk", self._rows, strict=True)]
        for number, (q, k) in enumerate(zip(*spans, strict=True)):
            item = 0 if ragged else number
            own = None if bias is None else bias[min(item, bias.shape[0] - 1)][:, : q.stop, : k.stop]
            own_slopes = slopes if slopes is None or slopes.ndim == 1 else slopes[number]
            extras = Extras(own, own_slopes, number, given["dropout_seed"], given["dropout_offset"])
            yield Sequenced((item, slice(None), q), (item, slice(None), k), item, extras)

    def _spans(self, which: str, given: Mapping[str, Any], rows: int) -> list[slice]:
        problem, longest = self.problem, self.problem.seq_q if which == "q" else self.problem.seq_k
        if problem.ragged:
            return starts_of(self._tag, f"cu_seqlens_{which}", given[f"cu_seqlens_{which}"], rows, longest)
        lengths = given[f"seqlens_{which}"]
        if lengths is None:
            return [slice(0, rows)] * problem.batch
        if bool(((lengths < 0) | (lengths > rows)).any()):
            raise ShapeError(f"{self._tag}: seqlens_{which} is {shown(lengths)}; lengths lie between 0 and {rows}")
        return [slice(0, n) for n in lengths.tolist()]


def starts_of(tag: str, name: str, starts: Tensor, rows: int, longest: int) -> list[slice]:
    """Where packed sequences are.

    Raises:
        ShapeError: They descend, or leave the rows.
    """
    at = starts.tolist()
    steps = [b - a for a, b in pairwise(at)]
    if at[0] != 0 or min(steps) < 0 or at[-1] > rows or max(steps) > longest:
        raise ShapeError(
            f"{tag}: {name} is {shown(starts)}; it must ascend from 0 to at most {rows}, by at most {longest}"
        )
    return [slice(a, b) for a, b in pairwise(at)]


@plans(Forward)
def forward(library: TorchLibrary, op: Forward) -> Plan:
    """Return the sums of values, and log-sum-exps."""
    call = Call(op)

    def compute(*given: Any) -> tuple[Tensor, Tensor]:
        named = call.named(given)
        out, lse = attended(call, named, *(call.first(named[name]) for name in "qkv"))
        return call.last(out), flat(lse, call.ndim)

    return library.planned(op, compute)


def attended(call: Call, named: Mapping[str, Any], q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """All sequences of a call, of operands with heads first."""
    wide = work(q)
    out, lse = wide.new_zeros(*q.shape[:-1], v.shape[-1]), wide.new_full(q.shape[:-1], -math.inf)
    for s in call.sequences(named):
        out[s.q], lse[s.q] = attend(q[s.q], k[s.k], v[s.k], call.problem.params, s.extras, named["sink"])
    return out, lse


def all_gradients(call: Call, named: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> tuple[list[Tensor], Any]:
    """The gradients of all sequences, with heads first, and that of the bias."""
    sums = [torch.zeros_like(work(arrays[name])) for name in "qkv"]
    bias, lse = named["bias"], flat(named["lse"], call.ndim)
    dbias: Any = None if bias is None else torch.zeros(bias.shape, dtype=torch.float64, device=bias.device)
    for s in call.sequences(named):
        parts = (
            arrays["dout"][s.q],
            arrays["out"][s.q],
            lse[s.q],
            arrays["q"][s.q],
            arrays["k"][s.k],
            arrays["v"][s.k],
        )
        found, own = gradients(*parts, call.problem.params, s.extras)
        for total, place, part in zip(sums, (s.q, s.k, s.k), found, strict=True):
            total[place] += part
        if own is not None and dbias is not None and bias is not None:
            dbias[min(s.item, bias.shape[0] - 1)][:, : own.shape[1], : own.shape[2]] += own
    return sums, dbias


@plans(Backward, BackwardBias)
def backward(library: TorchLibrary, op: Any) -> Plan:
    """Return the gradients."""
    call = Call(op)

    def compute(*given: Any) -> Any:
        named = call.named(given)
        sums, dbias = all_gradients(call, named, {n: call.first(named[n]) for n in ("q", "k", "v", "out", "dout")})
        found = [call.last(x) for x in sums]
        return (*found, dbias) if isinstance(op, BackwardBias) else tuple(found)

    return library.planned(op, compute)


@plans(BackwardSink)
def backward_sink(library: TorchLibrary, op: BackwardSink) -> Plan:
    """Return the gradient of the sink."""

    def compute(dout: Tensor, out: Tensor, lse: Tensor, sink: Tensor) -> Tensor:
        logs = flat(lse, op.out.ndim)
        seen = ~torch.isneginf(logs)
        weights = torch.exp(sink.to(torch.float64)[:, None] - torch.where(seen, logs, 0))
        one, other = (heads_first(x, op.layout).to(torch.float64) for x in (dout, out))
        return -torch.where(seen, weights * (one * other).sum(-1), 0).sum((0, 2))

    return library.planned(op, compute)


@plans(Merge)
def merge(library: TorchLibrary, op: Merge) -> Plan:
    """Return the whole from parts, by their log-sum-exps."""
    ndim = op.outs[0].ndim

    def compute(outs: Sequence[Tensor], lses: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        logs = torch.stack([flat(x, ndim) for x in lses])
        whole = torch.logsumexp(logs, 0)
        weights = torch.exp(logs - torch.where(torch.isneginf(whole), 0, whole))[..., None]
        parts = torch.stack([work(heads_first(x, op.layout)) for x in outs])
        found = torch.where(weights == 0, 0, weights * parts).sum(0)
        return spread(found, ndim, op.layout), flat(whole, ndim)

    return library.planned(op, compute)
