"""``Ledger``: the ops that are done, and their results."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from callboard.core.errors import AccelError, ContextPoisoned, LibraryError, OutOfMemory, Unrecoverable
from callboard.core.layout import Layout
from callboard.device.host.context.pending import FAILED, FLYING, OK, Pending
from callboard.device.host.context.plans.plan import Plan
from callboard.device.host.context.timelines import Timeline
from callboard.device.host.context.trace import KernelTrace
from callboard.device.protocol.failures import as_failure
from callboard.device.protocol.messages import Completions, FailureMessage

__all__ = ["Ledger", "value_of"]

MESSAGE_OPS, MESSAGE_BYTES = 4096, 4 << 20
"""Most ops, and most bytes of values and errors, in one message: far below the longest frame (wire.MAX_FRAME)."""


class Ledger:
    """Collects completions until they are sent.

    A failure of an op's producers takes precedence over its own: no op is settled before the ops whose results it
    reads.

    Attributes:
        trace: Called with the completion of each op that it has open; None while no trace is installed.
        failures: Failures of a library, or for lack of memory, that were found when ops were done; the owner handles
            and removes them.
    """

    def __init__(self) -> None:
        self.trace: KernelTrace | None = None
        self.failures: list[tuple[Exception, Plan]] = []
        self._done: list[int] = []
        self._values: list[tuple[int, Any]] = []
        self._failed: list[tuple[int, FailureMessage]] = []

    @property
    def is_empty(self) -> bool:
        """True if :meth:`take` would return nothing."""
        return not (self._done or self._values or self._failed)

    def take(self) -> Sequence[Completions]:
        """Everything since the last call, in as few messages as the limits allow."""
        done, values, failed = self._done, self._values, self._failed
        if not (done or values or failed):
            return ()
        self._done, self._values, self._failed = [], [], []
        if len(done) <= MESSAGE_OPS and not values and not failed:  # nearly all messages
            return (Completions(done, []),)
        messages = _Messages(done)
        for value in values:
            messages.value(*value)
        for failure in failed:
            messages.failed(*failure)
        return messages.all

    def answer(self, op: int, answer: Any) -> None:
        """Settle an op that was not enqueued, with its answer; None if it has none."""
        if answer is None:
            self._done.append(op)
        else:
            self._values.append((op, answer))
        if self.trace is not None and op in self.trace.open:
            self.trace.completed(op, ok=True)

    def refuse(self, op: Pending, error: BaseException) -> None:
        """Fail an op that was not launched."""
        self.fail(op, as_failure(op.id, error))

    def fail(self, op: Pending, failure: FailureMessage) -> None:
        """Fail the op with this failure."""
        op.fail(failure)
        self._failed.append((op.id, failure))

    def inherit(self, op: Pending, source: Pending) -> None:
        """Fail the op from the same cause as ``source``, a failed op whose result it reads."""
        assert source.failure is not None
        self.fail(op, source.failure)
        if source.once:
            source.once, source.state = False, OK
            op.once = op.plan is not None and op.plan.keeps

    def settle(self, timelines: Iterable[Timeline]) -> bool:
        """Settle every op that its timeline has completed; True while ops are in flight.

        Raises:
            ContextPoisoned, Unrecoverable: An op's own status shows that the context is dead.
        """
        traced = () if self.trace is None else self.trace.open
        while True:
            progress = blocked = flying = False
            for timeline in timelines:
                ops = timeline.ops
                if not ops:
                    continue
                completed = timeline.completed
                while ops and (op := ops[0]).seq <= completed:
                    if (
                        not op.sources
                        and op.status is None
                        and op.readback is None
                        and op.answer is None
                        and not (traced and op.id in traced)
                    ):
                        op.state = OK  # nearly all ops: no status or value, no producer to wait for
                        op.plan = None
                        self._done.append(op.id)
                    elif not self._settle(op):
                        blocked = True
                        break  # its producer, on another timeline, must be settled first
                    ops.popleft()
                    progress = True
                flying = flying or bool(ops)
            if not (blocked and progress):
                return flying

    def _settle(self, op: Pending) -> bool:
        for source in op.sources:
            if source.state == FLYING:
                return False
        own: Exception | None = None
        try:
            if op.status is not None:
                if op.status.seconds is not None and op.plan is not None:
                    op.plan.took(op.status.seconds)
                op.status.check(b"" if op.outcome is None else op.outcome.take())
                if op.plan is not None and op.plan.answers:
                    op.answer = op.status.answer()
        except (ContextPoisoned, Unrecoverable):
            raise
        except Exception as error:  # raised by a library's check: the op's own failure
            own = error
        failed = next((s for s in op.sources if s.state == FAILED), None)
        if failed is not None:  # the op's own status is meaningless: its input was never written
            self.inherit(op, failed)
        elif own is not None:
            if op.plan is not None and (isinstance(own, LibraryError | OutOfMemory) or not isinstance(own, AccelError)):
                self.failures.append((own, op.plan))
            self.refuse(op, own if isinstance(own, AccelError) else _wrapped(op, own))
            if op.plan is not None and op.plan.keeps:
                op.once = not op.plan.awaited
                op.state = FAILED if op.once else OK  # for the readers of its operands
        else:
            op.state = OK
            if op.readback is not None:
                assert op.plan is not None
                assert op.plan.value is not None
                self._values.append((op.id, value_of(op.readback.take(), op.plan.value)))
            elif op.answer is not None:
                self._values.append((op.id, op.answer))
                op.answer = None
            else:
                self._done.append(op.id)
        if self.trace is not None and op.id in self.trace.open:  # one in many
            self.trace.completed(op.id, op.failure is None)
        op.sources = ()
        op.status = op.outcome = op.readback = op.plan = None
        return True


class _Messages:
    """Splits completions into messages within the limits, each with the causes that it names.

    Args:
        done: Ids of ops that succeeded.

    Attributes:
        all: The messages, in order.
    """

    def __init__(self, done: list[int]) -> None:
        self.all: list[Completions] = []
        for at in range(0, len(done) or 1, MESSAGE_OPS):
            self._begin(done[at : at + MESSAGE_OPS])

    def _begin(self, done: list[int]) -> None:
        self.all.append(Completions(done, []))
        self._ops = len(done)
        self._nbytes = 0
        self._named: set[int] = set()

    def _next(self, nbytes: int) -> Completions:
        """The message that has room for one more op."""
        if self._ops >= MESSAGE_OPS or self._nbytes + nbytes > MESSAGE_BYTES:
            self._begin([])
        self._ops += 1
        self._nbytes += nbytes
        return self.all[-1]

    def value(self, id: int, value: Any) -> None:
        self._next(len(value) if isinstance(value, bytes) else 0).values.append((id, value))

    def failed(self, id: int, cause: FailureMessage) -> None:
        message = self._next(0 if cause.id in self._named else _size(cause))
        message.failed.append((id, cause.id))
        if cause.id not in self._named:
            self._named.add(cause.id)
            message.causes.append(cause)


def _size(cause: FailureMessage) -> int:
    texts = [cause.message, *cause.notes, *(v for v in cause.attributes.values() if isinstance(v, str | bytes))]
    return sum(map(len, texts))


def _wrapped(op: Pending, error: Exception) -> LibraryError:
    lib = op.plan.tag.partition(".")[0] if op.plan else ""
    return LibraryError(f"{lib}: {type(error).__name__}: {error}", lib, unexpected=True)


def value_of(raw: bytes, layout: Layout) -> Any:
    """A number as a completion has it: a complex one is ``[re, im]``."""
    number = np.frombuffer(raw, layout.dtype.np, 1)[0]
    if layout.dtype.is_complex:
        return [float(number.real), float(number.imag)]
    return int(number) if layout.dtype.is_integer or layout.dtype.kind == "bool" else float(number)
