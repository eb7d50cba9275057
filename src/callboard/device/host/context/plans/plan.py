"""``Plan``: one signature, ready to be launched."""

import contextlib
import copy
import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from callboard.core import plugins
from callboard.core.backend import Status
from callboard.core.dtype import as_dtype
from callboard.core.errors import AccelError, ContextPoisoned, LibraryError, Unrecoverable, UnsupportedOp
from callboard.core.layout import Layout, OpenLayout, layout_of
from callboard.core.library import Extents
from callboard.core.op import OPS, Fence, Op, info_of, outputs_of
from callboard.core.operand import Operand
from callboard.core.opinfo import read_signature
from callboard.device.host.context.blocks import BindingCache
from callboard.device.host.context.parking import ROOM
from callboard.device.host.context.plans.binding import Binding, binding_of
from callboard.device.host.context.timelines import EVENT_INTERVAL, event_interval
from callboard.device.protocol.messages import Call
from callboard.device.protocol.recording import Script

if TYPE_CHECKING:
    from callboard.device.host.context.admission.graphs import GraphActor
    from callboard.device.host.context.libraries import LibraryActor
    from callboard.device.host.context.timelines import Timeline

__all__ = ["Plan", "read_plan", "unreadable"]

_log = logging.getLogger(__name__)

BRIEF, LIGHT = 30e-6, 1 << 18
"""Seconds of work, and bytes of arrays, up to which a launch may run on the loop's thread."""
MODEST = 1e-3
"""Seconds of work up to which it may run on the host's own thread: to hand it over and back takes 0.1 ms or more."""
FORGETS = 1.02
"""Factor by which a longer launch raises :attr:`Plan.recent` at most."""

MAX_CACHED = 32
"""Operands of a call whose resolved bindings are kept; a tuple of thousands is seldom the same twice."""


