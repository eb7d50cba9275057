"""Checks of operands for the messages of this package. Every error names op, operand, value and cure."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from callboard.core.dtype import DTYPES, DType, DTypeLike, as_dtype
from callboard.core.layout import Layout, layout_of
from callboard.core.operand import Operand
from callboard.core.ref import GpuRef
from callboard.kernel.blas.strides import Matrix, matrix_of
from callboard.kernel.checks import AnyOp, refuse

__all__ = [
    "Stack",
    "aux_layout",
    "bias_dtype",
    "block_scales",
    "check_bias",
    "check_scale",
    "check_scale_start",
    "check_scales",
    "check_start",
    "is_fp8",
    "kept_dtype",
    "result_dtype",
    "rows",
    "scale_dtype",
    "scale_kind",
    "stack",
]

ScaleKind = Literal["tensor", "outer", "block_1d", "block_2d"]

BLOCK = 128
"""Elements that share a scale along a blocked axis."""
SCALE_START = 16
"""Alignment in bytes of the start of block scales."""
MASK_BITS = 128
"""The number of bits that a row of a ReLU mask is a multiple of."""

RESULTS: dict[str, tuple[str, ...]] = {
    "f16": ("f16", "f32"),
    "bf16": ("bf16", "f32"),
    "f32": ("f32",),
    "f64": ("f64",),
    "i8": ("i32", "i8"),
    "f8_e4m3": ("bf16", "f16", "f32", "f8_e4m3", "f8_e5m2"),
    "f8_e5m2": ("bf16", "f16", "f32", "f8_e4m3", "f8_e5m2"),
}
"""Dtypes of results, by the dtype of the factors; the first is the default."""


class Stack(NamedTuple):
    """One matrix, or several at one distance.

    Attributes:
        form: Layout of each matrix.
        matrices: Number of matrices; 1 for a matrix that all products share.
        step: Distance in elements, 0 for a matrix that serves all.
        stacked: The operand has three axes.
    """

    form: Matrix
    matrices: int
    step: int
    stacked: bool


def is_fp8(dtype: DType) -> bool:
    """True for the 8-bit floating types."""
    return dtype.name in ("f8_e4m3", "f8_e5m2")


def stack(op: AnyOp, name: str, layout: Layout) -> Stack:
    """The layout as matrices that cuBLASLt can name."""
    if layout.ndim not in (2, 3):
        raise refuse(op, f"{name} is {layout!r}; it must have 2 axes, or 3 for a batch of matrices")
    stacked = layout.ndim == 3
    one = layout_of(layout.dtype, layout.shape[-2:], layout.strides[-2:])
    form = matrix_of(one)
    if form is None:
        raise refuse(
            op, f"{name} is {layout!r}: rows or columns must have no gaps and steps be whole; copy it first (dev.copy)"
        )
    matrices = layout.shape[0] if stacked else 1
    step = layout.strides[0] if matrices > 1 else 0
    if step < 0:
        raise refuse(op, f"{name} is {layout!r}: its matrices run backwards; copy it first (dev.copy)")
    return Stack(form, matrices, step, stacked)


def rows(op: AnyOp, name: str, layout: Layout) -> Stack:
    """The same for addends and outputs: row-major only."""
    found = stack(op, name, layout)
    if found.form.transposed:
        raise refuse(op, f"{name} is {layout!r}, column-major; it must be row-major: pass dev.copy({name})")
    return found


def result_dtype(op: AnyOp, a: Operand, b: Operand, out: Operand | None, named: DTypeLike | None) -> DType:
    """The dtype of the result: ``named``, or that of a given ``out``, else the factors' default."""
    if a.dtype.name not in RESULTS:
        raise refuse(op, f"a is {a.layout!r}; its dtype must be one of {', '.join(RESULTS)}")
    if b.dtype is not a.dtype and not (is_fp8(a.dtype) and is_fp8(b.dtype)):
        raise refuse(
            op,
            f"b is {b.layout!r} and a is {a.layout!r}: both must have one dtype (x.astype converts; f8_e4m3 and "
            "f8_e5m2 mix)",
        )
    allowed = RESULTS[a.dtype.name]
    if named is not None:
        wanted = as_dtype(named)
    else:
        wanted = DTYPES[allowed[0]] if out is None else out.dtype
    if wanted.name not in allowed:
        raise refuse(op, f"out would be {wanted}; with {a.dtype} its dtype must be one of {', '.join(allowed)}")
    return wanted


def scale_dtype(factor: DType, result: DType) -> DType:
    """The dtype of ``alpha`` and ``beta`` as 0-d arrays."""
    if factor.name == "i8" and result.name == "i32":
        return DTYPES["i32"]
    return DTYPES["f64"] if factor.name == "f64" else DTYPES["f32"]


def bias_dtype(factor: DType, result: DType) -> DType:
    """The dtype of a bias and of its gradient: that of the result; for fp8 factors one of 16 bits."""
    if is_fp8(factor):
        return DTYPES["f16" if result.name == "f16" else "bf16"]
    return result


