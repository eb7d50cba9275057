"""Scales of fp8 factors in a template: of blocks in its main loop, all others as arrays of its epilogue."""

from typing import NamedTuple

from callboard.core.layout import Layout
from callboard.core.operand import Operand
from callboard.kernel.blas_lt.checks import BLOCK, SCALE_START, block_scales, scale_kind
from callboard.kernel.cutlass.product import Product

__all__ = ["Scale", "blocks_text", "scale_step", "scales_of"]

LEAVES = {"tensor": ("tensor", "tensor"), "outer": ("row", "column")}
"""The kinds of arrays, for ``a`` and ``b``, that scales of the product's rows and columns are."""
OUTER = {"block_1d": 1, "block_2d": BLOCK}
"""Rows of ``a``, or columns of ``b``, that share a scale."""
MAJOR = {"block_1d": "MN", "block_2d": "K"}
"""The axis that is adjacent in memory, as cuBLASLt has it."""


class Scale(NamedTuple):
    """A scale that is given.

    Attributes:
        name: ``"scale_a"`` or ``"scale_b"``.
        kind: ``"tensor"``, ``"outer"``, ``"block_1d"`` or ``"block_2d"``.
        layout: Of the array.
    """

    name: str
    kind: str
    layout: Layout

    @property
    def of_blocks(self) -> bool:
        """It changes along the inner axis."""
        return self.kind in OUTER

    @property
    def leaf(self) -> str:
        """The kind of array that it is for the epilogue; not for scales of blocks."""
        return LEAVES[self.kind][self.name == "scale_b"]


def scales_of(op: Product[object]) -> list[Scale]:
    """The scales of a message."""
    k = op.a.shape[-1]
    given: list[tuple[str, Operand | None, int]] = [
        ("scale_a", op.scale_a, op.a.shape[-2]),
        ("scale_b", op.scale_b, op.b.shape[-1]),
    ]
    found = []
    for name, scale, outer in given:
        if scale is not None:
            kind = scale_kind(block_scales(scale.shape, name == "scale_b"), outer, k)
            assert kind is not None
            found.append(Scale(name, kind, scale.layout))
    return found


def scale_step(scale: Scale) -> int:
    """The step of the axis that is not adjacent; TMA needs multiples of 16 bytes even where the axis has one block."""
    inner = int(scale.name == "scale_a")
    far = 1 - inner if scale.kind == "block_2d" else inner
    shape, strides = scale.layout.shape, scale.layout.strides
    unit = SCALE_START // scale.layout.dtype.itemsize
    return strides[far] if shape[far] > 1 else -(-shape[1 - far] // unit) * unit


TEXT = """\
using Scales = cutlass::detail::Sm90BlockwiseScaleConfig<
    {rows}, {columns}, {block}, cute::GMMA::Major::{major_a}, cute::GMMA::Major::{major_b}>;
"""
STEPS = {"MN": ("cute::_1{}", "(int)p.{name}_step"), "K": ("(int)p.{name}_step", "cute::_1{}")}


def blocks_text(scales: list[Scale]) -> str:
    """The types and functions of scales of blocks; empty if there are none."""
    if not any(scale.of_blocks for scale in scales):
        return ""
    a, b = (scale.kind for scale in scales)
    lines = [
        TEXT.format(rows=OUTER[a], columns=OUTER[b], block=BLOCK, major_a=MAJOR[a], major_b=MAJOR[b]),
    ]
    for scale, side in zip(scales, "AB", strict=True):
        outer, inner = (step.replace("{name}", scale.name) for step in STEPS[MAJOR[scale.kind]])
        lines += [
            f"static typename Scales::LayoutSF{side} layout_of_{scale.name}(const callboard::Call& p) {{",
            f"    const auto whole = Scales::tile_atom_to_shape_SF{side}(",
            "        cute::make_shape((int)p.m, (int)p.n, (int)p.k, 1));",
            f"    return {{whole.shape(), cute::make_stride(cute::make_stride(cute::_0{{}}, {outer}),",
            f"        cute::make_stride(cute::_0{{}}, {inner}), 0)}};",
            "}",
        ]
    return "\n".join([*lines, ""])
