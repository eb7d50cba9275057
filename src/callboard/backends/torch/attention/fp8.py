"""Plans of attention in 8 bits: operands are multiplied out to f32, results rounded again."""

from typing import Any

from callboard.backends.torch.attention.whole import Call, all_gradients, attended, flat
from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.dtype import DType
from callboard.core.library import plans
from callboard.kernel.attention import BackwardFp8, ForwardFp8

__all__ = ["backward", "forward"]

LARGEST = {"f8_e4m3": 448.0, "f8_e5m2": 57344.0}


def _scaled(x: Tensor, scale: Tensor | None) -> Tensor:
    x = x.to(torch.float32)
    return x if scale is None else x * scale


def _narrowed(x: Tensor, scale: Tensor | None, dtype: DType) -> Tensor:
    """Scaled, and saturated where it is out of range."""
    return _scaled(x, scale).clamp(-LARGEST[dtype.name], LARGEST[dtype.name])


def _largest(x: Tensor) -> Tensor:
    return x.abs().max() if x.numel() else torch.zeros((), device=x.device)


@plans(ForwardFp8)
def forward(library: TorchLibrary, op: ForwardFp8) -> Plan:
    """Return the sums of values, log-sum-exps, and the largest of the former."""
    call = Call(op)

    def compute(*given: Any) -> tuple[Tensor, ...]:
        named = call.named(given)
        arrays = [call.first(_scaled(named[name], named[f"scale_{name}"])) for name in "qkv"]
        out, lse = attended(call, named, *arrays)
        return call.last(_narrowed(out, named["scale_out"], op.q.dtype)), flat(lse, call.ndim), _largest(out)

    return library.planned(op, compute)


@plans(BackwardFp8)
def backward(library: TorchLibrary, op: BackwardFp8) -> Plan:
    """Return the gradients, and the largest of each."""
    call = Call(op)
    scales = {"q": "scale_q", "k": "scale_k", "v": "scale_v", "dout": "scale_dout", "out": "descale_out"}

    def compute(*given: Any) -> tuple[Tensor, ...]:
        named = call.named(given)
        arrays = {name: call.first(_scaled(named[name], named[scale])) for name, scale in scales.items()}
        sums, _ = all_gradients(call, named, arrays)
        results = [_narrowed(x, named[f"scale_d{n}"], op.dout.dtype) for x, n in zip(sums, "qkv", strict=True)]
        return (*(call.last(x) for x in results), *map(_largest, sums))

    return library.planned(op, compute)
