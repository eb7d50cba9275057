"""Plans: what a head means here, worked out once."""

import contextlib
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from callboard.core.errors import AccelError, UnsupportedOp
from callboard.core.layout import Layout
from callboard.core.op import OPS, Op, info_of, outputs_of
from callboard.core.operand import Operand, Role
from callboard.core.opinfo import read_head

if TYPE_CHECKING:
    from callboard.device.context.libraries import LibraryActor

__all__ = ["Place", "Plan", "read_plan"]

HOST_ROLES = (Role.HOST_IN, Role.HOST_OUT)


class Place(NamedTuple):
    """An operand that a call brings.

    Attributes:
        at: Its position among the arguments of the launch.
        item: Its position in a tuple of operands, -1 when it stands alone.
        host: It lies in an arena.
        reads, writes: What the op does with it.
        whole: An ``Out`` that overwrites every byte of a buffer of this size; -1 when it may not.
        low, high: First byte reached and the byte after the last, from element 0.
        name: The field, for messages.
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


class Plan:
    """One head, ready to be launched.

    Attributes:
        op: The message, with placeholders.
        places: One for each operand that a call brings.
        numbers: ``(position, complex)`` of the scalars that are numbers.
        makes: ``(position, layout)`` of the outputs to make; ``fresh`` of them.
        arity: Numbers that a call's places hold.
        value: Layout of the output whose value is the answer, None when the answer is no value.
        blank: Arguments of the launch before a call fills them in.
        launch: The library's bound method; None until the plan is ready.
        state: What the library's prepare returned.
        error: Why this head cannot be executed.
    """

    __slots__ = (
        "arity",
        "blank",
        "error",
        "fresh",
        "launch",
        "library",
        "makes",
        "numbers",
        "op",
        "places",
        "state",
        "tag",
        "value",
    )

    def __init__(self, op: Op[Any, Any]) -> None:
        info = info_of(type(op))
        self.op = op
        self.tag = info.tag
        made = outputs_of(op)
        self.blank: list[Any] = [None] * len(info.dynamic)
        places: list[Place] = []
        numbers: list[tuple[int, bool]] = []
        makes: list[tuple[int, Layout]] = []
        for at, field in enumerate(info.dynamic):
            value = getattr(op, field.name)
            if isinstance(value, tuple):
                places += (_place(at, i, field.role, v, field.name) for i, v in enumerate(value))
            elif isinstance(value, Operand):
                places.append(_place(at, -1, field.role, value, field.name))
            elif value is not None:
                numbers.append((at, isinstance(value, complex)))
            elif field.name in made:
                makes.append((at, made[field.name]))
        self.places = tuple(places)
        self.numbers = tuple(numbers)
        self.makes = tuple(makes)
        self.arity = 2 * len(places)
        self.fresh = len(makes)
        self.value: Layout | None = made.get(op.returns[0]) if op.value else None
        self.library: LibraryActor | None = None
        self.launch: Callable[..., Callable[[], None] | None] | None = None
        self.state: Any = op
        self.error: AccelError | None = None

    def refuse(self, error: AccelError) -> None:
        """Every call of this head fails with this error."""
        self.error = error


def read_plan(head: bytes) -> Plan:
    """The plan of a head, before any library has seen it.

    Raises:
        UnsupportedOp: A tag that this version does not know.
        ValueError: A head that does not fit its class.
        ShapeError: Operands that do not fit (the application has checked them already).
    """
    tag, statics, skeleton = read_head(head)
    cls = OPS.get(tag)
    if cls is None:
        stem = tag.partition(".")[0]
        with contextlib.suppress(ImportError, ValueError):
            importlib.import_module(f"callboard.kernel.{stem}" if stem.isidentifier() else "")
        cls = OPS.get(tag)
        if cls is None:
            raise UnsupportedOp(f"{tag}: no such op in this version of the context host")
    return Plan(info_of(cls).join(cls, statics, skeleton))


def _place(at: int, item: int, role: Role, operand: Operand, name: str) -> Place:
    layout = operand.layout
    low, high = layout.span
    whole = layout.nbytes if role is Role.OUT and layout.contiguous else -1
    return Place(
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
