"""``ActorThread``: the thread that a resident actor lives on, one turn after the other."""

import inspect
import logging
import queue
import random
import threading
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.actors import Directive, Props
from callboard.actors._runtime.table import bind, find
from callboard.actors.errors import ActorStopped, ReplyError, UnhandledMessage
from callboard.actors.supervision import RestartLog, Strategy
from callboard.core.errors import MailboxFull
from callboard.core.layout import Layout
from callboard.core.operand import Compound
from callboard.device.context.parking import Holds
from callboard.device.context.pending import FAILED
from callboard.device.context.tracks import Track
from callboard.device.protocol import Failure, Room, StartActor
from callboard.device.resident.actor import HostContext, ResidentActor
from callboard.device.resident.code import loads
from callboard.device.resident.exceptions import described, is_answer, is_out_of_memory
from callboard.device.resident.hosted.currents import Currents
from callboard.device.resident.hosted.item import Ended, Item, Site
from callboard.device.resident.operands import Adopted, DeviceView, adopt, host_view
from callboard.device.resident.values import Packer, Unpacker, Unsendable, decode, encode

if TYPE_CHECKING:
    from callboard.device.resident.hosted.actors import HostActors

__all__ = ["ActorThread"]

log = logging.getLogger("callboard.resident")

BESIDE = 256 << 10
"""Bytes from which on a whole result travels beside its verdict."""

CURE = (
    "return numbers, text, bytes, lists, tuples, dicts, Structs, dataclasses, NumPy arrays, or ctx.ref(array) for what "
    "is to stay on the device"
)


