"""Ops unsupported by cuBLASLt, decided from the message in the application, before anything is sent.

All of it holds on Hopper (compute capability 9.0) with cuBLASLt 13.1, found by asking it for plans.
"""

from typing import Any

from callboard.backends.cuda.blas_lt.fused import row_step
from callboard.backends.cuda.blas_lt.mapping import Mapping, mapping_of
from callboard.core.layout import Layout
from callboard.core.op import outputs_of
from callboard.kernel.blas_lt.checks import block_scales, is_fp8, scale_kind
from callboard.kernel.blas_lt.product import Product

__all__ = ["refuses"]

TILE = 16
"""Bytes between rows, and inner extent, of fp8 products; i8 to i8 takes multiples of 4."""
BLOCKED = 4
"""Rows and columns of a product with block scales must be multiples of this number (cuBLASLt's documentation)."""
WITH_SCALES = ("none", "relu", "bias", "relu_bias", "gelu", "gelu_bias")
"""Epilogues that are supported with scales for each block, and for each row and column."""


def refuses(op: Product[Any]) -> str | None:
    """The reason why an op is unsupported, with a cure; None if no reason is known here."""
    narrow = is_fp8(op.a.dtype)
    if not narrow and op.a.dtype.name != "i8":
        return None
    mapping = mapping_of(op, outputs_of(op))
    if mapping.out.size == 0:
        return None
    if narrow:
        return _kinds(op, mapping) or _placement(op, mapping, TILE) or _scales(op, mapping)
    return _placement(op, mapping, 4) if mapping.out.dtype.name == "i8" else None


def _kinds(op: Product[Any], mapping: Mapping) -> str | None:
    names = {op.a.dtype.name, op.b.dtype.name}
    if names == {"f8_e5m2"}:
        return "a and b are f8_e5m2; the tensor cores multiply f8_e5m2 with f8_e4m3 only"
    if mapping.out.dtype.name == "f8_e5m2" and "f8_e5m2" not in names:
        return "a and b are f8_e4m3 and out is f8_e5m2; take out_dtype='f8_e4m3' or 'bf16'"
    out, traits = mapping.out.dtype, op.traits
    if is_fp8(out) and (traits.backward or traits.grad is not None):
        return f"epilogue is {op.epilogue!r} and out is {out}; take out_dtype='bf16'"
    if out.name == "f32" and (traits.grad == "out" or op.epilogue == "gelu_aux_bias"):
        return f"epilogue is {op.epilogue!r}, a is {op.a.dtype} and out is f32; take out_dtype='bf16'"
    if mapping.k == 0:
        return "the inner extent is 0; fill out yourself (dev.fill)"
    return None


def _placement(op: Product[Any], mapping: Mapping, tile: int) -> str | None:
    """The inner axis adjacent in memory, and steps that the tensor cores can load."""
    kind = op.a.dtype
    if mapping.trans_a:
        return f"a is {op.a.layout!r}; {kind} factors need their inner axis adjacent: pass dev.copy(a) row-major"
    if not mapping.trans_b:
        return (
            f"b is {op.b.layout!r}; {kind} factors need their inner axis adjacent: keep it transposed and "
            f"pass the view dev.put(b.T.copy()).T, or set transpose_b"
        )
    steps = {"a": (mapping.a.form.ld, op.a.dtype), "b": (mapping.b.form.ld, op.b.dtype)}
    steps |= {name: (row_step(layout), layout.dtype) for name, layout in _stored(op, mapping).items()}
    wanted = "multiples of 16 bytes" if tile == TILE else f"multiples of {tile}"
    for name, (step, dtype) in steps.items():
        if step * (dtype.itemsize if tile == TILE else 1) % tile:
            return f"the rows of {name} are {step} elements apart; with {kind} they must be {wanted}: pad with zeros"
    return (
        f"the inner extent is {mapping.k}, no multiple of {tile}; pad a and b with zeros" if mapping.k % tile else None
    )


def _stored(op: Product[Any], mapping: Mapping) -> dict[str, Layout]:
    return {"out": mapping.out} | ({} if op.c is None else {"c": op.c.layout})


def _scales(op: Product[Any], mapping: Mapping) -> str | None:
    kinds = {
        name: "tensor" if scale is None else scale_kind(block_scales(scale.shape, name == "b"), outer, mapping.k)
        for name, scale, outer in (("a", op.scale_a, mapping.m), ("b", op.scale_b, mapping.n))
    }
    if set(kinds.values()) == {"tensor"}:
        return None
    if is_fp8(mapping.out.dtype):
        return f"scales are by {kinds['a']} and out is {mapping.out.dtype}; take out_dtype='bf16' or scale by tensor"
    if op.epilogue not in WITH_SCALES:
        return f"epilogue is {op.epilogue!r} and scales are by {kinds['a']}; take one of {', '.join(WITH_SCALES)}"
    if "outer" in kinds.values():
        return _adjacent("scale_a", op.scale_a) or _adjacent("scale_b", op.scale_b)
    if op.fast_accum:
        return "fast_accum is True and scales are by blocks; leave it out"
    if set(kinds.values()) == {"block_2d"}:
        return "both scales are by 128x128; scale one of the factors by 128 elements of its inner axis"
    for name, extent in (("rows of a", mapping.m), ("columns of b", mapping.n)):
        if extent % BLOCKED:
            return f"the {name} are {extent} and scales are by blocks; pad them with zeros to a multiple of {BLOCKED}"
    for name, scale in (("scale_a", op.scale_a), ("scale_b", op.scale_b)):
        assert scale is not None
        why = _blocks(name, scale.layout, kinds[name[-1]] == "block_2d")
        if why is not None:
            return why
    return None


def _adjacent(name: str, scale: Any) -> str | None:
    if scale is not None and scale.size > 1 and scale.strides[0] != 1:
        return f"{name} is {scale.layout!r}; its numbers must be adjacent: pass dev.copy({name})"
    return None


def _blocks(name: str, layout: Layout, tiles: bool) -> str | None:
    """Scales of 1x128 are ordered by the outer axis without gaps, those of 128x128 by the inner one.

    The steps of the latter are multiples of 4.
    """
    inner = 1 if name == "scale_a" else 0
    adjacent = inner if tiles else 1 - inner
    near, far = layout.shape[adjacent], layout.shape[1 - adjacent]
    step, far_step = layout.strides[adjacent], layout.strides[1 - adjacent]
    axis = ("rows", "columns")[adjacent]
    if near > 1 and step != 1:
        return f"{name} is {layout!r}; its {axis} must be adjacent in memory: pass dev.copy({name}.T).T"
    wanted = -(-near // 4) * 4 if tiles else near
    if far > 1 and far_step != wanted:
        return f"{name} is {layout!r}; its {axis} must be {wanted} apart in memory: pass a view of an array padded so"
    return None
