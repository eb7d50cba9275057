"""``ActorThread``: the thread that runs a resident actor, one call after the other."""

import inspect
import logging
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.actors._runtime.table import find
from callboard.actors.errors import AskTimeout, ReplyError, UnhandledMessage
from callboard.actors.loops.handover import Handover
from callboard.core.layout import Layout
from callboard.core.operand import Operand, StructOperand
from callboard.device.forkguard import ForkedCopy
from callboard.device.host.context.parking import Holds
from callboard.device.host.context.pending import FAILED
from callboard.device.host.context.timelines import Timeline
from callboard.device.host.residents.apart.copying import copy_to
from callboard.device.host.residents.busytime import BusyTime
from callboard.device.host.residents.item import EndedCall, Item, Outcome, Site
from callboard.device.host.residents.operands import Adopted, DeviceView
from callboard.device.host.residents.thread.coroutines import Awaits, running
from callboard.device.host.residents.thread.instance import Instance
from callboard.device.host.residents.thread.leading import lead
from callboard.device.host.residents.thread.results import pack_plain, pack_result
from callboard.device.host.residents.thread.rooms import Rooms
from callboard.device.host.residents.thread.services import ContextServices
from callboard.device.host.residents.thread.streams import Broken, Streams
from callboard.device.host.residents.thread.supervising import forget_frames
from callboard.device.protocol.messages import DeviceRoom, FailureMessage, Room, StartActor
from callboard.device.protocol.residents.actor import ResidentActor
from callboard.device.protocol.residents.classes import class_named
from callboard.device.protocol.residents.exceptions import described, is_answer, is_out_of_memory
from callboard.device.protocol.residents.hostview import host_view
from callboard.device.protocol.residents.values import DeviceArray, Unpacker, decode
from callboard.events.concerns import TRACE

if TYPE_CHECKING:
    from callboard.device.host.residents.actors import HostActors

__all__ = ["ActorThread"]

log = logging.getLogger("callboard.resident")

SHORT, STEADY = 1e-3, 2
"""Seconds of a short call, and how many of them in a row let an actor serve."""


