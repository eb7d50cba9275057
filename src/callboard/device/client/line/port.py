"""``OpPort``: the application's end of the op line: mints ids and queues calls.

The hot path of the application: a few microseconds per op. A call never waits and never does I/O beyond one
non-blocking send.
"""

import asyncio
import concurrent.futures
import itertools
import weakref
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any

from callboard.actors._runtime.current import CURRENT
from callboard.actors.loops.posting import post
from callboard.core.errors import AccelError, DeviceStopped, MailboxFull, ShapeError
from callboard.core.library import Library
from callboard.core.op import Op, Repeated, info_of
from callboard.core.ref import Allocation, DeferredRef, GpuRef, RefServices, deferral_of
from callboard.core.reply import Cause, Reply
from callboard.device import forkguard
from callboard.device.client.deferred import Deferred
from callboard.device.client.line import refusals
from callboard.device.client.line.entries import Entry, GuardedKey, origin_of, request_key
from callboard.device.client.line.leaving import Left
from callboard.device.client.line.outbox import Outbox
from callboard.device.client.line.plans import ClientPlan, check_overlaps
from callboard.device.client.line.replies import reply_to
from callboard.device.client.line.room import RoomQueue
from callboard.device.client.line.unanswered import Unanswered
from callboard.device.config import DeviceConfig
from callboard.device.protocol.messages import ActorCall, Call, Completions
from callboard.device.supervision.hosts.base import Host
from callboard.events.concerns import TRACE
from callboard.events.kinds import OP, SETTLED
from callboard.events.ring import EVENTS
from callboard.events.ring import now as now_ns
from callboard.events.tracing import is_sampled
from callboard.kernel.recording import recorder

if TYPE_CHECKING:
    from callboard.device.client.recorded import RecordedPort

__all__ = ["OpPort", "request_key"]

_entry = tuple.__new__  # a NamedTuple's own constructor costs twice as much
_ids = itertools.count(1)  # ops and buffers of this process; never reused


def _message(op: Op[Any, Any] | Repeated) -> Op[Any, Any]:
    return op.made() if isinstance(op, Repeated) else op


