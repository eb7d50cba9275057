"""``callboard cutlass prebuild``: compile CUTLASS's templates of products and convolutions ahead, into the cache."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any, get_args

import msgspec

from callboard.core.dtype import DTYPES
from callboard.core.layout import Layout, layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.cutlass import Conv, ConvKind, Gemm, GroupedGemm
from callboard.kernel.cutlass.epilogue import INPUTS, UNARY, EpilogueVisitorTree, Per

__all__ = ["add_cutlass", "product_of"]

AHEAD = "callboard.backends.cuda.cutlass.ahead"
"""The backend's module that compiles; it needs no device."""
FACTORS = ("f16", "bf16", "f8_e4m3", "f32", "i8")
"""Dtypes of factors; f32 is rounded to TF32."""
RESULTS = ("f16", "bf16", "f32", "f8_e4m3", "i8", "i32")
PER = {"bias": "column", "scale": "tensor"}
"""The axis of steps that take one, without ``=AXIS``."""
STEPS = (
    "bias[=AXIS], scale[=AXIS], scale=NUMBER, residual, gate[=FUNCTION], clamp=LOW:HIGH, quantize=DTYPE, gelu=none, "
    + ", ".join(UNARY)
)
KINDS: tuple[ConvKind, ...] = get_args(ConvKind)
EXTENT = 256
"""Of all axes: a template serves every extent."""
LONG = 1 << 16
"""Of the inner axis of products whose blocks share it."""
BLOCKS = EXTENT // 128
SCALES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "tensor": ((), ()),
    "outer": ((EXTENT,), (EXTENT,)),
    "block_1d": ((EXTENT, BLOCKS), (BLOCKS, EXTENT)),
    "block_2d": ((EXTENT, BLOCKS), (BLOCKS, BLOCKS)),
}
"""Shapes of the scales of both factors."""


def add_cutlass(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "cutlass",
        help="compile templates of products ahead",
        description="Fills the cache of CUTLASS's templates. See docs/guides/cutlass.md.",
    )
    parser.set_defaults(run=lambda _: parser.print_help())
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    action = actions.add_parser(
        "prebuild",
        help="compile the templates of a product, unless they are in the cache",
        description="Compiles the templates of dev.cutlass.gemm(a, b, epilogue=...) for compute capability 9.0, one "
        "for each tiling. They serve every extent; the first call of a size measures which is the fastest. Steps of "
        f"the epilogue, in order: {STEPS}.",
    )
    action.add_argument(
        "dtype", choices=FACTORS, metavar="DTYPE", help=f"of both factors: {', '.join(FACTORS)}; f32 as TF32"
    )
    action.add_argument("steps", nargs="*", metavar="STEP", help="a step of the epilogue")
    action.add_argument("--out", choices=RESULTS, help="dtype of the result (as dev.cutlass chooses it)")
    action.add_argument("--addend", choices=RESULTS[:3], help="dtype of c, if there is one")
    action.add_argument(
        "--arrays", choices=RESULTS[:3], help="dtype of the epilogue's arrays (DTYPE; f32 beside fp8 and i8)"
    )
    action.add_argument("--transposed", choices=("a", "b", "ab"), default="", help="factors that are column-major")
    action.add_argument(
        "--scales",
        choices=SCALES,
        help="of fp8 factors: for the whole; for each row and column; for each 128 elements along k, of both, or with "
        "128x128 blocks of b",
    )
    action.add_argument("--long", action="store_true", help="also stream-K and split-K: few tiles, a long inner axis")
    action.add_argument("--groups", action="store_true", help="of grouped_gemm: few rows in a group, and many")
    action.add_argument("--conv", choices=KINDS, help="of conv(a, b, kind=...), for all filters, strides and paddings")
    action.add_argument("--dry-run", action="store_true", help="say what would be compiled")
    action.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compile a product's template; the exit code."""
    from callboard.core.errors import AccelError, UnsupportedOp

    given = arguments
    try:
        if given.conv and (given.groups or given.transposed or given.scales or given.long):
            raise ValueError("--conv goes with none of --groups, --transposed, --scales and --long")
        if given.groups and given.long:
            raise ValueError("--long goes not with --groups: grouped products are not shared along the inner axis")
        op = product_of(given.dtype, given.steps, given.out, given.addend, given.arrays, given.transposed, given.scales)
        op = shared(op) if given.long else op
        compile_ahead = importlib.import_module(AHEAD).compile_ahead
        found = grouped(op) if given.groups else [convolution(op, given.conv) if given.conv else op]
        told = [line for one in found for line in compile_ahead(one, given.dry_run)]
    except (AccelError, ValueError, TypeError) as e:
        adjacent = isinstance(e, UnsupportedOp) and DTYPES[given.dtype].itemsize != 2 and not given.conv
        cure = f"; pass --transposed b for {given.dtype}" if adjacent and given.transposed != "b" else ""
        print(f"callboard cutlass: {e}{cure}", file=sys.stderr)
        return 2
    for line in told:
        print(f"{line}, {' '.join(given.steps) or 'no epilogue'}")
    return 0