class ActorThread:
    """One resident actor in a host.

    Args:
        start: The message that starts it.
        host: The actors of this host.

    Attributes:
        stopping: True if it ends after the current call.
        ending: Set with ``stopping``.
    """

    def __init__(self, start: StartActor, host: "HostActors") -> None:
        self.id = start.actor
        self.name = start.name
        self.timeline: Timeline | None = None
        self.holds = Holds()  # of its admitted calls; used by the admitting thread
        self.busy = BusyTime()
        self.ending = threading.Event()
        self.stopping = False
        self._alone = start.alone
        self._host = host
        self._instance = Instance(self, start, host)
        self._site: Site | None = None
        self._services: ContextServices | None = None
        self._shorts = 0  # short calls since the last long one
        self._streams = Streams(self.name)
        self._rooms = Rooms(self, host)
        self._wake = threading.Event()  # a context is there, or the actor is to end
        self._free = threading.Event()  # its code may run, or the actor is to end
        self.hold(start.held)
        self._items: Handover[Item | None] = Handover()
        self._decisions: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"callboard-resident-{start.name}", daemon=True)
        self._copy = ForkedCopy(self._thread)
        self._thread.start()

    @property
    def is_short(self) -> bool:
        """True if its recent calls were short."""
        return self._shorts == STEADY and self._instance.coroutines is None

    @property
    def rehearses(self) -> bool:
        """True if its class has a ``warm_up``. Once it is prepared."""
        instance = self._instance.present
        return instance is not None and type(instance).warm_up is not ResidentActor.warm_up

    def another(self) -> object:
        """One more object of its class, which is not prepared. Once it is prepared; any thread."""
        return self._instance.another()

    # -- from the admitting thread -------------------------------------------------------------------------------------

    def enter(self, site: Site) -> None:
        """The context is the active one of the device: set the actor up and begin to serve."""
        self.timeline = site.timeline
        self._site = site
        self._wake.set()

    def hold(self, held: bool) -> None:
        """Have the actor wait before its next step towards readiness, or let it go on."""
        if held and not self.stopping:
            self._free.clear()
        else:
            self._free.set()

    def put(self, item: Item) -> None:
        """Queue a call."""
        self._streams.notice(item.message.body)
        self._items.put(item)
        if self._instance.coroutines is not None:
            self._instance.coroutines.wake()

    def cancel(self, call: int) -> None:
        """Cancel the coroutine of a call, if it runs."""
        if self._instance.coroutines is not None:
            self._instance.coroutines.cancel(call)

    def give_room(self, room: Room | DeviceRoom) -> None:
        """Answer the actor, which asked for memory for a result."""
        self._rooms.give(room)

    def decide(self, own: bool) -> None:
        """Answer the actor, which asked whether a failure was its own."""
        self._decisions.put(own)

    def stop(self) -> None:
        """End after the current call."""
        self.stopping = True
        self.ending.set()
        self._wake.set()
        self._free.set()
        self._items.put(None)
        self._rooms.stop()
        self._decisions.put(False)
        if self._instance.coroutines is not None:
            self._instance.coroutines.wake()

    def join(self) -> None:
        self._thread.join()

    def next(self) -> Item | None:
        """The next call that is queued, if there is one; on its own thread."""
        while self._items:
            item = self._items.get()
            if item is not None and item.claim():
                return item
        return None

    @property
    def has_calls(self) -> bool:
        """True if calls are queued."""
        return bool(self._items)

    def left(self) -> list[Item]:
        """The calls that it did not run; called after it has ended."""
        items = []
        while self._items:
            if (item := self._items.get()) is not None:
                items.append(item)
        return items

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        cause: FailureMessage | None = None
        try:
            cause = self._live()
        except BaseException as e:  # an error of this module: it ends the actor, not the host
            log.exception("resident actor %s has ended", self.name)
            cause = described(0, e)
        finally:
            if self._instance.coroutines is not None:
                self._instance.coroutines.close()
            self._streams.close()
            self._instance.end()
            self._items.close()
            if self._host.helm is not None:
                self._host.helm.leave(self)
            self._host.post_gone(self, cause)

    def _live(self) -> FailureMessage | None:
        """Prepare, wait for a context, set up, serve; returns why it gave up, None when it was asked to stop."""
        self._free.wait()
        if self.ending.is_set():
            return None
        try:
            self._instance.make()
        except BaseException as e:  # from a user's prepare, before the first call; sys.exit() as well
            if self._site is None:
                log.warning(
                    "resident actor %s could not prepare, which is tried again when it is needed: %s", self.name, e
                )
        self._host.post_prepared(self)
        self._wake.wait()
        self._free.wait()
        site = self._site
        if self.stopping or site is None:
            return None
        site.device.use()
        self._services = ContextServices(site, self._host.lendings)
        self._instance.enter(site, self._services)
        cause = self._instance.set_up("ready")
        while cause is None and not self.stopping:
            if self._instance.coroutines is not None:
                return self._instance.coroutines.serve()
            item = self._items.get()
            if item is None or self.stopping:
                if item is not None:
                    self._items.put(item)
                break
            if item.claim():
                helm = self._host.helm
                cause = lead(self, self._host, item) if helm is not None and helm.holder is self else self.call(item)
        return cause

    # -- a call --------------------------------------------------------------------------------------------------------

    def call(self, item: Item) -> FailureMessage | None:
        """Run a call; returns why the actor gives up, None when it goes on."""
        return self.finish(self.outcome(item))

    def outcome(self, item: Item, result_of: Callable[[], Any] | None = None) -> Outcome:
        """Run a call; or end one whose coroutine is done, given what returns or raises its result."""
        refusal = self._why_not(item, begun=result_of is not None)
        if refusal is not None:
            item.refuse()
            if item.staged is not None:
                item.staged.drop()
            return Outcome(item, EndedCall(self, item, b"", [], refusal))
        services = self._services
        assert services is not None
        running.set(item)
        item.began = self.busy.begin() if result_of is None else self.busy.begin() and item.began
        ended: EndedCall | None = None
        error: BaseException | None = None
        answer = True  # a failure now does not come from the actor's own code
        try:
            services.make_current()
            if item.start is not None:
                item.start.synchronize()
            method, arguments, keywords = self._unpacked(item) if result_of is None else (result_of, [], {})
            answer = False
            result = method(*arguments, **keywords)
            if self._copy.here:
                self._copy.end()
            if services.local is not None:
                services.local.finish()
            answer = True
            del method, arguments, keywords
            value, adopted = self._packed(item, result)
            del result
            ended = EndedCall(self, item, value, adopted)
        except BaseException as e:  # any error from a user's method
            error = self._copy.checked(e)
        running.set(None)
        if item.staged is not None:
            item.staged.drop()  # if it has failed before they were read
        item.ended = self.busy.end()
        self._shorts = min(STEADY, self._shorts + 1) if ended is not None and item.seconds < SHORT else 0
        return Outcome(item, ended, error, answer)

    def _why_not(self, item: Item, *, begun: bool) -> FailureMessage | None:
        """The reason why a call is not started, or its result is discarded; None if there is none."""
        sources, behind = item.op.sources, item.behind
        if not (sources or behind or item.cancelled is not None or item.message.deadline):
            return None  # nearly all calls
        if (sources and any(op.state == FAILED for op in sources)) or (behind and any(call.refused for call in behind)):
            # Admitted while an earlier call of this actor ran or waited, which has failed: it fails from that cause.
            return FailureMessage(item.message.id, "ContextLost", "", {})
        if not begun and item.cancelled is not None:
            return described(item.message.id, item.cancelled)
        if not begun and not item.is_wanted:
            return described(item.message.id, AskTimeout(f"{self.name}: the call's time was over before it began"))
        return None

    def finish(self, outcome: Outcome) -> FailureMessage | None:
        """Have a call settled by the thread that serves; returns why the actor gives up."""
        if outcome.ended is not None:
            self._host.post_ended(outcome.ended)
            return None
        assert outcome.error is not None
        self._streams.spoil(outcome.item)
        return self._failed(outcome.item, outcome.error, outcome.answer)

    def _unpacked(self, item: Item) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
        name, arguments, keywords, *trace = decode(item.message.body)
        if trace or TRACE.get() is not None:
            item.trace = trace[0] if trace else None
            TRACE.set(item.trace)
        steps = name if isinstance(name, list) else None  # of a stream: open, next, close
        item.method = str(name or "") if steps is None else "".join(map(str, steps[:1]))
        site = self._site
        assert site is not None
        memory = None if item.staged is None else item.staged.open()
        views = [self._view(site, *operand) for operand in item.operands] if item.operands else []
        unpack = Unpacker(memory, views, class_named).unpack
        args = [unpack(a) if type(a) is list else a for a in arguments]
        given = {key: unpack(a) for key, a in keywords.items()} if keywords else {}
        if steps is not None:
            return self._streams.method(self._instance.present, steps, item), args, given
        if name is not None:
            return getattr(self._instance.present, str(name)), args, given
        item.method = type(args[0]).__name__
        handler = find(self._instance.table, type(args[0]))
        if handler is None:
            raise UnhandledMessage(f"{self.name} has no handler for {type(args[0]).__qualname__}")
        return handler, args, given

    def _view(self, site: Site, address: int, layout: Layout, writable: bool) -> Any:
        if site.on_host:
            return host_view(address, layout, writable)
        return DeviceView(address, layout, writable, site.ordinal, site.timeline.stream)

    def _packed(self, item: Item, result: Any) -> tuple[bytes, list[Adopted]]:
        if (value := pack_plain(result)) is not None:
            return value, []
        known = type(result) is np.ndarray or type(result) is DeviceArray
        if not known and inspect.isawaitable(result) and not isinstance(result, Operand | StructOperand):
            if self._instance.coroutines is not None:
                raise Awaits(result)
            getattr(result, "close", lambda: None)()
            raise TypeError(
                "the method returned an awaitable, but no method of its class is async; make it `async def`"
            )
        copied = (lambda refs: self._copied(item, refs)) if self._alone else None
        return pack_result(result, lambda nbytes: self._rooms.on_host(item, nbytes), copied)

    def _copied(self, item: Item, refs: list[Adopted]) -> list[Any]:
        """Copy device arrays of a result to the device's own host; gives their places."""
        site, services = self._site, self._services
        assert site is not None
        assert services is not None
        return copy_to(refs, lambda n: self._rooms.on_device(item, n), site, services.device)

    # -- failures ------------------------------------------------------------------------------------------------------

    def _failed(self, item: Item, error: BaseException, answer: bool) -> FailureMessage | None:
        if not isinstance(error, ReplyError) and self._instance.is_lost(error):
            return described(0, error)
        failure = error.of(item.message.id) if isinstance(error, Broken) else described(item.message.id, error)
        short = is_out_of_memory(error)
        if answer or is_answer(error) or self._instance.resumes(error):
            forget_frames(error)
            self._host.post_ended(EndedCall(self, item, b"", [], failure, trim=short, asked=item.holds))
            if item.holds:
                self._decisions.get()  # so that the next call sees whether its operands have failed
            return None
        self._host.post_ended(EndedCall(self, item, b"", [], failure, asked=True))
        forget_frames(error)
        if not self._decisions.get():  # it read the result of a failed op, or the host is closing
            return None
        return self._restart(error, failure)

    def fail(self, error: BaseException) -> FailureMessage | None:
        """An error was raised outside the calls, in a task of the actor's own; returns why the actor gives up."""
        failure = described(0, error)
        if self._instance.is_lost(error):
            return failure
        if not self._instance.resumes(error):
            return self._restart(error, failure)
        trace = failure.attributes.get("traceback") or failure.message
        log.error("resident actor %s goes on after a failure in a task of its own: %s", self.name, trace)
        return None

    def _restart(self, error: BaseException, failure: FailureMessage) -> FailureMessage | None:
        log.error("resident actor %s failed: %s", self.name, failure.attributes.get("traceback") or failure.message)
        self._streams.fail(failure)
        cause = self._instance.drop_after(error)
        if cause is not None or self.stopping:
            return cause
        return self._instance.set_up("restarted")
