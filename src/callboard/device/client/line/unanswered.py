"""``Unanswered``: the accepted ops that have no completion yet."""

import contextlib
import functools
import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakValueDictionary

from callboard.core.errors import AccelError, ContextPoisoned, OutOfMemory, Suspect
from callboard.core.reply import Cause, OpFailure, ReplyPort
from callboard.device.client.line import refusals
from callboard.device.client.line.entries import Entry, Origin, settle
from callboard.device.protocol.failures import as_error
from callboard.device.protocol.messages import Completions, FailureMessage, ProtocolError

__all__ = ["Unanswered"]

SUSPECTS = 64
"""Most ops that an error names as possible causes of a loss; the oldest ones."""

KEPT = 1024
"""Most causes that are kept while ops in flight may fail from them, and most origins kept of ops that failed first."""


class Unanswered:
    """Settles each op once: by its completion, or by the loss of the context.

    Args:
        port: The device's port; notified of causes that are dropped before any of their failures has been seen.
        name: Name of the device.

    Attributes:
        entries: The ops, by id. Each generation has a new dict. A thread other than the loop's compares the dict before
            and after it adds an op, and calls :meth:`fail_late` if the dict was replaced meanwhile.
        completed, failed: Counters of completions.
        closed: The device has stopped, and its loop may run no more: :meth:`fail_late` may be called on any thread.
        out_of_memory: Counter of ops that failed first for lack of memory.
    """

    __slots__ = (
        "_causes",
        "_doubtful",
        "_kept",
        "_last_loss",
        "_late",
        "_lost",
        "_lost_tags",
        "_name",
        "_origins",
        "_port",
        "closed",
        "completed",
        "entries",
        "failed",
        "out_of_memory",
    )

    def __init__(self, port: ReplyPort, name: str) -> None:
        self.entries: dict[int, Entry] = {}
        self.closed = False
        self.completed = 0
        self.failed = 0
        self.out_of_memory = 0
        self._port = port
        self._name = name
        self._last_loss: tuple[AccelError, int, Sequence[Suspect], int] = (ContextPoisoned(), 0, (), 0)
        self._lost: dict[int, Entry] = {}
        self._lost_tags: dict[str, int] = {}
        self._late: set[int] = set()
        self._doubtful: dict[int, Entry] = {}
        self._causes: WeakValueDictionary[int, Cause] = WeakValueDictionary()  # held by failed replies, and by _kept
        self._kept: OrderedDict[int, tuple[int, Cause]] = (
            OrderedDict()
        )  # (id, cause): kept until ops up to this id have completions
        self._origins: OrderedDict[int, Origin] = OrderedDict()  # of ops that failed first

    @property
    def settled(self) -> int:
        """Number of ops that have had their completion."""
        return self.completed + self.failed

    @property
    def suspects(self) -> Sequence[Suspect]:
        """The oldest ops that were in flight when the context was last lost."""
        return self._last_loss[2]

    @property
    def lost_tags(self) -> dict[str, int]:
        """The ops that were in flight then: how many of each tag."""
        return self._lost_tags

    def settle(self, message: Completions, generation: int) -> None:
        """Settle the replies of ops of ``generation``.

        Raises:
            ProtocolError: A completion names no op in flight, or does not fit its op, which stays in flight.
        """
        op_id, entry = 0, None
        try:
            pop = self.entries.pop
            for op_id in message.done:
                entry = pop(op_id, None)
                if entry is not None:
                    reply = entry[0]()
                    if reply is not None:
                        reply._resolve()
                    if entry[5] is not None:
                        settle(entry[5], ok=True)
                else:
                    self._missing(op_id)
            for op_id, value in message.values:
                entry = pop(op_id, None)
                if entry is not None:
                    reply = entry.reply()
                    if reply is not None:
                        reply._answer(value)
                else:
                    self._missing(op_id, value)
        except Exception as e:  # a value that does not fit: the answer is lost
            if entry is None:
                raise
            self.entries[op_id] = entry  # it fails when the context is replaced
            raise ProtocolError(f"the completion of op {op_id} ({entry.origin.tag}) does not fit it: {e}") from e
        if message.failed:
            self._fail(message, generation)
        self.completed += len(message.done) + len(message.values)
        if self._kept:
            self._release()

    def _fail(self, message: Completions, generation: int) -> None:
        described = {failure.id: failure for failure in message.causes}
        causes: dict[int, Cause] = {}
        for op_id, root in message.failed:
            entry = self.entries.pop(op_id, None) or self._doubtful.pop(op_id, None)
            if entry is None:
                self._missing(op_id)
                continue
            self.failed += 1
            origin = entry.origin
            if op_id == root:
                failure = described.get(root)
                self.out_of_memory += failure is not None and failure.error == OutOfMemory.__name__
                self._origins[root] = origin
                if len(self._origins) > KEPT:
                    self._origins.popitem(last=False)
            cause = causes.get(root)
            if cause is None:
                cause = causes[root] = self._cause(root, described.get(root), generation)
            _reject(entry, OpFailure(cause, origin))
        # Ops in flight may read the outputs of these ops, and be awaited. A cause counts as unseen only once those ops
        # have their completions, too.
        newest = _first(self.entries.__reversed__)
        for root, cause in causes.items():
            self._keep(root, cause, newest)

    def _cause(self, root: int, described: FailureMessage | None, generation: int) -> Cause:
        cause = self._causes.get(root)
        if cause is None:
            what = described or FailureMessage(
                root, "RemoteError", "", {"type": "unknown", "message": "the host did not say"}
            )
            make = functools.partial(_failed, what, self._name, generation, self._origins.get(root))
            cause = self._causes[root] = _OfOps(self, make, root)
        return cause

    def unretrieved(self, cause: Cause) -> None:
        """A cause is dropped, none of whose failures has been seen. Any thread, also inside a garbage collection.

        Ops that are in flight may read what its ops did not write, and fail from it: they report it, or are awaited.
        """
        if isinstance(cause, _OfOps) and self.entries:
            self._causes.pop(cause.root, None)  # being finalised, it would not be reported a second time
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._port.loop.call_soon_threadsafe(self._unseen, cause)
                return
        self._port.unretrieved(cause)

    def _unseen(self, cause: "_OfOps") -> None:
        if cause.root in self._causes:
            return  # ops have failed from it meanwhile
        newest = _first(self.entries.__reversed__)
        if not newest:
            self._port.unretrieved(cause)
            return
        again = self._causes[cause.root] = _OfOps(self._port, cause._make, cause.root)
        again.ops = cause.ops
        self._keep(cause.root, again, newest)

    def _keep(self, number: int, cause: Cause, until: int) -> None:
        self._kept[number] = (until, cause)
        self._kept.move_to_end(number)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def _release(self) -> None:
        oldest = _first(self.entries.__iter__)
        while self._kept:
            until, _ = next(iter(self._kept.values()))
            if 0 < oldest <= until:
                return
            self._kept.popitem(last=False)

    def lose(self, error: AccelError, generation: int, cause: int) -> int:
        """Fail all ops, sent or not; later ops are entered in a new dict.

        Args:
            error: The loss.
            generation: The generation of the ops.
            cause: Id for the cause; no op has it.

        Returns:
            Number of ops that failed.
        """
        lost, self.entries = self.entries, {}
        lost.update(self._doubtful)
        self._doubtful.clear()
        entries = lost.copy()  # other threads may still add ops to it
        suspects = tuple(entry.origin.suspect for entry in itertools.islice(entries.values(), SUSPECTS))
        self._last_loss = (error, generation, suspects, cause)
        self._kept.clear()
        self._lost = lost
        self._lost_tags = Counter(entry.tag for entry in entries.values())
        self._late.clear()
        failed = 0
        for op_id in entries:
            failed += self.fail_lost(op_id, lost)
        return failed

    def fail_lost(self, op_id: int, lost: dict[int, Entry]) -> bool:
        """Fail an op of a lost generation's dict; False if it has been failed already."""
        entry = lost.pop(op_id, None)
        if entry is None:
            return False
        error, generation, suspects, number = self._last_loss
        self.failed += 1
        origin = entry.origin
        cause = self._causes.get(number)
        if cause is None:
            make = functools.partial(_lost, error, suspects, self._name, generation, origin)
            cause = self._causes[number] = Cause(self._port, make)
            self._keep(number, cause, 0)
        _reject(entry, OpFailure(cause, origin))
        return True

    def fail_late(self, op_id: int, lost: dict[int, Entry]) -> None:
        """Fail an op that another thread added to a lost dict; its call may have been sent to the next host."""
        self._late.add(op_id)
        self.fail_lost(op_id, lost)

    def is_late(self, op_id: int) -> bool:
        """True if another thread called the op during a context loss: it has failed, or is about to."""
        return op_id in self._late or op_id in self._lost

    def notifies(self, one: Any) -> bool:
        """True if the completion of an op will notify ``one``, which is its reply or its extra. Any thread."""
        entries = [*self.entries.copy().values(), *self._doubtful.copy().values()]
        return any(one is entry.extra or one is entry.reply() for entry in entries)

    def doubt(self, op_id: int, entry: Entry | None) -> None:
        """An exception, such as Ctrl-C, came while an op was being sent: whether the host has it is not known.

        It does not count as in flight, as it may never have a completion. What it uses stays in use until it has one,
        or the context is lost. None for the entry of an op that has been settled meanwhile.
        """
        if entry is not None:
            self._doubtful[op_id] = entry

    def _missing(self, op_id: int, *values: Any) -> None:
        entry = self._doubtful.pop(op_id, None)
        if entry is None:
            if not self.is_late(op_id):
                raise ProtocolError(f"op {op_id} is not in flight")
            return
        reply = entry.reply()
        if reply is not None:
            reply._answer(*values) if values else reply._resolve()
        settle(entry.extra, ok=True)

    def forget(self) -> None:
        """Drop the kept causes: an unseen one is reported now, or when its last reply is dropped. It is closed."""
        self.closed = True
        self._kept.clear()