def grouped(op: Gemm) -> list[GroupedGemm]:
    """The grouped products with the dtypes, layouts and steps of a product: with few rows in a group, and with many.

    Raises:
        ShapeError: A step does not fit; names it.
    """
    groups = 2
    found = []
    for rows in (EXTENT, 4 * EXTENT):
        shapes = {"matrix": (rows, EXTENT), "column": (EXTENT,), "row": (rows,), "tensor": ()}
        kinds = {node.name: node.kind for node in op.epilogue if node.kind in INPUTS}
        arrays = zip(op.inputs, kinds.values(), strict=True)
        made = GroupedGemm(
            a=Placeholder(layout_of(op.a.dtype, (rows, EXTENT), (1, rows) if op.a.strides[0] == 1 else None)),
            b=Placeholder(layout_of(op.b.dtype, (groups, EXTENT, EXTENT), (EXTENT * EXTENT, *op.b.strides))),
            offsets=Placeholder(layout_of(DTYPES["i32"], (groups + 1,))),
            c=None if op.c is None else Placeholder(layout_of(op.c.dtype, (rows, EXTENT))),
            beta=op.beta,
            epilogue=op.epilogue,
            inputs=tuple(Placeholder(layout_of(one.dtype, shapes[kind])) for one, kind in arrays),
            out_dtype=op.out_dtype,
            engine="cutlass",
        )
        made.infer()
        found.append(made)
    return found