class ActorThread:
    """One resident actor in a host.

    Args:
        start: What it was started with.
        host: The actors of this host.
    """

    def __init__(self, start: StartActor, host: "HostActors") -> None:
        self.id = start.actor
        self.name = start.name
        self.track: Track | None = None
        self.holds = Holds()  # of its admitted turns; the admitting thread's
        self._ending = threading.Event()
        self._recipe = start.recipe
        self._host = host
        self._props: Props[Any] | None = None
        self._instance: ResidentActor | None = None
        self._table: dict[type, Callable[[Any], Any]] = {}
        self._site: Site | None = None
        self._context: HostContext | None = None
        self._currents: Currents | None = None
        self._current: Item | None = None
        self._log = RestartLog()
        self._wake = threading.Event()  # a context is there, or the end
        self._items: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._rooms: queue.SimpleQueue[Room | None] = queue.SimpleQueue()
        self._decisions: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"callboard-resident-{start.name}", daemon=True)
        self._thread.start()

    @property
    def stopping(self) -> bool:
        """Whether it ends after the current turn."""
        return self._ending.is_set()

    # -- from the admitting thread -------------------------------------------------------------------------------------

    def enter(self, site: Site) -> None:
        """The context is there, and is the device's."""
        self.track = site.track
        self._site = site
        self._wake.set()

    def put(self, item: Item) -> None:
        """Queue a turn."""
        self._items.put(item)

    def give_room(self, room: Room) -> None:
        self._rooms.put(room)

    def decide(self, own: bool) -> None:
        """Whether the failure that it asked about was its own."""
        self._decisions.put(own)

    def stop(self) -> None:
        """End after the current turn."""
        self._ending.set()
        self._wake.set()
        self._items.put(None)
        self._rooms.put(None)
        self._decisions.put(False)

    def join(self) -> None:
        self._thread.join()

    def left(self) -> list[Item]:
        """Turns that it did not come to; once it has ended."""
        items = []
        while not self._items.empty():
            item = self._items.get()
            if item is not None:
                items.append(item)
        return items

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        cause: Failure | None = None
        try:
            cause = self._live()
        except BaseException as e:  # ours; the actor is gone, the host is not
            log.exception("resident actor %s has ended", self.name)
            cause = described(0, e)
        finally:
            self._instance = self._context = None
            self._host.post_gone(self, cause)

    def _live(self) -> Failure | None:
        """Prepare, wait for a context, set up, serve; gives why it gave up, None when it was told to stop."""
        try:
            self._make()
        except Exception as e:  # of a user's prepare, before anybody has called
            if self._site is None:
                log.warning(
                    "resident actor %s could not prepare, which is tried again when it is needed: %s", self.name, e
                )
        self._wake.wait()
        site = self._site
        if self.stopping or site is None:
            return None
        site.device.use()
        self._currents = Currents(site.track.stream, None if site.on_host else site.ordinal)
        self._context = HostContext(self, site.device.info, self.name, site.track.stream, site.ordinal)
        cause = self._set_up("ready")
        while cause is None and not self.stopping:
            item = self._items.get()
            if item is None or self.stopping:
                if item is not None:
                    self._items.put(item)
                break
            cause = self._turn(item)
        return cause

    def _make(self) -> None:
        """A new instance, prepared."""
        if self._instance is not None:
            return
        self._host.channel.busy(f"prepare of {self.name}")
        try:
            props = self._props
            if props is None:
                recipe = self._recipe
                props = self._props = recipe if isinstance(recipe, Props) else loads(recipe)
            instance = props.make()
            instance.prepare()
            self._table = bind(instance)
            self._instance = instance
        finally:
            self._host.channel.busy(None)

    def _set_up(self, event: str) -> Failure | None:
        """Bring an instance up, again and again within the budget; gives why it could not be done."""
        while True:
            try:
                self._make()
                assert self._instance is not None
                assert self._context is not None
                self.make_current()
                self._host.channel.busy(f"setup of {self.name}")
                try:
                    self._instance.setup(self._context)
                finally:
                    self._host.channel.busy(None)
            except BaseException as e:  # of a user's setup, whatever it is: it is judged
                if self._is_lost(e):
                    return described(0, e)
                log.error("resident actor %s could not be set up: %s: %s", self.name, type(e).__name__, e)
                if is_out_of_memory(e):
                    self._host.post_trim()
                cause = self._after(e, may_resume=False)
                if cause is not None or self.stopping:
                    return cause
            else:
                self._host.post_event(self, event)
                return None

    # -- a turn --------------------------------------------------------------------------------------------------------

    def _turn(self, item: Item) -> Failure | None:
        """Run it; gives why the actor gives up, None when it goes on."""
        if any(source.state == FAILED for source in item.op.sources):
            # It was admitted while an earlier turn of ours ran that has failed: the verdict is that one's.
            self._host.post_ended(Ended(self, item, b"", [], Failure(item.message.id, "ContextLost", "", {})))
            return None
        self._current = item
        adopted: list[Adopted] = []
        value = b""
        error: BaseException | None = None
        answer = True  # the failure has not come out of the actor's own code
        try:
            self.make_current()
            if item.start is not None:
                item.start.synchronize()
            method, arguments, keywords = self._unpacked(item)
            answer = False
            result = method(*arguments, **keywords)
            answer = True
            del method, arguments, keywords
            value, adopted = self._packed(item, result)
            del result
        except BaseException as e:  # of a user's method, likewise
            error = e
        self._current = None
        if error is None:
            self._host.post_ended(Ended(self, item, value, adopted))
            return None
        return self._failed(item, error, answer)

    def _unpacked(self, item: Item) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
        name, arguments, keywords = decode(item.message.body)
        site = self._site
        assert site is not None
        memory = None if item.staged is None else item.staged.open()
        unpacker = Unpacker(memory, [self._view(site, *operand) for operand in item.operands])
        args = [unpacker.unpack(a) for a in arguments]
        given = {key: unpacker.unpack(a) for key, a in keywords.items()}
        if name is not None:
            return getattr(self._instance, name), args, given
        handler = find(self._table, type(args[0]))
        if handler is None:
            raise UnhandledMessage(f"{self.name} has no handler for {type(args[0]).__qualname__}")
        return handler, args, given

    def _view(self, site: Site, address: int, layout: Layout, writable: bool) -> Any:
        if site.on_host:
            return host_view(address, layout, writable)
        return DeviceView(address, layout, writable, site.ordinal, site.track.stream)

    def _packed(self, item: Item, result: Any) -> tuple[bytes, list[Adopted]]:
        if inspect.isawaitable(result) and not isinstance(result, Compound):
            getattr(result, "close", lambda: None)()
            raise TypeError(
                "the method is async; those of a resident actor are plain functions, on a thread of its own"
            )
        packer = Packer(lambda value: type(value) is Adopted, with_code=False, cure=CURE)
        try:
            packed = packer.pack(result)
        except Unsendable as e:
            raise TypeError(f"result{e.path}: {e.why}") from None
        except RecursionError:
            raise TypeError("result: it contains itself, or is nested too deeply") from None
        value = encode([packed, [ref.wire for ref in packer.refs]], "the result")
        if len(value) > BESIDE:  # verdicts of many turns may share a frame
            value = encode([*packer.beside(value), True], "the result")
        if packer.nbytes:
            self._host.post_room_wanted(self, item, packer.nbytes)
            room = self._rooms.get()
            if room is None:
                raise ActorStopped(f"{self.name} was stopped")
            if not room.place:
                raise MailboxFull(room.why)
            packer.stage(self._host.memory_at(room, packer.nbytes))
        return value, packer.refs

    # -- failures ------------------------------------------------------------------------------------------------------

    def _failed(self, item: Item, error: BaseException, answer: bool) -> Failure | None:
        if not isinstance(error, ReplyError) and self._is_lost(error):
            return described(0, error)
        failure = described(item.message.id, error)
        short = is_out_of_memory(error)
        if answer or is_answer(error):
            _forget_frames(error)
            self._host.post_ended(Ended(self, item, b"", [], failure, trim=short, asked=item.holds))
            if item.holds:
                self._decisions.get()  # so that the next turn sees whether what it was to read is spoilt
            return None
        self._host.post_ended(Ended(self, item, b"", [], failure, asked=True))
        _forget_frames(error)
        if not self._decisions.get():  # it read what a failed op owed, or the host is closing
            return None
        log.error("resident actor %s failed: %s", self.name, failure.attributes.get("traceback") or failure.message)
        before = self._instance
        cause = self._after(error, may_resume=True)
        if cause is not None or self.stopping or self._instance is before:
            return cause
        return self._set_up("restarted")

    def _is_lost(self, error: BaseException) -> bool:
        """Whether the context is dead; the admitting thread is told."""
        site = self._site
        dead = None if site is None else site.device.probe()
        if dead is None:
            return False
        text = "".join(traceback.format_exception(error)).rstrip()
        dead.add_note(f"found when resident actor {self.name} raised:\n{text}")
        if dead is not error:
            dead.__cause__ = error
        self._host.post_lost(dead)
        return True

    def _after(self, error: BaseException, may_resume: bool) -> Failure | None:
        """Decide what becomes of the actor, and wait if a restart is to wait; gives why it stops."""
        decision = self._strategy().decide(error, self._log, time.monotonic(), random.random())
        match decision.directive:
            case Directive.RESUME if may_resume:
                return None
            case Directive.RESTART | Directive.RESUME:
                self._instance = None
                self._ending.wait(decision.delay)
                return None
            case _:
                return described(0, error)

    def _strategy(self) -> Strategy:
        cls = type(self._instance) if self._instance is not None else getattr(self._props, "_factory", None)
        strategy = getattr(cls, "supervision", ResidentActor.supervision)
        return strategy if isinstance(strategy, Strategy) else ResidentActor.supervision

    # -- for the HostContext -------------------------------------------------------------------------------------------

    def make_current(self) -> None:
        """Make the stream current for packages that have been imported meanwhile."""
        if self._currents is not None:
            self._currents.make()

    def adopt(self, array: Any) -> Adopted:
        """See :meth:`HostContext.ref`."""
        site, item = self._site, self._current
        assert site is not None
        adopted = adopt(array, site.on_host, self._host.post_dying)
        low = adopted.block.address
        for block, _ in item.blocks if item is not None else ():
            if low < block.address + block.nbytes and block.address < low + adopted.block.nbytes:
                raise ValueError(
                    "ctx.ref: the array is (part of) an argument, whose memory is the caller's; return a copy, or "
                    "nothing: he has its ref"
                )
        return adopted


def _forget_frames(error: BaseException) -> None:
    """The frames of a failed method hold its arguments, and so the memory that they lie in."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = None
            waiting += (one.__cause__, one.__context__)
