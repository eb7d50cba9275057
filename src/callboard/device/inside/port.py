"""``LocalPort``: from a message to its launch, on the thread and on the stream of a resident actor.

Both ends of an op are here, so nothing is encoded, queued or answered: the message's class checks it, its plan is made
once, and the library's launch enqueues it after the actor's earlier work. The libraries are the actor's own: their
handles and workspaces belong to its stream.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from callboard.core.backend import AccelDevice, AccelStream, Readback, Status
from callboard.core.errors import (
    AccelError,
    ContextPoisoned,
    DeviceMismatch,
    GpuRefStale,
    LibraryError,
    OutOfMemory,
    Unrecoverable,
    UnsupportedOp,
)
from callboard.core.layout import Layout, OpenLayout
from callboard.core.op import Op, Repeated, info_of
from callboard.core.ref import Allocation, GpuRef, RefServices
from callboard.core.reply import Cause, OpFailure, Reply
from callboard.device.client.line.plans import ClientPlan, check_overlaps
from callboard.device.client.line.replies import reply_to
from callboard.device.host.context.admission.shortage import shortage
from callboard.device.host.context.ledger import value_of
from callboard.device.host.context.libraries import Libraries
from callboard.device.host.context.plans.plan import Plan, read_plan
from callboard.device.host.context.timelines import Timeline
from callboard.device.inside.memory import LocalMemory
from callboard.device.inside.regions import LocalRegion
from callboard.kernel.memory import Download

__all__ = ["LocalPort"]

Array = np.ndarray[Any, Any]

MAX_PLANS = 1024
"""Signatures that are kept; when there are more, the actor's libraries begin anew."""


MOST = 256
"""Ops that may be unsettled; one more waits for all."""


class Known(NamedTuple):
    """A resolved signature: the form of its replies, and its launch."""

    client: ClientPlan
    plan: Plan


class Unsettled(NamedTuple):
    """An op whose outcome or value is on its way to the host."""

    plan: Plan
    status: Status | None
    outcome: Readback | None
    value: Readback | None
    reply: Any


