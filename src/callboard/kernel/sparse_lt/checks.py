"""Operand checks of the messages of this package. Every error names op, operand, value and cure."""

from callboard.core.dtype import DTYPES, DType, DTypeLike, as_dtype
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout
from callboard.core.operand import Operand
from callboard.kernel.blas_lt.checks import rows
from callboard.kernel.checks import AnyOp, refuse
from callboard.kernel.sparse_lt.structured import FACTORS, StructuredRef, compressed_bytes, group_of

__all__ = ["RESULTS", "bias_dtype", "checked", "dense", "not_structured", "result_dtype"]


RESULTS: dict[str, tuple[str, ...]] = {
    "f16": ("f16",),
    "bf16": ("bf16",),
    "f32": ("f32",),
    "i8": ("i32", "i8", "f16", "bf16"),
    "f8_e4m3": ("bf16", "f16", "f32", "f8_e4m3"),
    "f8_e5m2": ("bf16", "f16", "f32", "f8_e5m2"),
}
"""Result dtypes of products, by the dtype of the factors; the first is the default."""


def dense(op: AnyOp, name: str, x: Operand) -> Layout:
    """A matrix (or batch) to be pruned, checked or compressed: row-major, of whole groups."""
    layout = x.layout
    if layout.dtype not in FACTORS:
        names = ", ".join(d.name for d in FACTORS)
        raise refuse(op, f"{name} is {layout!r}; its dtype must be one of {names}")
    rows(op, name, layout)
    whole_groups(op, name, layout.dtype, layout.shape)
    return layout


def whole_groups(op: AnyOp, name: str, dtype: DType, shape: tuple[int, ...]) -> None:
    """The last axis consists of whole groups, at least one."""
    size = group_of(dtype).size
    if shape[-1] == 0 or shape[-1] % size:
        long = f"rows of {dtype} must be a positive multiple of {size} long"
        raise refuse(op, f"{name} is {dtype}{list(shape)}: {long}; pad them with 0")


def checked(op: AnyOp, name: str, a: StructuredRef) -> DType:
    """The dtype of a structured matrix whose bytes fit its shape."""
    dtype, data = DTYPES[a.dtype], a.data
    if len(a.shape) not in (2, 3) or min(a.shape) < 0:
        raise refuse(op, f"{name}.shape is {a.shape}; it must be (outer, k) or (batch, outer, k)")
    whole_groups(op, name, dtype, a.shape)
    nbytes = compressed_bytes(dtype, a.shape)
    if data.dtype.name != "u8" or data.ndim != 1 or not data.layout.contiguous or data.size != nbytes:
        raise refuse(
            op,
            f"{name}.data is {data.layout!r}; {dtype}{list(a.shape)} has u8[{nbytes}], as sparse_lt.compress makes it",
        )
    return dtype


def result_dtype(op: AnyOp, factor: DType, out: Operand | None, named: DTypeLike | None) -> DType:
    """The dtype of a product: ``named``, or that of a given ``out``, else the factors' default."""
    allowed = RESULTS[factor.name]
    if named is not None:
        wanted = as_dtype(named)
    else:
        wanted = DTYPES[allowed[0]] if out is None else out.dtype
    if wanted.name not in allowed:
        raise refuse(op, f"out would be {wanted}; with {factor} its dtype must be one of {', '.join(allowed)}")
    return wanted


def bias_dtype(result: DType) -> DType:
    """The dtype of a bias: that of the result; f32 for an integer one, bf16 for an fp8 one."""
    if result.is_integer:
        return DTYPES["f32"]
    return DTYPES["bf16"] if result.itemsize == 1 else result


def not_structured(tag: str, layout: Layout) -> ShapeError:
    """A matrix that was to be compressed has more than its pattern allows."""
    size, kept, _ = group_of(layout.dtype)
    return ShapeError(
        f"{tag}: x is {layout!r} and not {kept}:{size}: some {size} neighbours in a row hold more than {kept} numbers "
        f"that are not 0; prune it first (sparse_lt.prune)"
    )
