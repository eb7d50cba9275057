"""``Binding``: an operand that a call passes to a plan."""

from typing import NamedTuple

from callboard.core.operand import Operand, Role

__all__ = ["Binding", "binding_of"]

HOST_ROLES = (Role.HOST_IN, Role.HOST_OUT)


class Binding(NamedTuple):
    """An operand that a call passes.

    Attributes:
        at: Its position among the arguments of the launch.
        item: Its position in a tuple of operands, -1 when it is not in one.
        host: True if it lies in an arena.
        reads, writes: True if the op reads it, writes it.
        whole: For an ``Out`` that overwrites every byte of a buffer of this size, that size; otherwise -1.
        low, high: First byte accessed and the byte after the last, relative to element 0.
        name: The field, for error messages.
    """

    at: int
    item: int
    host: bool
    reads: bool
    writes: bool
    whole: int
    low: int
    high: int
    name: str


def binding_of(at: int, item: int, role: Role, operand: Operand, name: str) -> Binding:
    """The binding of an operand, at this position."""
    layout = operand.layout
    low, high = layout.span
    whole = layout.nbytes if role is Role.OUT and layout.contiguous else -1
    return Binding(
        at,
        item,
        role in HOST_ROLES,
        role in (Role.IN, Role.INOUT, Role.SCALAR),
        role in (Role.OUT, Role.INOUT),
        whole,
        low,
        high,
        name,
    )