class LocalPort:
    """The ops of one resident actor. For its own thread.

    Args:
        device: Open, and current on the calling thread.
        name: Name of the device, for errors.
        libraries: The actor's own; their only stream is that of ``timeline``.
        timeline: The actor's.
        memory: Memory of its arrays.
        behind: A stream whose work each op waits for, and which does not wait for the ops; None: the port's own is the
            only one.

    Attributes:
        generation: 0: a context has one instance of an actor at a time, and its refs end with it.
        stopped: The reason why it takes no more ops.
        deferrals: None: a call of an actor is short, and its ops are submitted as they are called.
        holding: None: all results are made on the device.
    """

    generation = 0
    deferrals = None
    holding = None

    def __init__(
        self,
        device: AccelDevice,
        name: str,
        libraries: Libraries,
        timeline: Timeline,
        memory: LocalMemory,
        behind: AccelStream | None = None,
    ) -> None:
        self.name = name
        self.uuid = device.info.uuid
        self.stopped: str | None = None
        self.services: RefServices
        self.loop: Any = object()  # stands for a loop: none runs here
        self.memory = memory
        self.stream = timeline.stream
        self.on_host = device.info.compute_capability == (0, 0)
        self._device = device
        self._libraries = libraries
        self._known: dict[bytes, Known] = {}
        self._brought: dict[bytes, Plan] = {}  # by the layout of the copied memory
        self._unsettled: list[Unsettled] = []
        self._behind = behind
        self._held: list[list[Any]] = []  # operands of unsettled ops, which others may free before these are done

    # -- ops -----------------------------------------------------------------------------------------------------------

    def submit(self, op: Op[Any, Any]) -> Any:
        """Enqueue an op; its reply: a ref, several, or a :class:`Reply <callboard.Reply>` of a number.

        On a CPU, the op is done when this returns.

        Raises:
            ShapeError, UnsupportedOp, DeviceMismatch, GpuRefStale: Raised before anything is enqueued.
            OutOfMemory: There is no room for its result.
            LibraryError: The library refuses it, or it failed on a CPU.
        """
        if isinstance(op, Repeated):
            op = op.made()
        signature, operands, numbers = info_of(type(op)).split(op)
        known = self._known.get(signature)
        if known is None:
            known = self._work_out(signature, op)
        client, plan = known
        self._check(client, op, operands)
        values = plan.blank.copy()
        for binding, operand in zip(plan.bindings, operands, strict=True):
            _place(values, binding.at, binding.item, self._address(operand))
        plan.fill(values, numbers)
        made: list[int] = []
        try:
            launched = self._sized(plan, values)
            for at, item, layout in launched.makes:
                number, address = self._make(layout.nbytes)
                made.append(number)
                _place(values, at, item, address)
            reply, settled = self._reply(client, op, operands, made, launched)
            if self._behind is not None:
                self._follow(self._behind)
                self._held.append(operands)
            self._launch(launched, values, reply if client.value or client.answers is not None else None)
        except BaseException:  # Ctrl-C, too
            self.memory.released.extend(made)
            raise
        if not client.value and client.answers is None:
            shapes = [
                list(layout.shape)
                for (*_, was), (*_, layout) in zip(plan.makes, launched.makes, strict=True)
                if isinstance(was, OpenLayout)
            ]
            _settle(settled(), shapes)
        return reply

    def _check(self, client: ClientPlan, op: Op[Any, Any], operands: list[Any]) -> None:
        places: list[int] = []
        for ref in operands:
            if ref._port is not self:
                raise DeviceMismatch(
                    f"{client.tag}: {ref.layout!r} is not of this actor's device; pass an array that a method was "
                    "given, one of its own, or one of ctx.device"
                )
            if ref.allocation.freed or self.stopped is not None:
                raise GpuRefStale(f"{client.tag}: {ref.layout!r}: {self.stopped or 'freed'}", "freed")
            places += (ref.allocation.id, ref.offset)
        if client.written and places != client.apart:
            check_overlaps(op)
            client.apart = places

    def _address(self, operand: Any) -> int:
        if type(operand) is LocalRegion:
            return operand.address
        return self.memory.address(operand.allocation.id) + operand.offset  # type: ignore[no-any-return]

    def _make(self, nbytes: int) -> tuple[int, int]:
        try:
            return self.memory.make(nbytes)
        except OutOfMemory:
            self.settle()
            self.memory.trim()
            self._device.trim()
            return self.memory.make(nbytes)

    def _sized(self, plan: Plan, values: list[Any]) -> Plan:
        """The plan to launch: of some ops, data decide the extents of the outputs."""
        if plan.query_size is None:
            return plan if plan.launch is not None else plan.sized(())  # on one stream, all is behind all before
        self.settle()
        try:
            return plan.sized(plan.query_size(plan.state, *values))
        except Exception as e:  # an exception of a library, which is classified
            raise self._classified(e, plan) from e

    def _reply(
        self, client: ClientPlan, op: Op[Any, Any], operands: list[Any], made: list[int], plan: Plan
    ) -> tuple[Any, Callable[[], Any]]:
        """The reply, and the object settled by its completion."""
        released = self.memory.released
        ref: GpuRef[Any]
        if client.one_given >= 0:
            given = operands[client.one_given]
            ref = GpuRef(self, given.allocation, given.layout, 0, given.offset)
        elif client.one_made:
            ref = GpuRef(self, Allocation(made[0], released), plan.makes[0][2], 0)
        else:
            reply, settled, _ = reply_to(self, released, client, op, 0, made, None)
            return reply, settled
        return ref, lambda: ref

    def _follow(self, other: AccelStream) -> None:
        event = other.record()
        self.stream.wait(event)
        other.recycle(event)

    def _launch(self, plan: Plan, values: list[Any], number: Any) -> None:
        """Enqueue the work; ``number`` is the reply that takes the op's value, or None."""
        assert plan.launch is not None
        outcome = value = None
        try:
            status = plan.launch(self.stream, plan.state, *values)
            if status is not None and status.nbytes:
                outcome = self._device.read_back(self.stream, status.address, status.nbytes)
            if number is not None and plan.value is not None:
                value = self._device.read_back(self.stream, values[plan.makes[0][0]], plan.value.nbytes)
        except Exception as e:  # likewise
            raise self._classified(e, plan) from e
        if status is not None or value is not None:
            self._unsettled.append(Unsettled(plan, status, outcome, value, number))
        if (self.on_host and self._behind is None) or len(self._unsettled) >= MOST:
            self.settle()  # on a CPU, user code reads and writes its arrays without asking

    def bring(self, owner: Any, address: int, layout: Layout, out: Array) -> None:
        """Copy memory of another package to the host, after the stream's earlier work, and wait for it.

        Args:
            owner: Keeps the memory.
            address: Address of element 0.
            layout: Row-major.
            out: Row-major, of its dtype and shape.

        Raises:
            LibraryError: An op called before has failed.
        """
        plan = self._brought.get(layout.wire)
        if plan is None:
            region = LocalRegion(self, out)  # whose layout is that of both
            op = Download(src=region, host=region)
            signature, _, _ = info_of(Download).split(op)
            known = self._known.get(signature) or self._work_out(signature, op)
            plan = self._brought[layout.wire] = known.plan
        values = plan.blank.copy()
        src, host = plan.bindings
        values[src.at], values[host.at] = address, out.__array_interface__["data"][0]
        self._launch(plan, values, None)
        self.settle()

    # -- outcomes ------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until all ops are done.

        Raises:
            LibraryError: One of them has failed; the first that did. The others are settled all the same.
        """
        self.stream.synchronize()
        unsettled, self._unsettled = self._unsettled, []
        self._held.clear()
        first: AccelError | None = None
        for plan, status, outcome, value, reply in unsettled:
            try:
                if status is not None:
                    status.check(b"" if outcome is None else outcome.take())
            except (ContextPoisoned, Unrecoverable):
                raise
            except Exception as e:  # of a library's check
                error = e if isinstance(e, AccelError) else LibraryError(f"{plan.tag}: {e}", plan.lib)
                first = first or error
                if reply is not None:
                    reply._reject(OpFailure(Cause(self, functools.partial(_error, error))))
                continue
            if reply is not None and plan.op.answers is not None:
                assert status is not None
                reply._answer(status.answer())
            elif reply is not None:
                assert value is not None
                assert plan.value is not None
                reply._answer(value_of(value.take(), plan.value))
        if first is not None:
            raise first

    @property
    def has_unsettled(self) -> bool:
        """True if an op may still turn out to have failed."""
        return bool(self._unsettled)

    def close(self) -> None:
        """Release everything after the actor's instance has ended. The context is alive."""
        self.stopped = "the actor's instance is gone"
        self.stream.synchronize()
        self._forget()
        for actor in self._libraries.actors.values():
            actor.close()
        self._libraries.actors.clear()
        self.memory.close()

    # -- plans ---------------------------------------------------------------------------------------------------------

    def _work_out(self, signature: bytes, op: Op[Any, Any]) -> Known:
        if len(self._known) >= MAX_PLANS:
            self.settle()
            self._forget()
        plan = read_plan(signature)
        if not plan.pooled:
            raise UnsupportedOp(f"{plan.tag} in a resident actor: make the array outside, and pass it to a call")
        try:
            actor = self._libraries.serve(plan)
            if actor.needs_helper(plan) is not None:
                actor.prepare(plan)
        except Exception as e:  # likewise
            raise self._classified(e, plan) from e
        known = self._known[signature] = Known(ClientPlan(op), plan)
        return known

    def _forget(self) -> None:
        for known in self._known.values():
            known.plan.close()
        self._known.clear()
        self._brought.clear()

    def _classified(self, error: BaseException, plan: Plan) -> BaseException:
        """Translate an exception of a library, whose handle is recreated if the exception is not callboard's."""
        if isinstance(error, AccelError) and not isinstance(error, LibraryError):
            return error
        short = shortage(error, plan.tag)
        if short is not None:
            return short
        dead = self._device.probe()
        if dead is not None:
            return dead
        if isinstance(error, LibraryError):
            return error
        actor = self._libraries.actors.get(plan.lib)
        if actor is not None:
            actor.restart(lambda: self._drop(plan.lib))
        return LibraryError(f"{plan.tag}: {type(error).__name__}: {error}; the handle was made again", plan.lib)

    def _drop(self, lib: str) -> None:
        for signature in [s for s, known in self._known.items() if known.plan.lib == lib]:
            self._known.pop(signature).plan.close()
        self._brought.clear()

    # -- what replies ask for ------------------------------------------------------------------------------------------

    def awaited(self, reply: Reply[Any]) -> None:
        """A number is waited for."""
        self.settle()

    def withdraw(self, reply: Reply[Any]) -> bool:
        """No: it is enqueued."""
        return False

    def left(self, reply: Reply[Any], /) -> None:
        """Do nothing: a call of an actor ends by itself."""

    def interrupted(self) -> None:
        """Do nothing: Ctrl-C goes to the application."""

    def unretrieved(self, cause: Cause) -> None:
        """Do nothing: the failure was raised by the wait that found it."""


def _error(error: AccelError, _op: Any, _ops: int) -> AccelError:
    return error


def _place(values: list[Any], at: int, item: int, address: int) -> None:
    """Put an address among the arguments of a launch; ``item`` is its place in a struct operand, -1 in none."""
    if item < 0:
        values[at] = address
    elif item == 0:
        values[at] = [address]
    else:
        values[at].append(address)


def _settle(target: Any, shapes: list[list[int]]) -> None:
    if target is not None:
        if shapes:
            target._answer({"shapes": shapes})
        else:
            target._resolve()