class Plan:
    """One signature, ready to be launched.

    Attributes:
        op: The message, with placeholders.
        bindings: One for each operand that a call passes.
        numbers: ``(position, position in a tuple or -1, complex)`` of the scalars that are passed by value.
        reals: Their positions as a slice, if all are real and adjacent.
        makes: ``(position, position in a struct operand or -1, layout)`` of the outputs to allocate; there are
            ``fresh`` of them.
        arity: Length of a call's ``bindings``.
        binding_cache: Resolved bindings; None if operands may lie in arenas, or are many.
        value: Layout of the output whose value is the reply; None if the reply is not a value.
        blank: Arguments of the launch before a call fills them in.
        launch: The library's bound method; None until the plan is ready, and while outputs have to be sized first.
        query_size: The library's bound method to run before the launch, to size outputs or because it blocks; None if
            there is none.
        late: The library's bound method that is launched after ``query_size``, or behind other ops (:attr:`Op.fence`);
            None without one.
        state: What the library's prepare returned; closed, if it has ``close``, when the plan is dropped.
        error: The reason why this signature cannot be executed.
        held: Number of inline launches in a row that took too long.
        able: Whether a launch opens nothing, and so is as short as those before; None: it never does.
        calm: The library allows launches to run on the admitting thread (:attr:`Library.brief`).
        light: Its arrays have at most :data:`LIGHT` bytes.
        recent: Seconds that the work of the last launches took at least: other threads may have held one up.
        used: Sequence number of the last launch.
        launched: Number of launches.
        pooled: The memory of its outputs is the pool's.
        pins: Number of reasons to keep it: calls that are parked until they can use it, recordings that name it.
        recording: Id of the recording that it replays; 0: it is a plan of an op.
        order: The library, or those of a recording, whose parked ops its calls stay behind; None: of none.
        fence: How it is ordered beside its operands (:attr:`Op.fence`); None where it is refused.
        keeps: If the op itself fails, its operands stay usable (:attr:`Op.keeps`).
        awaited: And no reader of them fails with it.
        answers: The op is answered with what its status finds out (:attr:`Op.answers`).
        event_interval: Ops between events on its timeline, once it is launched.
        beside: Timelines of these libraries, whose workspaces its launches use; of a recording.
    """

    __slots__ = (
        "able",
        "answers",
        "arity",
        "awaited",
        "beside",
        "binding_cache",
        "bindings",
        "blank",
        "calm",
        "error",
        "event_interval",
        "fence",
        "fresh",
        "held",
        "keeps",
        "late",
        "launch",
        "launched",
        "library",
        "light",
        "makes",
        "numbers",
        "op",
        "open",
        "order",
        "pins",
        "pooled",
        "query_size",
        "reals",
        "recent",
        "recording",
        "state",
        "tag",
        "used",
        "value",
    )

    order: str | tuple[str, ...] | None

    def __init__(self, op: Op[Any, Any]) -> None:
        info = info_of(type(op))
        self.op = op
        self._begin(info.tag)
        self.fence: Fence | None = op.fence
        if self.fence == "ahead":
            self.order = None
        elif self.tag == ROOM:
            self.order = ROOM
        self.answers = op.answers is not None
        self.keeps = op.keeps
        self.awaited: bool = getattr(op, "awaited", False)
        made = outputs_of(op)
        self.blank: list[Any] = [None] * len(info.dynamic)
        bindings: list[Binding] = []
        numbers: list[tuple[int, int, bool]] = []
        for at, item, name, role, value in info.leaves(op):
            if isinstance(value, Operand):
                bindings.append(binding_of(at, item, role, value, name))
            else:
                numbers.append((at, item, isinstance(value, complex)))
        at_of = {field.name: at for at, field in enumerate(info.dynamic)}
        makes: list[tuple[int, int, Layout]] = []
        for name, layout in made.items():
            field, _, part = name.partition(".")
            item = sum(at == at_of[field] for at, _, _ in makes) if part else -1
            makes.append((at_of[field], item, layout))
        self.bindings = tuple(bindings)
        self.numbers = tuple(numbers)
        self.reals = _row(numbers)
        self.makes = tuple(makes)
        self.arity = 2 * len(bindings)
        cached = len(bindings) <= MAX_CACHED and not any(binding.host for binding in bindings)
        self.binding_cache = BindingCache() if cached else None
        self.fresh = len(makes)
        self.pooled = op.memory is None
        self.open = any(isinstance(layout, OpenLayout) for layout in made.values())
        self.value: Layout | None = made.get(op.returns[0]) if op.value else None
        copied = sum(binding.high - binding.low for binding in bindings if binding.host)
        touched = sum(binding.high - binding.low for binding in bindings if not binding.host)
        touched += sum(n.nbytes for n in made.values() if not isinstance(n, OpenLayout))
        self.event_interval = event_interval(copied, touched)
        self.light = copied + touched <= LIGHT
        self.state: Any = op

    def _begin(self, tag: str) -> None:
        self.tag = tag
        self.order = self.lib
        self.beside: tuple[Timeline, ...] = ()
        self.fence = None
        self.answers = self.keeps = self.awaited = False
        self.pooled = True
        self.library: LibraryActor | GraphActor | None = None
        self.launch: Callable[..., Status | None] | None = None
        self.late: Callable[..., Status | None] | None = None
        self.query_size: Callable[..., Extents] | None = None
        self.error: AccelError | None = None
        self.event_interval = EVENT_INTERVAL
        self.light = self.calm = False
        self.able: Callable[[], bool] | None = None
        self.recent = math.inf
        self.used = self.launched = self.pins = self.held = self.recording = 0

    @classmethod
    def of_recording(cls, script: Script, order: tuple[str, ...]) -> Self:
        """The plan of the replays of a recording. Its operands are those of the script, then come its numbers.

        Args:
            script: The recording.
            order: Its libraries, but for those whose calls may be launched in any order.
        """
        plan = cls.__new__(cls)
        plan._begin("graph.replay")
        plan.recording, plan.order = script.id, order
        given = len(script.operands) - len(script.makes)
        plan.bindings = tuple(
            Binding(at, -1, False, o.reads, o.writes, o.whole, o.low, o.high, o.name)
            for at, o in enumerate(script.operands[:given])
        )
        u8 = as_dtype("u8")
        plan.makes = tuple((given + at, -1, layout_of(u8, (n,))) for at, n in enumerate(script.makes))
        drawn = 1 + 2 * sum(len(step.drawn) for step in script.steps)
        plan.numbers = tuple((len(script.operands) + i, -1, False) for i in range(drawn))
        plan.reals = _row(plan.numbers)
        plan.blank = [None] * (len(script.operands) + drawn)
        plan.arity = 2 * given
        plan.binding_cache = BindingCache()
        plan.fresh, plan.open, plan.value = len(script.makes), False, None
        plan.light = sum(o.high - o.low for o in script.operands) <= LIGHT
        return plan

    def fill(self, values: list[Any], numbers: Sequence[int | float]) -> None:
        """Put a call's numbers into the arguments of the launch."""
        given = iter(numbers)
        for at, item, is_complex in self.numbers:
            number = complex(next(given), next(given)) if is_complex else next(given)
            if item < 0:
                values[at] = number
            elif item == 0:
                values[at] = [number]
            else:
                values[at].append(number)

    def took(self, seconds: float) -> None:
        """The work of a launch took this long."""
        self.recent = min(seconds, FORGETS * self.recent)

    def refuse(self, error: AccelError) -> None:
        """Make every call of this signature fail with this error."""
        self.error = error
        self.fence = None

    @property
    def ready(self) -> bool:
        """True if it has been prepared."""
        return self.launch is not None or self.late is not None

    def sized(self, extents: Extents) -> "Plan":
        """A copy of the plan for one call, with the extents of its outputs filled in.

        Raises:
            LibraryError: The extents do not fit the declared outputs.
        """
        plan = copy.copy(self)
        plan.launch, plan.late, plan.query_size = self.late, None, None
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
            raise LibraryError(f"{self.tag}: {e}", self.lib) from e
        return plan

    @property
    def timeline(self) -> "Timeline":
        """The timeline that its launches are enqueued on."""
        assert self.library is not None
        return self.library.timeline

    @property
    def lib(self) -> str:
        """The name of its library."""
        return self.tag.partition(".")[0]

    @property
    def leads(self) -> bool:
        """True if later calls of its library park behind a parked call of this plan."""
        # `memory` has no state: a get of one array must not delay the gets of others, nor must a copy that is prepared.
        return not self.tag.startswith("memory.")

    def named(self, call: Call) -> tuple[list[int], list[int]]:
        """Buffers that a call only reads, and buffers that it writes or makes. A recording is read as a buffer."""
        reads: list[int] = [self.recording] if self.recording else []
        writes = list(call.outputs)
        for binding, buffer in zip(self.bindings, call.bindings[::2], strict=False):
            if not binding.host:
                (writes if binding.writes else reads).append(buffer)
        return reads, writes

    @property
    def passed(self) -> bool:
        """True if its last launch is done and settled."""
        timeline = self.timeline
        return timeline.completed >= self.used and (not timeline.ops or timeline.ops[0].seq > self.used)

    def close(self) -> None:
        """Close the state, which is no longer in use.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        close = getattr(self.state, "close", None)
        if callable(close):
            try:
                close()
            except (ContextPoisoned, Unrecoverable):
                raise
            except Exception as e:  # it is dropped all the same
                _log.warning("%s: a plan could not be closed: %s: %s", self.tag, type(e).__name__, e)


def read_plan(signature: bytes) -> Plan:
    """The plan of a signature, not bound to a library yet.

    Raises:
        UnsupportedOp: The tag is unknown to this version.
        ValueError: The signature does not fit its class.
        ShapeError: The operands do not fit (the application has checked them already).
    """
    tag, statics, skeleton = read_signature(signature)
    cls = OPS.get(tag)
    if cls is None:
        lib = tag.partition(".")[0]
        with contextlib.suppress(ImportError):
            plugins.import_messages(lib)
        cls = OPS.get(tag)
        if cls is None:
            raise UnsupportedOp(f"{tag}: no such op in this version of the context host")
    return Plan(info_of(cls).join(cls, statics, skeleton))


def unreadable(error: AccelError) -> Plan:
    """A stand-in for a plan whose signature cannot be read: every call is refused with ``error``."""
    plan = Plan.__new__(Plan)
    plan._begin("?")
    plan.error = error
    plan.makes, plan.bindings = (), ()
    return plan


def _row(numbers: Sequence[tuple[int, int, bool]]) -> slice | None:
    """The positions of numbers as a slice, if all are real, adjacent and in no tuple; otherwise None."""
    if not numbers or any(is_complex or item >= 0 for _, item, is_complex in numbers):
        return None
    first, count = numbers[0][0], len(numbers)
    return slice(first, first + count) if [at for at, _, _ in numbers] == list(range(first, first + count)) else None
