"""Verdicts: which ops are done, and how."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from callboard.core.errors import AccelError, ContextPoisoned, LibraryError, Unrecoverable
from callboard.core.layout import Layout
from callboard.device.context.pending import FAILED, FLYING, OK, Pending
from callboard.device.context.trace import KernelTrace
from callboard.device.context.tracks import Track
from callboard.device.failures import as_failure, same_for
from callboard.device.protocol import Failure, Verdicts

__all__ = ["Ledger"]


class Ledger:
    """Collects verdicts until they are sent.

    Attributes:
        trace: Told of every verdict, while one is installed.

    An op's verdict is its producers' failure, then its own: no op is settled before the ops whose results it reads.
    """

    def __init__(self) -> None:
        self.trace: KernelTrace | None = None
        self._done: list[int] = []
        self._values: list[tuple[int, Any]] = []
        self._failed: list[Failure] = []

    def take(self) -> Verdicts | None:
        """Everything since the last call, None when there is nothing."""
        if not (self._done or self._values or self._failed):
            return None
        message = Verdicts(self._done, self._values, self._failed)
        self._done, self._values, self._failed = [], [], []
        return message

    def refuse(self, op: Pending, error: BaseException) -> None:
        """The op was not launched."""
        op.fail(as_failure(op.id, error))
        assert op.failure is not None
        self._failed.append(op.failure)

    def fail(self, op: Pending, failure: Failure) -> None:
        """The op has failed as ``failure`` says."""
        op.fail(failure)
        self._failed.append(failure)

    def inherit(self, op: Pending, source: Pending, note: str) -> None:
        """The op reads what a failed op owed."""
        assert source.failure is not None
        op.fail(same_for(op.id, source.failure, source.root, note))
        assert op.failure is not None
        self._failed.append(op.failure)

    def settle(self, tracks: Iterable[Track]) -> bool:
        """Settle every op that its track has passed; True while ops are in flight.

        Raises:
            ContextPoisoned, Unrecoverable: An op's own status says that the context is dead.
        """
        plain = self.trace is None
        while True:
            progress = blocked = flying = False
            for track in tracks:
                ops = track.ops
                if not ops:
                    continue
                completed = track.completed
                while ops and (op := ops[0]).ticket <= completed:
                    if not op.sources and op.check is None and op.readback is None and op.answer is None and plain:
                        op.state = OK  # nearly all ops: nothing of their own to say, no producer to wait for
                        op.plan = None
                        self._done.append(op.id)
                    elif not self._settle(op):
                        blocked = True
                        break  # its producer, on another track, is settled first
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
            if op.check is not None:
                op.check()
        except (ContextPoisoned, Unrecoverable):
            raise
        except Exception as error:  # of a library: what it found is the op's failure
            own = error
        failed = next((s for s in op.sources if s.state == FAILED), None)
        if failed is not None:  # whatever the op itself says, it says of numbers that nobody wrote
            self.inherit(op, failed, f"{op.plan.tag if op.plan else 'op'} read what op {failed.root} owed")
        elif own is not None:
            self.refuse(op, own if isinstance(own, AccelError) else _wrapped(op, own))
        else:
            op.state = OK
            if op.readback is not None:
                assert op.plan is not None
                assert op.plan.value is not None
                self._values.append((op.id, _value(op.readback.take(), op.plan.value)))
            elif op.answer is not None:
                self._values.append((op.id, op.answer))
                op.answer = None
            else:
                self._done.append(op.id)
        if self.trace is not None:
            self.trace.completed(op.id, op.state == OK)
        op.sources = ()
        op.check = op.readback = op.plan = None
        return True


def _wrapped(op: Pending, error: Exception) -> LibraryError:
    lib = op.plan.tag.partition(".")[0] if op.plan else ""
    return LibraryError(f"{lib}: {type(error).__name__}: {error}", lib)


def _value(raw: bytes, layout: Layout) -> Any:
    number = np.frombuffer(raw, layout.dtype.np, 1)[0]
    if layout.dtype.is_complex:
        return [float(number.real), float(number.imag)]
    return int(number) if layout.dtype.is_integer or layout.dtype.kind == "bool" else float(number)