def kept_dtype(result: DType) -> DType:
    """The dtype of ``c`` and of GELU's aux: that of the result; bf16 for an fp8 one."""
    return DTYPES["bf16"] if is_fp8(result) else result


def check_bias(op: AnyOp, bias: Operand, n: int, batch: int, stacked: bool, dtype: DType) -> None:
    """``[n]``, or ``[batch, n]`` if the result is a batch."""
    shapes = [(n,), (batch, n)] if stacked else [(n,)]
    if bias.dtype is not dtype or bias.shape not in shapes:
        wanted = " or ".join(str(list(s)) for s in shapes)
        raise refuse(op, f"bias is {bias.layout!r}, expected {dtype}{wanted}: one number for each column of out")
    if n > 1 and bias.strides[-1] != 1:
        raise refuse(op, f"bias is {bias.layout!r}; its last axis must have no gaps: pass dev.copy(bias)")


def check_start(op: AnyOp, name: str, vector: Operand | None) -> None:
    """Check that vectors of 16-bit numbers start at whole words, which cuBLASLt requires.

    Placeholders have no address.
    """
    if isinstance(vector, GpuRef) and vector.dtype.itemsize == 2 and vector.offset % 4:
        start = f"{name} is {vector.layout!r} and starts {vector.offset} bytes into its buffer"
        raise refuse(op, f"{start}, which must be a multiple of 4: pass dev.copy({name})")


def check_scale_start(op: AnyOp, name: str, scale: Operand | None) -> None:
    """Check the alignment of block scales that cuBLASLt's documentation requires. Placeholders have no address."""
    if isinstance(scale, GpuRef) and scale.ndim == 2 and scale.offset % SCALE_START:
        start = f"{name} is {scale.layout!r} and starts {scale.offset} bytes into its buffer"
        raise refuse(op, f"{start}, which must be a multiple of {SCALE_START}: keep it in an array of its own")


def aux_layout(activation: str, shape: tuple[int, ...], dtype: DType) -> Layout:
    """The layout of the auxiliary output for a result of ``shape``: a bit mask (ReLU) or the pre-activation (GELU)."""
    if activation == "relu":
        return layout_of(DTYPES["u8"], (*shape[:-1], -(-shape[-1] // MASK_BITS) * MASK_BITS // 8))
    return layout_of(dtype, shape)


def scale_kind(shape: tuple[int, ...], outer: int, k: int) -> ScaleKind | None:
    """The kind of a scale of this shape for a factor of ``[outer, k]``; None if the shape fits no kind.

    Two kinds with the same shape also hold the same values.
    """
    blocks = -(-k // BLOCK)
    kinds: dict[tuple[int, ...], ScaleKind] = {
        (-(-outer // BLOCK), blocks): "block_2d",
        (outer, blocks): "block_1d",
        (outer,): "outer",
        (): "tensor",
    }
    return kinds.get(shape)


def block_scales(shape: tuple[int, ...], transposed: bool) -> tuple[int, ...]:
    """The shape of a scale as if its factor were ``[outer, k]``."""
    return shape[::-1] if transposed else shape


def check_scale(op: AnyOp, name: str, scale: Operand | None, factor: Operand, outer: int, k: int) -> ScaleKind | None:
    """The kind of a scale of ``a`` (``[m, k]``) or ``b`` (``[k, n]``)."""
    if scale is None:
        return None
    of = name[-1]
    if not is_fp8(factor.dtype):
        raise refuse(
            op, f"{name} is {scale.layout!r} and {of} is {factor.dtype}; only fp8 factors are scaled (use alpha)"
        )
    kind = scale_kind(block_scales(scale.shape, of == "b"), outer, k)
    blocks, tiles = -(-k // BLOCK), -(-outer // BLOCK)
    if scale.dtype is not DTYPES["f32"] or kind is None:
        wanted: list[list[int]] = [[], [outer]]
        wanted += [[blocks, outer], [blocks, tiles]] if of == "b" else [[outer, blocks], [tiles, blocks]]
        raise refuse(op, f"{name} is {scale.layout!r}, expected f32 of shape {' or '.join(map(str, wanted))}")
    if kind != "tensor" and factor.ndim == 3:
        raise refuse(op, f"{name} is {scale.layout!r}; the matrices of a batch share one scale: pass a 0-d array")
    return kind


def check_scales(
    op: AnyOp, scales: "Sequence[Operand | None]", factors: Sequence[Operand], m: int, n: int, k: int
) -> None:
    """Check ``scale_a`` and ``scale_b`` of a product: each one, and that both are of kinds that go together."""
    kinds = tuple(
        check_scale(op, f"scale_{name}", scale, factor, outer, k)
        for name, scale, factor, outer in zip("ab", scales, factors, (m, n), strict=True)
    )
    if (kinds[0] or "tensor") != (kinds[1] or "tensor") and set(kinds) != {"block_1d", "block_2d"}:
        raise refuse(
            op,
            f"scale_a scales by {kinds[0] or 'tensor'} and scale_b by {kinds[1] or 'tensor'}; both must scale by "
            f"tensor, by row and column, or by blocks",
        )
