"""``LibraryActor``: the one generic actor that serves every compute library in a context host.

It is a handle, a stream and a restart boundary, not a second mailbox: the host admits all ops in one order. A failing
handle is closed and made again for the next op; its plans are dropped with it.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping

from callboard.core.backend import AccelDevice
from callboard.core.errors import ContextPoisoned, Unrecoverable, UnsupportedOp
from callboard.core.library import Library, WouldBlock
from callboard.device.host.context.plans.plan import Plan
from callboard.device.host.context.streams import SharedStreams
from callboard.device.host.context.timelines import Timeline

__all__ = ["Libraries", "LibraryActor"]

_log = logging.getLogger(__name__)


class LibraryActor:
    """One compute library on one device.

    Attributes:
        lib: ``"blas"``.
        timeline: Timeline of its stream.
        restarts: The number of times its handle was made again after a failure.
        has_lanes: Some of its ops run on another stream.
    """

    def __init__(self, lib: str, cls: type[Library], device: AccelDevice, timeline: Timeline) -> None:
        self.lib = lib
        self.timeline = timeline
        self.restarts = 0
        self.library: Library = cls(device, timeline.stream)
        self.has_lanes = bool(cls.lanes)
        self._cls = cls
        self._device = device
        self._broken = False

    @property
    def max_plans(self) -> int | None:
        """The library's limit of plans."""
        return self.library.max_plans

    def bind(self, plan: Plan) -> None:
        """Let the plan launch here; its state is made separately.

        Raises:
            BackendUnavailable, OutOfMemory: The handle was released after a failure and cannot be created again.
        """
        if self._broken:
            self.library = self._cls(self._device, self.timeline.stream)
            self._broken = False
        plan.library = self
        plan.calm = self._cls.brief and not plan.open and self._cls.is_brief(plan.op)
        launch = getattr(self.library, self._cls.launch_table[type(plan.op)].method)
        query_size = self._cls.size_table.get(type(plan.op))
        if query_size is not None and (plan.open or query_size.due(plan.op)):
            plan.late, plan.query_size = launch, getattr(self.library, query_size.method)
        elif plan.op.fence is not None:
            plan.late = launch
        else:
            plan.launch = launch

    def prepare(self, plan: Plan) -> None:
        """Make the plan's state with the library's prepare; may block."""
        prepare = self._cls.prepare_table[type(plan.op)]
        plan.state = getattr(self.library, prepare.method)(plan.op)
        plan.able = getattr(plan.state, "able", None)

    def prepare_at_once(self, plan: Plan) -> bool:
        """Like :meth:`prepare`, without blocking the calling thread; False if that is impossible."""
        device = self.library.device
        device.non_blocking_thread = threading.get_ident()
        try:
            self.prepare(plan)
        except WouldBlock:
            return False
        finally:
            device.non_blocking_thread = 0
        return True

    def needs_helper(self, plan: Plan) -> bool | None:
        """True if the plan's prepare must run on the helper thread; None if there is none to run."""
        prepare = self._cls.prepare_table.get(type(plan.op))
        return None if prepare is None else not prepare.inline

    def restart(self, drop_plans: Callable[[], None]) -> None:
        """Give the handle up; the next plan that is bound here makes it again.

        Args:
            drop_plans: Called when the stream is idle, before the handle is closed.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        self.restarts += 1
        if self._broken:
            return
        self._broken = True
        for step in (self.timeline.record_event, self.timeline.stream.synchronize, drop_plans, self.library.close):
            try:
                step()
            except (ContextPoisoned, Unrecoverable):
                raise
            except Exception as e:  # of a handle that has failed already, and goes
                _log.warning("%s: the failed handle could not be closed: %s: %s", self.lib, type(e).__name__, e)

    def close(self) -> None:
        if not self._broken:
            self.library.close()


class Libraries:
    """The library actors of a device, made when they are first needed.

    Attributes:
        classes: Library classes of the backend, by name.
        streams: Give each its stream.
        name: Name of the backend.
        actors: The actors that have been made, one for each library and for each of its lanes.
    """

    def __init__(
        self, device: AccelDevice, classes: Mapping[str, type[Library]], streams: SharedStreams, name: str
    ) -> None:
        self._device = device
        self.classes = classes
        self.streams = streams
        self.name = name
        self.actors: dict[str, LibraryActor] = {}

    def serve(self, plan: Plan) -> LibraryActor:
        """The actor that executes this plan.

        Raises:
            UnsupportedOp: The backend does not execute the op, or not for these layouts and settings.
            BackendUnavailable, OutOfMemory: The handle cannot be made.
        """
        lib = plan.tag.partition(".")[0]
        cls = self.classes.get(lib)
        reason = "the backend has no such library" if cls is None else cls.why_not(plan.op)
        if reason is None and cls is not None and plan.open and type(plan.op) not in cls.size_table:
            reason = "it cannot size outputs that depend on data; give the outputs (out=, count=)"
        if cls is None or reason is not None:
            raise UnsupportedOp(f"{self.name}, {plan.tag}: {reason}")
        actor = self._actor(lib, cls.lanes.get(type(plan.op), ""))
        actor.bind(plan)
        return actor

    def of(self, lib: str) -> list[LibraryActor]:
        """The actors of a library, that of its main stream last."""
        return [actor for actor in reversed(self.actors.values()) if actor.lib == lib]

    def warm_up(self, libs: Iterable[str]) -> None:
        """Make these libraries' handles and load the modules of their first ops."""
        for lib in libs:
            if lib in self.classes:
                self._actor(lib).library.warm_up()

    def _actor(self, lib: str, lane: str = "") -> LibraryActor:
        key = f"{lib}.{lane}" if lane else lib
        actor = self.actors.get(key)
        if actor is None:
            if lane:
                self._actor(lib)
            timeline = self.streams.acquire(key)
            try:
                actor = LibraryActor(lib, self.classes[lib], self._device, timeline)
            except BaseException:  # passed on: every call of an unavailable library takes this path
                self.streams.release(timeline)
                raise
            self.actors[key] = actor
        return actor
