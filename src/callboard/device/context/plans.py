"""Plans: what a head means here, worked out once and kept while it is used."""

import contextlib
import copy
import importlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from callboard.core.errors import AccelError, ContextPoisoned, LibraryError, Unrecoverable, UnsupportedOp
from callboard.core.layout import Layout, OpenLayout
from callboard.core.library import Extents
from callboard.core.op import OPS, Op, info_of, outputs_of
from callboard.core.operand import Operand, Role
from callboard.core.opinfo import read_head
from callboard.device.context.blocks import Bindings
from callboard.device.protocol import Call

if TYPE_CHECKING:
    from callboard.device.context.libraries import LibraryActor
    from callboard.device.context.tracks import Track

__all__ = ["Place", "Plan", "Plans", "read_plan", "unreadable"]

_log = logging.getLogger(__name__)

MAX_PLANS = 8192
"""Plans kept of a library that sets no limit; the older half gives way then."""
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
        reals: Where they are, if they are real and side by side.
        makes: ``(position, position in a compound or -1, layout)`` of the outputs to make; ``fresh`` of them.
        arity: Numbers that a call's places hold.
        bindings: Places that have come before; None where there may be arenas or tuples of operands among them.
        value: Layout of the output whose value is the answer, None when the answer is no value.
        blank: Arguments of the launch before a call fills them in.
        launch: The library's bound method; None until the plan is ready, and where a call has to be measured first.
        measure: The library's bound method that is run before the launch, to size outputs or because it blocks; None
            where there is nothing of this kind to do.
        late: The library's bound method for a plan that has one.
        state: What the library's prepare returned; closed, if it can be, when the plan is dropped.
        error: Why this head cannot be executed.
        held: Launches in a row that held a visitor for long.
        used: Ticket of the last launch.
        launched: How many there were.
        parked: Calls that wait for it.
    """

    __slots__ = (
        "arity",
        "bindings",
        "blank",
        "error",
        "fresh",
        "held",
        "late",
        "launch",
        "launched",
        "library",
        "makes",
        "measure",
        "numbers",
        "op",
        "open",
        "parked",
        "places",
        "reals",
        "state",
        "tag",
        "used",
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
        for at, item, name, role, value in info.leaves(op):
            if isinstance(value, Operand):
                places.append(_place(at, item, role, value, name))
            else:
                numbers.append((at, isinstance(value, complex)))
        at_of = {field.name: at for at, field in enumerate(info.dynamic)}
        makes: list[tuple[int, int, Layout]] = []
        for name, layout in made.items():
            field, _, part = name.partition(".")
            item = sum(at == at_of[field] for at, _, _ in makes) if part else -1
            makes.append((at_of[field], item, layout))
        self.places = tuple(places)
        self.numbers = tuple(numbers)
        self.reals = _row(numbers)
        self.makes = tuple(makes)
        self.arity = 2 * len(places)
        self.bindings = None if any(place.host or place.item >= 0 for place in places) else Bindings()
        self.fresh = len(makes)
        self.open = any(isinstance(layout, OpenLayout) for layout in made.values())
        self.value: Layout | None = made.get(op.returns[0]) if op.value else None
        self.library: LibraryActor | None = None
        self.launch: Callable[..., Callable[[], None] | None] | None = None
        self.late: Callable[..., Callable[[], None] | None] | None = None
        self.measure: Callable[..., Extents] | None = None
        self.state: Any = op
        self.error: AccelError | None = None
        self.used = self.launched = self.parked = self.held = 0

    def fill(self, values: list[Any], numbers: Sequence[float]) -> None:
        """Put a call's numbers where they belong among the arguments."""
        given = iter(numbers)
        for at, is_complex in self.numbers:
            values[at] = complex(next(given), next(given)) if is_complex else next(given)

    def refuse(self, error: AccelError) -> None:
        """Every call of this head fails with this error."""
        self.error = error

    @property
    def ready(self) -> bool:
        """Whether it has been prepared."""
        return self.launch is not None or self.late is not None

    def sized(self, extents: Extents) -> "Plan":
        """The plan for one call, now that its extents are known.

        Raises:
            LibraryError: They are not as announced.
        """
        plan = copy.copy(self)
        plan.launch, plan.late, plan.measure = self.late, None, None
        shapes = list(extents)
        try:
            opened = sum(isinstance(layout, OpenLayout) for _, _, layout in self.makes)
            if len(shapes) != opened:
                raise ValueError(f"{len(shapes)} shapes for {opened} outputs")
            plan.makes = tuple(
                (at, item, layout.closed(shapes.pop(0)) if isinstance(layout, OpenLayout) else layout)
                for at, item, layout in self.makes
            )
        except ValueError as e:
            raise LibraryError(f"{self.tag}: {e}", self.stem) from e
        return plan

    @property
    def track(self) -> "Track":
        """The track that it is launched on."""
        assert self.library is not None
        return self.library.track

    @property
    def stem(self) -> str:
        """Of its library."""
        return self.tag.partition(".")[0]

    def named(self, call: Call) -> tuple[list[int], list[int]]:
        """Buffers that a call reads only; those that it writes or makes."""
        reads: list[int] = []
        writes = list(call.made)
        for place, buffer in zip(self.places, call.places[::2], strict=False):
            if not place.host:
                (writes if place.writes else reads).append(buffer)
        return reads, writes

    @property
    def passed(self) -> bool:
        """Whether its last user is done, and has looked at how it ended."""
        track = self.track
        return track.completed >= self.used and (not track.ops or track.ops[0].ticket > self.used)

    def close(self) -> None:
        """Close the state; nothing uses it any more.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        close = getattr(self.state, "close", None)
        if callable(close):
            try:
                close()
            except (ContextPoisoned, Unrecoverable):
                raise
            except Exception as e:  # it goes, whatever its library says about that
                _log.warning("%s: a plan could not be closed: %s: %s", self.tag, type(e).__name__, e)


class Kept:
    """The plans of one library.

    Attributes:
        plans: By head.
        misses, evictions: Plans made, and dropped for others.
        hits: Launches of plans that are gone, but for the first of each.
    """

    __slots__ = ("evictions", "hits", "misses", "plans")

    def __init__(self) -> None:
        self.plans: dict[bytes, Plan] = {}
        self.misses = self.evictions = self.hits = 0


class Plans:
    """The plans of a context. Those of a library that have not been used for longest give way to new ones.

    A plan's state is closed when the stream has passed its last user. Plans that are being made, or that parked calls
    wait for, are not dropped.

    Attributes:
        by_head: All of them; looked at for every call.
    """

    def __init__(self) -> None:
        self.by_head: dict[bytes, Plan] = {}
        self._libraries: dict[str, Kept] = {}
        self._leaving: list[Plan] = []

    def add(self, head: bytes, plan: Plan) -> None:
        """Keep a new plan, bound to its library."""
        assert plan.library is not None
        kept = self._libraries.setdefault(plan.library.stem, Kept())
        limit = plan.library.library.max_plans
        if len(kept.plans) >= (MAX_PLANS if limit is None else limit):
            unused = [(p.used, h) for h, p in kept.plans.items() if p.ready and not p.parked]
            unused.sort()
            many = MAX_PLANS // 2 if limit is None else len(kept.plans) - limit + 1
            for _, old in unused[:many]:
                self._drop(kept, old)
                kept.evictions += 1
        kept.misses += 1
        self.by_head[head] = kept.plans[head] = plan

    def refused(self, head: bytes, stem: str) -> None:
        """The plan of this head could not be made; whoever waited for it knows."""
        self.by_head.pop(head, None)
        self._libraries[stem].plans.pop(head, None)

    def release(self, plan: Plan) -> None:
        """A plan was made for a library that has been given up meanwhile."""
        self._leaving.append(plan)

    def forget(self, stem: str) -> None:
        """Drop all plans of a library."""
        kept = self._libraries.get(stem)
        if kept is not None:
            for head in list(kept.plans):
                self._drop(kept, head)

    def sweep(self) -> bool:
        """Close dropped plans that the stream has passed; True while some are left.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        if self._leaving:
            leaving, self._leaving = self._leaving, []
            for plan in leaving:
                if plan.passed:
                    plan.close()
                else:
                    self._leaving.append(plan)
        return bool(self._leaving)

    def close(self) -> None:
        """Close all; all work is done."""
        for stem in self._libraries:
            self.forget(stem)
        for plan in self._leaving:
            plan.close()
        self._leaving.clear()

    def stats(self) -> dict[str, dict[str, int]]:
        """Figures of each library's plans."""
        return {
            stem: {
                "entries": len(kept.plans),
                "hits": kept.hits + _hits(kept.plans.values()),
                "misses": kept.misses,
                "evictions": kept.evictions,
            }
            for stem, kept in self._libraries.items()
        }

    def _drop(self, kept: Kept, head: bytes) -> None:
        plan = kept.plans.pop(head)
        del self.by_head[head]
        kept.hits += _hits([plan])
        if plan.ready:
            self._leaving.append(plan)


def _hits(plans: Iterable[Plan]) -> int:
    return sum(plan.launched - 1 for plan in plans if plan.launched)


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


def unreadable(error: AccelError) -> Plan:
    """A plan in the place of one that cannot be read: every call is refused."""
    plan = Plan.__new__(Plan)
    plan.error, plan.tag = error, "?"
    plan.launch = plan.late = plan.measure = None
    plan.makes, plan.places, plan.parked = (), (), 0
    return plan


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


def _row(numbers: Sequence[tuple[int, bool]]) -> slice | None:
    """The positions of numbers, if all are real and stand side by side."""
    if not numbers or any(is_complex for _, is_complex in numbers):
        return None
    first, count = numbers[0][0], len(numbers)
    return slice(first, first + count) if [at for at, _ in numbers] == list(range(first, first + count)) else None
