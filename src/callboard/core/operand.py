"""Operands: what an op reads and writes, and in which role.

``In``, ``Out`` and ``InOut`` annotate the fields of a message. Validation, generations, stream waits, keep-alive and
verdicts all derive from them, so a backend never repeats any of it.
"""

import enum
from typing import Annotated

from callboard.core.dtype import DType
from callboard.core.layout import Layout

__all__ = ["HostIn", "HostOut", "In", "InOut", "Operand", "Out", "Placeholder", "Role", "Scalar"]


class Operand:
    """Something with a layout: a :class:`GpuRef` in the application, its placeholder in a context host.

    Attributes:
        layout: dtype, shape and strides.
    """

    __slots__ = ()

    layout: Layout

    @property
    def dtype(self) -> DType:
        return self.layout.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Step of each axis, in elements."""
        return self.layout.strides

    @property
    def ndim(self) -> int:
        return self.layout.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.layout.size

    @property
    def nbytes(self) -> int:
        return self.layout.nbytes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.layout!r})"


class Placeholder(Operand):
    """An operand without memory: what an op's prepare and a backend's capability check see."""

    __slots__ = ("layout",)

    def __init__(self, layout: Layout) -> None:
        self.layout = layout


class Role(enum.Enum):
    """What an op does with an operand."""

    IN = "in"
    """Reads it."""
    OUT = "out"
    """Writes every element of it; reads none."""
    INOUT = "inout"
    """Reads it, or leaves elements of it as they were."""
    SCALAR = "scalar"
    """A number, or a 0-d array that it reads on the device."""
    HOST_IN = "host_in"
    """Reads a region of an arena (host memory)."""
    HOST_OUT = "host_out"
    """Writes a region of an arena (host memory)."""


In = Annotated[Operand, Role.IN]
Out = Annotated[Operand, Role.OUT]
InOut = Annotated[Operand, Role.INOUT]
Scalar = Annotated[float | complex | Operand, Role.SCALAR]
HostIn = Annotated[Operand, Role.HOST_IN]
HostOut = Annotated[Operand, Role.HOST_OUT]