class _OfOps(Cause):
    """The cause of failures that a context host has reported.

    Args:
        port, make: See :class:`Cause`.
        root: Id of the op that failed first.
    """

    __slots__ = ("root",)

    def __init__(self, port: Any, make: Callable[[Any, int], BaseException], root: int) -> None:
        super().__init__(port, make)
        self.root = root


def _reject(entry: Entry, failure: OpFailure) -> None:
    reply = entry.reply()
    if reply is not None:
        reply._reject(failure)
    if entry.extra is not None:
        settle(entry.extra, ok=False)


def _failed(
    failure: FailureMessage, device: str, generation: int, first: Origin | None, op: Origin | None, ops: int
) -> BaseException:
    """The error of an op that failed by itself, or from the same cause as the op ``first``."""
    op = op or first
    error = refusals.marked(as_error(failure), device, generation, op and op.tag)
    if op is not first:
        error.add_note(
            f"an operand depends on op {failure.id}, which failed: {first or 'no longer known'}; "
            f"{ops:,} ops failed from this cause"
        )
    elif ops > 1:
        error.add_note(f"{ops:,} ops failed from this cause")
    if op is not None:
        error.add_note(str(op))
    return error


def _lost(
    loss: AccelError,
    suspects: Sequence[Suspect],
    device: str,
    generation: int,
    first: Origin,
    op: Origin | None,
    _: int,
) -> BaseException:
    """The error of an op that was accepted and not answered when its context was lost."""
    op = op or first
    error = refusals.marked(refusals.lost(loss, generation, suspects), device, generation, op.tag)
    if isinstance(error, ContextPoisoned):
        error.call = op.suspect
    error.add_note(str(op))
    return error


def _first(ids: Callable[[], Iterator[int]]) -> int:
    """The first op id of an iterator, 0 if it is empty."""
    while True:
        try:
            return next(ids(), 0)
        except RuntimeError:  # another thread has added an op since the iterator was made
            continue
