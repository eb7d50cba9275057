"""Operands: the arrays an op reads and writes, and their roles.

``In``, ``Out`` and ``InOut`` annotate the fields of a message, or of a :class:`StructOperand` in a message. Validation,
generations, stream waits, keep-alive and completions all derive from them, so a backend never repeats any of it.
"""

import enum
import functools
from collections.abc import Generator
from typing import Annotated, Any, NamedTuple, Self, dataclass_transform, get_args, get_origin, get_type_hints

import msgspec

from callboard.core.layout import HasLayout, Layout
from callboard.core.settings import convert, converted, plain, stored

__all__ = [
    "ByValue",
    "HostIn",
    "HostOut",
    "In",
    "InOut",
    "Number",
    "Operand",
    "Out",
    "Placeholder",
    "Role",
    "Scalar",
    "StructOperand",
    "Whole",
    "differs",
]


class Operand(HasLayout):
    """Something with a layout: a :class:`GpuRef` in the application, its placeholder in a context host."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.layout!r})"


class Placeholder(Operand):
    """An operand without memory, as seen by an op's prepare and a backend's capability check."""

    __slots__ = ("layout",)

    def __init__(self, layout: Layout) -> None:
        self.layout = layout


class Role(enum.Enum):
    """The access of an op to an operand."""

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
"""A number, kept as f64 or c128."""
Number = Annotated[int | float | complex | Operand, Role.SCALAR]
"""Like :data:`Scalar`, but a 64-bit integer, signed or not, keeps its type."""
Whole = Annotated[int, Role.SCALAR]
"""An integer of 64 bits, signed or not; no array."""
ByValue = Annotated[int | float | complex, Role.SCALAR]
"""Like :data:`Number`, but not an array: a kernel argument passed by value."""
HostIn = Annotated[Operand, Role.HOST_IN]
HostOut = Annotated[Operand, Role.HOST_OUT]


def differs(value: float | complex | Operand, number: float) -> bool:
    """True if a scalar is not this number; also for a 0-d array, whose value is only on the device."""
    return isinstance(value, Operand) or value != number


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class StructOperand(msgspec.Struct, frozen=True):
    """Base of values that consist of operands and settings, as a sparse matrix does.

    ::

        class CsrRef(StructOperand, tag="csr"):
            values: Annotated[GpuRef[Any], Role.IN]
            indices: Annotated[GpuRef[Any], Role.IN]
            indptr: Annotated[GpuRef[Any], Role.IN]
            shape: tuple[int, int]

    A message takes it as a field, ``a: CsrRef`` or ``a: CsrRef | CooRef``; ``Annotated[CsrRef, Role.OUT]`` gives all
    its operands another role. Everything that follows from roles then holds for its parts, called ``a.indices`` in
    messages. ``await`` waits for all of them and gives the value itself.

    Raises:
        TypeError: When it is made: a setting is of the wrong type; names it. Operands are checked when an op takes
            them: in a call of a resident actor they are arrays.
    """

    def __post_init__(self) -> None:
        parts = parts_of(type(self))
        settings = tuple(plain(getattr(self, name)) for name in parts.settings)
        try:
            exact = convert(settings, parts.types)
        except msgspec.ValidationError:
            exact = tuple(map(self._converted, parts.settings, settings, get_args(parts.types)))
        for name, value in zip(parts.settings, exact, strict=True):
            msgspec.structs.force_setattr(self, name, value)

    def _converted(self, name: str, value: Any, hint: Any) -> Any:
        try:
            return converted(name, value, hint)
        except TypeError as e:
            raise TypeError(f"{type(self).__name__}: {e}") from None

    def done(self) -> bool:
        """True if the completions of all its refs are known."""
        return all(ref.done() for ref in operands_of(self).values())

    def __await__(self) -> Generator[Any, None, Self]:
        for ref in operands_of(self).values():
            yield from ref.__await__()
        return self

    def result(self, timeout: float | None = None) -> Self:
        """Block until the completions of all its refs are known; each as :meth:`callboard.Reply.result`."""
        for ref in operands_of(self).values():
            ref.result(timeout)
        return self


class StructParts(NamedTuple):
    """The declared parts of a struct operand class.

    Attributes:
        tag: Names the class in a signature.
        operands: Names and roles, in order of declaration.
        settings: Names of the other fields.
        types: Types of ``settings``, in a form that ``kinds`` of a message can be compared with.
    """

    tag: str
    operands: tuple[tuple[str, Role], ...]
    settings: tuple[str, ...]
    types: Any


@functools.cache
def parts_of(cls: type[StructOperand]) -> StructParts:
    """The declared parts of a struct operand class.

    Raises:
        TypeError: It has no tag, or a part that is neither ``In``, ``Out`` or ``InOut`` nor a setting.
    """
    tag = cls.__struct_config__.tag
    if not isinstance(tag, str):
        raise TypeError(f"{cls.__qualname__} has no tag; write class {cls.__name__}(StructOperand, tag='...')")
    hints = {name: stored(hint) for name, hint in get_type_hints(cls, include_extras=True).items()}
    roles = {name: role_of(hints[name]) for name in cls.__struct_fields__}
    wrong = [name for name, role in roles.items() if role not in (None, Role.IN, Role.OUT, Role.INOUT)]
    if wrong:
        raise TypeError(f"{cls.__qualname__}: {wrong} cannot be parts of a struct operand")
    settings = tuple(name for name, role in roles.items() if role is None)
    types: Any = tuple[tuple(hints[n] for n in settings)] if settings else tuple[()]  # type: ignore[misc]
    return StructParts(tag, tuple((n, r) for n, r in roles.items() if r is not None), settings, types)


def operands_of(value: StructOperand) -> dict[str, Any]:
    """The operands of a struct operand, by name, in order of declaration."""
    return {name: getattr(value, name) for name, _ in parts_of(type(value)).operands}


def role_of(hint: Any) -> Role | None:
    """The role in ``Annotated[..., role]``."""
    if get_origin(hint) is Annotated:
        return next((m for m in get_args(hint)[1:] if isinstance(m, Role)), None)
    return None
