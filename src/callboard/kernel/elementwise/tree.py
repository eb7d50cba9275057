"""An expression as a tree, before its dtypes are known."""

from typing import NamedTuple

__all__ = ["Apply", "Literal", "Name", "Number", "Tree"]

Number = bool | int | float | complex


class Literal(NamedTuple):
    """A number in the text."""

    value: Number


class Name(NamedTuple):
    """An operand, a number of the call, or a variable assigned before."""

    name: str


class Apply(NamedTuple):
    """A function of arguments; ``cast:f32`` converts."""

    function: str
    arguments: "tuple[Tree, ...]"


Tree = Literal | Name | Apply
