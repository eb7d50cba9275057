"""Expressions on elements."""

from typing import Annotated, Any, ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Out, Role
from callboard.kernel.checks import refuse
from callboard.kernel.elementwise.actor import ElementwiseActor
from callboard.kernel.elementwise.language import read
from callboard.kernel.elementwise.program import Program, compiled
from callboard.kernel.elementwise.promotion import ELEMENTS, Weak
from callboard.kernel.elementwise.shapes import broadcast

__all__ = [
    "Expressed",
    "Map",
    "MapMany",
    "PlainNumber",
    "check_operands",
    "kinds_of",
    "program_of",
    "shape_of_operands",
]

PlainNumber = Annotated[int | float | complex, Role.SCALAR]
"""A number of the call; no array."""

_KINDS: dict[type, Weak] = {int: "int", float: "float", complex: "complex"}


class Expressed(Op[ElementwiseActor, Any]):
    """Base of messages with an expression.

    Args:
        expression: A text of :mod:`callboard.kernel.elementwise.language`.
        operands: The arrays, in the order in which their names first appear in the text; bool, integers of 8 to 64
            bits, f16, bf16, f32, f64, c64 or c128, any strides, shapes that broadcast.
        scalars: Numbers of the call. They are *weak*: each takes the dtype of the array beside it.
        numbers: The names of the scalars, in order. All other names of the text are operands'.
        bools: Names of the scalars that are bools.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ELEMENTS

    expression: str
    operands: tuple[In, ...]
    scalars: tuple[PlainNumber, ...] = ()
    numbers: tuple[str, ...] = ()
    bools: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scalars and int in map(type, self.scalars):
            self._check_integers()

    def _check_integers(self) -> None:
        """An integer must fit the dtype beside it."""
        program_of(self).values(self.scalars)


class Map(Expressed, tag="elementwise.map"):
    """The last statement of an expression, for each element: ``"z = alpha * x + max(y, 0)"``.

    Args:
        out: The result's dtype and shape, any strides; a new row-major array when None. May be an operand.
        shifts: For each operand the places by which it is rolled along each axis of the result, as ``xp.roll`` does;
            empty where none is. Operands and ``out`` then have the result's shape, and ``out`` is no operand.
    """

    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "operands")})

    out: Out | None = None
    shifts: tuple[tuple[int, ...], ...] = ()

    def infer(self) -> Outputs:
        program = program_of(self)
        (result,) = program.results
        if self.shifts:
            self._check_shifts()
        return {"out": layout_of(program.steps[result].dtype, shape_of_operands(self))}

    def _check_shifts(self) -> None:
        shape = shape_of_operands(self)
        if len(self.shifts) != len(self.operands) or any(len(by) != len(shape) for by in self.shifts):
            raise refuse(self, f"shifts is {self.shifts!r}; give each operand {len(shape)} numbers of places")
        if any(operand.shape != shape for operand in self.operands):
            raise refuse(self, f"shifts: operands that are rolled have the shape of the result, {shape}")
        if self.out is not None:
            raise refuse(self, "shifts: elements that are written would be read; leave `out` out")


class MapMany(Expressed, tag="elementwise.map_many"):
    """Several statements of an expression, for each element, in one pass over the operands.

    Args:
        keep: The names of the statements whose results are stored.
        outs: An array for each of them, of its dtype and shape, any strides. May be operands.
    """

    returns: ClassVar[tuple[str, ...]] = ("outs",)
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("outs", "operands")})

    outs: tuple[Out, ...]
    keep: tuple[str, ...]

    def _check_integers(self) -> None:
        program_of(self, self.keep).values(self.scalars)

    def infer(self) -> Outputs:
        program = program_of(self, self.keep)
        shape = shape_of_operands(self)
        if len(self.outs) != len(self.keep) or not self.keep:
            raise refuse(self, f"{len(self.outs)} outs for {len(self.keep)} results; give one for each name of keep")
        for name, out, result in zip(self.keep, self.outs, program.results, strict=True):
            wanted = layout_of(program.steps[result].dtype, shape)
            if out.dtype is not wanted.dtype or out.shape != shape:
                raise refuse(self, f"outs: that of {name} is {out.layout!r}, expected {wanted!r}")
        return {}


def program_of(op: Expressed, results: tuple[str, ...] = ()) -> Program:
    """The expression with the dtypes of this message.

    Raises:
        ShapeError: See :func:`compiled`; or the message has another number of arrays or numbers than the text names.
    """
    check_operands(op, results)
    return compiled(op.expression, tuple(operand.dtype for operand in op.operands), kinds_of(op), results)


def kinds_of(op: Expressed) -> tuple[tuple[str, Weak], ...]:
    """The numbers of a message, and their kinds."""
    bools = op.bools
    return tuple(
        (name, "bool" if name in bools else _KINDS[type(value)])
        for name, value in zip(op.numbers, op.scalars, strict=True)
    )


def check_operands(op: Expressed, results: tuple[str, ...] = ()) -> None:
    """There must be an array or a number for each name."""
    expression = read(op.expression)
    if len(op.numbers) != len(op.scalars) or len(set(op.numbers)) != len(op.numbers):
        raise refuse(op, f"{len(op.scalars)} scalars, and the names {op.numbers}; give each its own name in `numbers`")
    unknown = [name for name in (*op.numbers, *op.bools) if name not in expression.inputs]
    if unknown:
        raise refuse(op, f"{unknown[0]!r} is not an input of {expression.text!r}, which has {names(expression.inputs)}")
    arrays = [name for name in expression.inputs if name not in op.numbers]
    if len(arrays) != len(op.operands):
        raise refuse(op, f"{len(op.operands)} operands for {names(arrays)} of {expression.text!r}")
    if not arrays:
        raise refuse(op, f"{expression.text!r} has no array; dev.full(shape, number) fills one")
    for name, operand in zip(arrays, op.operands, strict=True):
        if operand.dtype not in ELEMENTS:
            allowed = ", ".join(d.name for d in ELEMENTS)
            raise refuse(op, f"{name} is {operand.layout!r}; its dtype must be one of {allowed} (x.astype converts)")
    targets = {target for target, _ in expression.statements}
    missing = [name for name in results if name not in targets]
    if missing:
        raise refuse(op, f"{missing[0]!r} is not assigned in {expression.text!r}, which assigns {names(targets)}")


def shape_of_operands(op: Expressed) -> tuple[int, ...]:
    """The shape that the operands have together.

    Raises:
        ShapeError: They do not broadcast; names them.
    """
    shape = broadcast([operand.shape for operand in op.operands])
    if shape is None:
        arrays = [name for name in read(op.expression).inputs if name not in op.numbers]
        shown = ", ".join(f"{n} {o.shape}" for n, o in zip(arrays, op.operands, strict=True))
        raise refuse(op, f"shapes do not broadcast: {shown}; extents must be equal or 1, from the last axis")
    return shape


def names(given: Any) -> str:
    """Names for an error."""
    return ", ".join(sorted(given) if isinstance(given, set) else given) or "none"