class OpPort:
    """Ops of one device, across its generations.

    Attributes:
        name, uuid: Name and UUID of the device.
        generation: The one that ops belong to now.
        losses: The number of contexts that were lost and replaced.
        stopped: The reason why the device takes no more work; None while it does.
        backend: Name of the backend.
        recordings: Number of recordings that are open.
        outbox: Calls that have not been sent, and the host that they are sent to.
        peer: Copies to and from other devices; None if there are none.
        sources: The devices whose arrays calls still wait for, by a number for each wait; None where the array comes
            from a thread of this process.
        unanswered: Ops without a completion.
        chains: Finds repeated chains of calls; None if this is disabled.
        deferrals: Refs whose ops are submitted later; None if that is off.
        holding: Makes refs of results that were computed in this process; None where there are none.
        config: The settings of the device.
        left: Called when a task that awaited a reply was cancelled, or Ctrl-C has ended a wait. Any thread.
        interrupted: Called when Ctrl-C has ended a wait for a reply. Any thread.
        called, failures: Ops by tag, and those that failed, while telemetry was on.
        recorded: Reports the work of the device to a log; None if it is not recorded.
    """

    recorded: "RecordedPort | None" = None

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        uuid: str,
        backend: str,
        libraries: Mapping[str, type[Library]],
        config: DeviceConfig,
        report: Callable[[BaseException], None],
    ) -> None:
        self.loop = loop
        self.name = name
        self.uuid = uuid
        self.generation = 0
        self.losses = 0
        self.stopped: str | None = None
        self._stopped_by: BaseException | None = None
        self.recordings = 0
        self.outbox = Outbox(loop, name, config.linger)
        self.unanswered = Unanswered(self, name)
        self.backend = backend
        self._libraries = libraries
        self.config = config
        self._report = report
        self._plans: dict[bytes, ClientPlan] = {}
        self._room = config.pending_capacity
        self._forked = False
        self.called: defaultdict[str, int] = defaultdict(int)
        self.failures: defaultdict[str, int] = defaultdict(int)
        self.services: RefServices  # the device sets it
        self.deferrals = Deferred(self) if config.fuse and "elementwise" in libraries else None
        self.holding: Any = None
        self.peer: Any = None
        self.sources: dict[int, OpPort | None] = {}
        self.chains: Any = None
        self.left = Left(self)
        self.interrupted: Callable[[], None] = lambda: None
        self._waiting = RoomQueue()
        forkguard.guard(self)

    def beside(self, name: str, config: DeviceConfig) -> "OpPort":
        """A port of the same device for another host of it."""
        return OpPort(self.loop, name, self.uuid, self.backend, self._libraries, config, self._report)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def submit(
        self,
        op: Op[Any, Any] | Repeated,
        extra: Any = None,
        keep: Any = None,
        depth: int = 2,
        into: DeferredRef[Any] | None = None,
        further: bool = False,
    ) -> Any:
        """Accept an op; its reply at once.

        Args:
            op: The message, or its maker.
            extra: Notified when the completion is known.
            keep: Resolve this instead of a reply made here.
            depth: Minimum number of frames to walk up to the caller, for the creation line; callboard's are skipped.
            into: The ref that its one result is, which was given room and a creation line when it was called.
            further: It is a further op of a call that has been given room, so that a call is accepted as a whole.

        Raises:
            ShapeError, UnsupportedOp, DeviceMismatch, GpuRefStale, MailboxFull, DeviceStopped: Raised before anything
                is sent.
        """
        if self.recordings and (recording := recorder.get()) is not None and recording.owns(self):
            return recording.record(_message(op), depth + 1, into)
        if isinstance(op, Repeated):
            signature, operands, numbers, _ = op
        else:
            try:
                signature, operands, numbers = info_of(type(op)).split(op)
            except ShapeError as e:
                raise (not self.services.blocking and refusals.open_extents(_message(op))) or e from None
        plan = self._plans.get(signature)
        if plan is None:
            plan = self.plan(signature, _message(op))
        pending = self.check_room(further or into is not None)
        generation = self.generation
        places: list[int] = []
        for ref in operands:
            allocation = ref.allocation
            if ref.generation != generation or allocation.freed or ref._port is not self:
                raise self.unusable(plan.tag, _message(op), ref)
            places.append(allocation.id)
            places.append(ref.offset)
        if plan.written and places != plan.apart:
            buffers = places[::2]
            for at in plan.written:
                if buffers.count(buffers[at]) > 1:
                    check_overlaps(_message(op))
                    break
            plan.apart = places
        deferrals = self.deferrals
        if deferrals is not None and deferrals.live:
            if plan.fenced:
                deferrals.flush()
            for at in plan.written:
                deferrals.before_write(operands[at].allocation)
        op_id = next(_ids)
        made = [next(_ids) for _ in plan.outputs] if plan.outputs else []
        call = Call(op_id, signature, places, numbers, made)
        # The first op is sent before the rest of this function runs, so that the host and the device are at work.
        outbox, sent = self.outbox, True
        called: Any = None
        try:
            sent = (outbox.here or not pending) and outbox.send(call)
            if plan.one_given >= 0:
                given = operands[plan.one_given]
                reply: Any = GpuRef(self, given.allocation, given.layout, generation, given.offset, op_id)
                target: Callable[[], Any] = weakref.ref(reply)
            elif into is not None:
                reply, target, called = into, weakref.ref(into), deferral_of(into).origin
            elif plan.one_made:
                owner = Allocation(made[0], outbox.released.small if plan.small else outbox.released)
                owner.foreign = plan.foreign
                reply = GpuRef(self, owner, plan.outputs[0], generation, 0, op_id)
                target = weakref.ref(reply)
            else:
                reply, target, extra = reply_to(self, plan.sink(outbox.released), plan, op, op_id, made, extra)
            if keep is not None:
                target = lambda: keep
            origin = origin_of(depth + 1) if into is None else called
            self.enter(call, _entry(Entry, (target, plan.tag, *origin, extra)), pending, sent)
        except BaseException:  # Ctrl-C, too: what the op uses must not be used again if the host has it
            if sent and op_id not in pending:
                self.unanswered.doubt(op_id, Entry(lambda: keep, plan.tag, *origin_of(depth + 1), extra))
            raise
        if into is not None:  # last: another thread may read it from now on, behind the call
            into.settle_on(Allocation(made[0], outbox.released.small if plan.small else outbox.released), op_id)
        return reply if keep is None else keep  # a ref that is dropped here is freed behind the call

    def send(self, call: Call, tag: str, target: Callable[[], Any], depth: int = 2) -> None:
        """Accept a call that has no message, such as the replay of a recording. Its operands are already checked.

        Raises:
            MailboxFull, DeviceStopped: Raised before anything is sent.
        """
        if self.deferrals is not None:
            self.deferrals.flush_all()
        pending = self.check_room()
        outbox = self.outbox
        sent = (outbox.here or not pending) and outbox.send(call)
        self.enter(call, _entry(Entry, (target, tag, *origin_of(depth + 1), None)), pending, sent)

    def enter(
        self, call: Call | ActorCall, entry: Entry, pending: dict[int, Entry], sent: bool, *, now: bool = True
    ) -> None:
        """Register a call that is accepted, and queue it. Any thread.

        Args:
            call: The message.
            entry: What is notified of its completion.
            pending: What :meth:`check_room` returned before the call was made.
            sent: It has been sent already.
            now: The queue may be sent before this returns.
        """
        pending[call.id] = entry
        ring = EVENTS.ring
        if ring is not None:
            self.called[entry[1]] += 1
            if EVENTS.ops or (EVENTS.sampler is not None and (trace := TRACE.get()) and is_sampled(trace)):
                cell = CURRENT.get()
                path = "" if cell is None else cell.path
                ring.append((next(ring.numbers), now_ns(), OP, self.name, call.id, entry[1], path, TRACE.get()))
        if not sent:
            try:
                self.outbox.add(call)
            except BaseException:  # Ctrl-C, too
                if call not in list(self.outbox.queue):
                    self.unanswered.doubt(call.id, pending.pop(call.id, None))
                raise
        if self.unanswered.entries is not pending:  # lost meanwhile: the loop fails the op, if it has not yet
            post(self.loop, self.unanswered.fail_late, call.id, pending)
        if now:
            self.outbox.remind()
        else:
            post(self.loop, self.outbox.flush)
        if self.unanswered.closed:  # meanwhile; the loop may run no more
            self.unanswered.fail_late(call.id, pending)

    def mint(self) -> int:
        """The id of a new op, buffer or recording."""
        return next(_ids)

    def library(self, name: str) -> type[Library]:
        """The backend's class of a library."""
        return self._libraries[name]

    def plan(self, signature: bytes, op: Op[Any, Any]) -> ClientPlan:
        """The plan of an op's signature.

        Raises:
            ShapeError, UnsupportedOp
        """
        known = self._plans.get(signature)
        if known is not None:
            return known
        plan = ClientPlan(op)
        library = self._libraries.get(plan.tag.partition(".")[0])
        why = "the backend has no such library" if library is None else library.why_not(op)
        if why is not None:
            raise refusals.marked(
                refusals.unsupported(self.backend, plan.tag, why), self.name, self.generation, plan.tag
            )
        if len(self._plans) >= 8192:
            self._plans.clear()
        self._plans[signature] = plan
        return plan

    def allocation(self) -> Allocation:
        """The owner of a new buffer, if no op makes one."""
        return Allocation(next(_ids), self.outbox.released)

    # -- what replies ask for ------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send queued calls, if a context exists; on another thread, have the loop do it."""
        self.outbox.flush()

    def awaited(self, reply: Reply[Any]) -> None:
        """Send queued calls; if this is the only op in flight, poll for its completion for a moment.

        If it waits for an array of another device of this loop, that device's answer is polled for first. On another
        thread, has the loop do so, until an op of another thread is called.
        """
        outbox = self.outbox
        outbox.want()
        if get_ident() != outbox.thread and len(self.unanswered.entries) == 1 and not self._forked:
            post(self.loop, self._awaited_there, reply)
            return
        if outbox.queue or outbox.released.pressing or self._forked:
            outbox.hurry()
        if len(self.unanswered.entries) != 1:
            return
        for source in list(self.sources.values())[:1]:
            if source is not None and source.loop is self.loop:
                source.flush()
                source.outbox.linger(lambda: not self.sources)
        if not self.sources:
            outbox.linger(reply.done)

    def _awaited_there(self, reply: Reply[Any]) -> None:
        outbox = self.outbox
        outbox.flush()
        if len(self.unanswered.entries) == 1 and not self.sources:
            outbox.linger(lambda: reply.done() or bool(outbox.queue))

    def withdraw(self, reply: Reply[Any]) -> bool:
        """Withdraw an unsent op; it fails with ``Withdrawn``, and so do readers of its outputs."""
        if get_ident() == self.outbox.thread:
            return self.outbox.withdraw(reply._op)
        answer: concurrent.futures.Future[bool] = concurrent.futures.Future()
        posted = post(self.loop, lambda: answer.set_result(self.outbox.withdraw(reply._op)))
        return posted and answer.result(10.0)

    # -- completions ---------------------------------------------------------------------------------------------------

    def completions(self, message: Completions) -> None:
        """Settle the replies."""
        if self.chains is not None:
            self.chains.spread(message)
        ring = EVENTS.ring
        if ring is not None:
            done: Sequence[int] = message.done
            failed: tuple[str, ...] = ()
            if message.values and EVENTS.ops:
                done = [*done, *(op for op, _ in message.values)]
            if message.failed:
                entries = self.unanswered.entries
                failed = tuple(entries[op].tag for op, _ in message.failed if op in entries)
                for tag in failed:
                    self.failures[tag] += 1
            if EVENTS.ops:
                ring.append((next(ring.numbers), now_ns(), SETTLED, self.name, done, failed))
        self.unanswered.settle(message, self.generation)
        if self._waiting.waiting:
            self._waiting.poll()

    def unretrieved(self, cause: Cause) -> None:
        """To dead letters and the log. The error is made on the loop's thread, where it may run code of its class."""
        if not post(self.loop, self._report_unretrieved, cause):
            self._report_unretrieved(cause)

    def _report_unretrieved(self, cause: Cause) -> None:
        self._report(cause.error())

    # -- generations ---------------------------------------------------------------------------------------------------

    def ready(self, host: Host) -> None:
        """Send the ops that were accepted before a context was ready."""
        self._room = self.config.max_in_flight
        self.outbox.ready(host)
        self._waiting.poll()

    def has_guarded(self) -> bool:
        """True if an op in flight was called under a quarantine, which repeats what a loss fails."""
        return any(isinstance(entry.key, GuardedKey) for entry in self.unanswered.entries.copy().values())

    def lose(self, error: AccelError, generation: int) -> int:
        """Fail everything accepted and not answered, sent or not; new ops belong to ``generation``.

        Returns:
            The number of ops that failed.
        """
        self._room = self.config.pending_capacity
        # Other threads, which may be submitting, read these three in the opposite order: an op in the new `entries` is
        # of the new generation and in the new queue; one in the old `entries` is failed below, or by `enter`.
        old, self.generation = self.generation, generation
        self.outbox.lose()
        if self.chains is not None:
            self.chains.lose()
        failed = self.unanswered.lose(error, old, next(_ids))
        if EVENTS.ring is not None:
            for tag, count in self.unanswered.lost_tags.items():
                self.failures[tag] += count
        for entry in () if self.deferrals is None else self.deferrals.lose():
            failed += self.unanswered.fail_lost(0, {0: entry})
        return failed

    def stop(self, reason: str, error: AccelError) -> int:
        """Stop accepting work; waiting calls fail with ``error``, later ones with its cause."""
        self._stopped_by = error.__cause__
        self.stopped = reason  # last: other threads look at it
        failed = self.lose(error, self.generation)
        self._waiting.poll()
        return failed

    def close(self) -> None:
        """Release the loop."""
        self.unanswered.forget()
        self.outbox.close()

    def after_fork(self) -> None:
        """In a forked child: every call raises."""
        self._forked = True
        self._room = 0
        self.outbox.after_fork()

    # -- room ----------------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Ops without a completion."""
        return len(self.unanswered.entries)

    @property
    def queued(self) -> int:
        """Calls that have not been sent."""
        return len(self.outbox.queue)

    def check_room(self, further: bool = False) -> dict[int, Entry]:
        """See that one more call can be accepted; the first step of each acceptance, and :meth:`enter` the last.

        Args:
            further: It is a further op of a call that has been given room.

        Returns:
            The ops without a completion, of this generation.

        Raises:
            MailboxFull, DeviceStopped
        """
        pending = self.unanswered.entries
        if self.stopped is not None or (len(pending) >= self._room and (not further or self._forked)):
            raise self._no_room()
        return pending

    async def room(self, n: int) -> None:
        """Wait until ``n`` more ops can be called.

        Raises:
            ValueError: More than there will ever be room for.
            DeviceStopped
        """
        if n > self.config.max_in_flight:
            raise ValueError(f"room for {n} ops; max_in_flight is {self.config.max_in_flight}")
        await self.until(lambda: len(self.unanswered.entries) + n <= self._room)
        if self.stopped is not None:
            raise self.why_stopped()

    async def until(self, fits: Callable[[], bool]) -> bool:
        """Wait until ``fits()``, which becomes true with a completion, or the device has stopped; returns True."""
        self.flush()
        await self._waiting.wait(lambda: self.stopped is not None or fits())
        return True

    async def drain(self) -> None:
        """Wait until no op is without a completion."""
        if self.deferrals is not None:
            self.deferrals.flush()
        await self.until(lambda: not self.unanswered.entries)

    # -- refusals ------------------------------------------------------------------------------------------------------

    def _no_room(self) -> AccelError:
        if self._forked:
            raise forkguard.forked_error(f"device {self.name}")
        error = refusals.no_room(self.name, self.stopped, self.outbox.host is not None, self.config)
        error.__cause__ = self._stopped_by
        if isinstance(error, MailboxFull):
            error.more = lambda: self.until(lambda: len(self.unanswered.entries) < self._room)
        return refusals.marked(error, self.name, self.generation)

    def why_stopped(self) -> DeviceStopped:
        """A new error for something that needs the device, which has stopped."""
        error = DeviceStopped(f"{self.name}: {self.stopped}")
        error.__cause__ = self._stopped_by
        return refusals.marked(error, self.name, self.generation)

    def unusable(self, tag: str, op: Op[Any, Any], ref: Any) -> AccelError:
        """The error for an operand that an op cannot use."""
        error = refusals.unusable(self, tag, op, ref)
        return refusals.marked(error, self.name, self.generation, tag)