def convolution(op: Gemm, kind: ConvKind) -> Conv:
    """The convolution with the dtypes and steps of a product, whose result has as many rows and columns.

    Raises:
        ShapeError: A step does not fit; names it.
    """
    images, filters = (1, EXTENT // 16, 16, EXTENT), (EXTENT, 1, 1, EXTENT)
    result = filters if kind == "wgrad" else images
    shapes = {"matrix": result, "column": result[-1:], "row": result[:-1], "tensor": ()}
    kinds = {node.name: node.kind for node in op.epilogue if node.kind in INPUTS}
    arrays = zip(op.inputs, kinds.values(), strict=True)
    made = Conv(
        a=Placeholder(layout_of(op.a.dtype, images)),
        b=Placeholder(layout_of(op.b.dtype, images if kind == "wgrad" else filters)),
        c=None if op.c is None else Placeholder(layout_of(op.c.dtype, result)),
        beta=op.beta,
        epilogue=op.epilogue,
        inputs=tuple(Placeholder(layout_of(one.dtype, shapes[each])) for one, each in arrays),
        out_dtype=op.out_dtype,
        engine="cutlass",
        kind=kind,
        extent={"fprop": None, "dgrad": images[1:3], "wgrad": filters[1:3]}[kind],
    )
    made.infer()
    return made


def product_of(
    dtype: str,
    steps: Sequence[str] | EpilogueVisitorTree,
    out: str | None = None,
    addend: str | None = None,
    arrays: str | None = None,
    transposed: str = "",
    scales: str | None = None,
) -> Gemm:
    """The message whose template is compiled, with placeholders.

    Args:
        dtype: Dtype of both factors.
        steps: Steps of the epilogue (see :data:`STEPS`), or the epilogue itself.
        out: Dtype of the result; None: as ``dev.cutlass`` chooses it.
        addend: Dtype of ``c``; None: there is none.
        arrays: Dtype of the epilogue's arrays; None: that of the factors, f32 beside fp8 and i8.
        transposed: Names of the factors that are column-major.
        scales: Word of :data:`SCALES`; None: the factors have none.

    Raises:
        ValueError: There is no such step; names it.
        ShapeError: A step does not fit; names it.
    """
    tree = steps if isinstance(steps, EpilogueVisitorTree) else _tree_of(steps)
    held = arrays or ("f32" if dtype in ("f8_e4m3", "i8") else dtype)
    square, line = (EXTENT, EXTENT), (EXTENT,)
    shapes: dict[str, tuple[int, ...]] = {"matrix": square, "column": line, "row": line, "tensor": ()}
    kinds = {node.name: node.kind for node in tree.nodes if node.kind in INPUTS}
    op = Gemm(
        a=Placeholder(_factor(dtype, "a" in transposed)),
        b=Placeholder(_factor(dtype, "b" in transposed)),
        c=None if addend is None else Placeholder(layout_of(DTYPES[addend], square)),
        beta=0.0 if addend is None else 1.0,
        epilogue=() if tree == EpilogueVisitorTree() else tree.nodes,
        inputs=tuple(Placeholder(layout_of(DTYPES[held], shapes[kind])) for kind in kinds.values()),
        out_dtype=out,
        scale_a=None if scales is None else Placeholder(layout_of(DTYPES["f32"], SCALES[scales][0])),
        scale_b=None if scales is None else Placeholder(layout_of(DTYPES["f32"], SCALES[scales][1])),
        tf32=True if dtype == "f32" else None,
        engine="cutlass",
    )
    op.infer()
    return op


def shared(op: Gemm) -> Gemm:
    """The product with an inner axis that is worth sharing.

    Raises:
        ShapeError: There are scales.
    """
    a = Placeholder(_factor(op.a.dtype.name, op.a.strides[0] == 1, (EXTENT, LONG)))
    b = Placeholder(_factor(op.b.dtype.name, op.b.strides[0] == 1, (LONG, EXTENT)))
    made = msgspec.structs.replace(op, a=a, b=b)
    made.infer()
    return made


def _factor(dtype: str, transposed: bool, shape: tuple[int, int] = (EXTENT, EXTENT)) -> Layout:
    return layout_of(DTYPES[dtype], shape, (1, shape[0]) if transposed else None)


def _tree_of(steps: Sequence[str]) -> EpilogueVisitorTree:
    tree = EpilogueVisitorTree()
    for at, step in enumerate(steps):
        tree = _with(tree, step, at)
    return tree


def _with(tree: EpilogueVisitorTree, step: str, at: int) -> EpilogueVisitorTree:
    """The tree with one more step; arrays are named by their positions, as names are no part of what is compiled."""
    word, _, value = step.partition("=")
    name = f"{word}{at}"
    if step == "gelu=none":
        return tree.gelu("none")
    if word == "clamp":
        low, _, high = value.partition(":")
        return tree.clamp(_number(step, low), _number(step, high))
    if word == "scale" and value and value not in get_args(Per):
        return tree.scale(_number(step, value))
    if word in UNARY and not value:
        return tree.apply(word)
    if word in PER:
        per: Any = value or PER[word]
        return tree.bias(name, per) if word == "bias" else tree.scale(name, per)
    if word == "residual" and not value:
        return tree.residual(name)
    if word == "gate":
        return tree.gate(name, value or None)
    if word == "quantize" and value:
        return tree.quantize(value)
    raise ValueError(f"there is no step {step!r}; the steps are {STEPS}")


def _number(step: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"step {step!r}: {text!r} is no number; the steps are {STEPS}") from None
