"""Attention whose operands are of 8 bits: multiplied out to f32, computed as any other, and rounded again."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.attention.backward import Part
from callboard.backends.cpu.attention.calls import Call, given, lse_heads_first
from callboard.backends.cpu.attention.forward import attend
from callboard.backends.cpu.attention.sequences import Array, heads_first, optional
from callboard.backends.cpu.lowprec import encode_f8
from callboard.backends.cpu.views import viewer
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.library import plans
from callboard.core.operand import Operand
from callboard.kernel.attention import BackwardFp8, ForwardFp8

__all__ = ["backward_fp8", "forward_fp8"]

view_number = viewer(layout_of(DTYPES["f32"], ()))


@plans(ForwardFp8)
def forward_fp8(op: ForwardFp8) -> Callable[..., None]:
    """The work of a message: ``work(*operands)``, with addresses in order of declaration."""
    problem, made = op.problem(), op.infer()
    call = Call(op, problem)
    wide = {name: _widened(getattr(op, name), getattr(op, f"scale_{name}"), op.layout) for name in "qkv"}
    scale_out = _number(op.scale_out)
    view_out = heads_first(given(op.out, made["out"]), op.layout)
    view_lse = lse_heads_first(given(op.lse, made["lse"]))

    def work(*operands: Any) -> None:
        named = call.named(operands)
        q, k, v = (wide[name](named[name], named[f"scale_{name}"]) for name in "qkv")
        out = np.zeros((*q.shape[:-1], v.shape[-1]), np.float32)
        lse = view_lse(named["lse"])
        lse[...] = -np.inf
        bound = call.bound(named)
        for s in bound.sequences:
            at, by = (s.item, slice(None), s.q), (s.item, slice(None), s.k)
            found = attend(q[at], k[by], v[by], problem.params, bound.extras(s), bound.sink, bound.draw(s))
            out[at], lse[at] = found
        _store(view_out(named["out"]), out, scale_out(named["scale_out"]), named["amax"])

    return work


@plans(BackwardFp8)
def backward_fp8(op: BackwardFp8) -> Callable[..., None]:
    """The work of a message: ``work(*operands)``, with addresses in order of declaration."""
    problem, made = op.problem(), op.infer()
    call = Call(op, problem)
    wide = {
        name: _widened(getattr(op, name), getattr(op, f"scale_{name}"), op.layout) for name in ("q", "k", "v", "dout")
    }
    view_made = heads_first(op.out.layout, op.layout)
    descale_out = _number(op.descale_out)
    scales = {name: _number(getattr(op, f"scale_{name}")) for name in ("dq", "dk", "dv")}
    views = {name: heads_first(given(getattr(op, name), made[name]), op.layout) for name in ("dq", "dk", "dv")}
    view_lse = lse_heads_first(op.lse.layout)

    def work(*operands: Any) -> None:
        named = call.named(operands)
        arrays = {name: widen(named[name], named[f"scale_{name}"]) for name, widen in wide.items()}
        arrays["out"] = view_made(named["out"]).astype(np.float32) * descale_out(named["descale_out"])
        lse, bound = view_lse(named["lse"]), call.bound(named)
        sums = {name: np.zeros(view(named[name]).shape, np.float32) for name, view in views.items()}
        for s in bound.sequences:
            at, by = (s.item, slice(None), s.q), (s.item, slice(None), s.k)
            Part(problem, bound.extras(s), bound.draw(s), arrays, at, by, lse[at]).add(sums, None)
        for name, view in views.items():
            _store(view(named[name]), sums[name], scales[name](named[f"scale_{name}"]), named[f"amax_{name}"])

    return work


def _widened(x: Operand, scale: Operand | None, order: Any) -> Callable[[int, int | None], Array]:
    view, number = heads_first(x.layout, order), _number(scale)

    def widen(address: int, scale: int | None) -> Array:
        found: Array = view(address).astype(np.float32) * number(scale)
        return found

    return widen


def _number(scale: Operand | None) -> Callable[[int | None], Any]:
    view = optional(scale)

    def number(address: int | None) -> Any:
        found = view(address)
        return np.float32(1 if found is None else found[()])

    return number


def _store(target: Array, values: Array, scale: Any, amax: int) -> None:
    view_number(amax)[...] = np.abs(values).max(initial=0)
    target[...] = encode_f8(values * scale, DTYPES["f8_e4m3" if "e4m3" in target.dtype.name else "f8_e5m2"])
