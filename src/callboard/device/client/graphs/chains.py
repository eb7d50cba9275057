"""``Chains``: repeated runs of calls are recorded, and sent as one replay (``auto_record``).

A run is a sequence of recordable calls that are sent together with no other call in between. Two runs are the same
chain if their ops, settings, shapes and numbers are equal and the data flow among them is the same, whatever buffers
hold the data. Each call keeps its own outputs: the replay allocates the same buffers, all at once.

Apophenia finds repetitions in a stream of tasks (Yadav et al., "Automatic Tracing in Task-Based Runtime Systems",
ASPLOS 2025); here awaits already divide the stream into runs.
"""

import types
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from callboard.core.errors import DriverError, LibraryError, ShapeError, UnsupportedOp
from callboard.core.op import OPS, info_of, outputs_of
from callboard.core.operand import Operand, Role
from callboard.core.opinfo import read_signature
from callboard.core.ref import Allocation
from callboard.core.reply import Reply
from callboard.device.client.graphs.script import ArrayUse, OperandPlace, RecordedOp, script_operands, steps_of
from callboard.device.client.line.entries import Entry
from callboard.device.protocol.messages import Call
from callboard.device.protocol.recording import Script, write_script

if TYPE_CHECKING:
    from callboard.device.client.line.port import OpPort

__all__ = ["Chains"]

LEAST, MOST = 4, 256
"""Calls of a chain."""
WORTH = 3
"""Times that a run has come when it is recorded."""
KEPT, SEEN = 64, 1024
"""Chains that are kept, and runs whose times are counted."""
ALONE = frozenset({"array", "collective", "event", "ipc", "managed", "rng", "solver", "sparse", "sparse_lt"})
"""Libraries whose ops stay single: they may fail by themselves, or are ordered by more than their arrays."""
HOST = Role.HOST_IN, Role.HOST_OUT
TAG = "graph.replay"

_key = msgspec.msgpack.Encoder().encode


class Chain:
    """A run that has been recorded.

    Attributes:
        handle: The recording; the host releases it when the handle is dropped.
        signature: Signature of its replays.
        usable: True if the host has recorded it; None while that is not known.
    """

    __slots__ = ("_forget", "handle", "reply", "signature", "usable")

    def __init__(self, handle: Allocation, signature: bytes, reply: Reply[None], forget: Callable[[], object]) -> None:
        self.handle = handle
        self.signature = signature
        self.reply = reply
        self.usable: bool | None = None
        self._forget = forget

    def settled(self, ok: bool) -> None:
        """The host has recorded it, or cannot: its ops are called one by one then."""
        self.usable = ok
        if not ok and not isinstance(self.reply.exception(), UnsupportedOp | LibraryError | DriverError):
            self._forget()  # a buffer or the context was lost: the run may appear again


class Chains:
    """Finds chains among the calls that are sent. On the loop's thread.

    Args:
        port: Op port of the device.

    Attributes:
        saved: Calls that were not sent, as others stood for them.
        replays: Calls that stood for others.
    """

    def __init__(self, port: "OpPort") -> None:
        self._port = port
        self._fits: dict[bytes, bool] = {}
        self._seen: dict[bytes, int] = {}
        self._chains: OrderedDict[bytes, Chain] = OrderedDict()
        self._stands_for: dict[int, Sequence[int]] = {}
        self.saved = self.replays = 0

    # -- calls ---------------------------------------------------------------------------------------------------------

    def shortened(self, calls: list[Call]) -> list[Call]:
        """The calls in their order, with replays in the place of chains."""
        sent: list[Call] = []
        run: list[Call] = []
        between: list[Call] = []  # the run's calls, and the frees between them
        for call in calls:
            if not call.id and not call.signature and run:
                between.append(call)
            elif not call.withdrawn and call.id and self._fitting(call.signature):
                if len(run) == MOST:
                    sent += self._sent(run, between)
                    run, between = [], []
                run.append(call)
                between.append(call)
            else:
                sent += self._sent(run, between)
                run, between = [], []
                sent.append(call)
        return sent + self._sent(run, between)

    def _sent(self, run: list[Call], between: list[Call]) -> list[Call]:
        if len(run) < LEAST:
            return between
        flow, given = _flow(run)
        key = _key([[call.signature, call.numbers, places] for call, places in zip(run, flow, strict=True)])
        chain = self._chains.get(key)
        if chain is None:
            times = self._seen.get(key, 0) + 1
            if times < WORTH:
                if len(self._seen) >= SEEN:
                    self._seen.clear()
                self._seen[key] = times
                return between
            self._seen.pop(key, None)
            return self._recorded(key, run, given) + between  # replay first: the run may free its inputs
        self._chains.move_to_end(key)
        if not chain.usable:
            return between
        last = run[-1].id
        bindings = [at for buffer in given for at in (buffer, 0)]
        outputs = [buffer for call in run for buffer in call.outputs]
        self._stands_for[last] = [call.id for call in run[:-1]]
        self.saved += len(run) - 1
        self.replays += 1
        return [Call(last, chain.signature, bindings, [1], outputs), *(call for call in between if not call.id)]

    # -- completions ---------------------------------------------------------------------------------------------------

    def spread(self, message: Any) -> None:
        """Give each call of a chain the completion of its replay."""
        stands_for = self._stands_for
        if not stands_for:
            return
        for at in range(len(message.done)):
            before = stands_for.pop(message.done[at], None)
            if before is not None:
                message.done.extend(before)
        for at in range(len(message.failed)):
            op, root = message.failed[at]
            before = stands_for.pop(op, None)
            if before is not None:
                message.failed.extend((one, root) for one in before)

    def lose(self) -> None:
        """The context is lost: sent calls have failed, and recordings are made again on their next use."""
        self._stands_for.clear()

    # -- recording -----------------------------------------------------------------------------------------------------

    def _fitting(self, signature: bytes) -> bool:
        fits = self._fits.get(signature)
        if fits is None:
            if len(self._fits) >= SEEN:
                self._fits.clear()
            fits = self._fits[signature] = self._can_be_recorded(signature)
        return fits

    def _can_be_recorded(self, signature: bytes) -> bool:
        try:
            op = _op_of(signature)
        except (ValueError, KeyError):  # a recording's, or of a library that describes its ops in its own way
            return False
        cls = type(op)
        info = info_of(cls)
        plan = self._port.plan(signature, op)
        if plan.open or plan.fenced or plan.foreign or plan.value or plan.answers is not None:
            return False
        if info.library in ALONE or any(leaf.role in HOST for leaf in info.leaves(op)):
            return False
        library = self._port.library(info.library)
        size = library.size_table.get(cls)
        return library.launch_table[cls].captures and (size is None or not size.due(op))

    def _recorded(self, key: bytes, run: list[Call], given: list[int]) -> list[Call]:
        """Record a run; the calls by which the host makes it ready, on buffers of this run."""
        port = self._port
        handle = Allocation(port.mint(), port.outbox.released)
        try:
            signature, made = self._script(handle.id, run, given)
        except ShapeError:
            return []
        op_id = port.mint()
        reply: Reply[None] = Reply(port, op_id)
        chain = self._chains[key] = Chain(handle, signature, reply, lambda: self._chains.pop(key, None))
        if len(self._chains) > KEPT:
            _, old = self._chains.popitem(last=False)
            old.handle.free()
        outputs = [port.mint() for _ in made]
        port.unanswered.entries[op_id] = Entry(lambda: reply, TAG, None, _CODE, 0, chain)
        bindings = [at for buffer in given for at in (buffer, 0)]
        return [Call(op_id, signature, bindings, [0], outputs), Call(0, b"", [], [], outputs)]

    def _script(self, number: int, run: list[Call], given: list[int]) -> tuple[bytes, list[int]]:
        """The signature of the run's replays, and the sizes of the buffers that they make."""
        places = {buffer: OperandPlace(at, 0) for at, buffer in enumerate(given)}
        names: list[str] = [""] * len(given)
        made: list[int] = []
        ops: list[RecordedOp] = []
        entries = self._port.unanswered.entries
        for call in run:
            op = _op_of(call.signature)
            info = info_of(type(op))
            entry = entries.get(call.id)
            where = "" if entry is None else entry.origin.where
            leaves = [leaf for leaf in info.leaves(op) if isinstance(leaf.value, Operand)]
            rows = zip(leaves, call.bindings[::2], call.bindings[1::2], strict=True)
            uses = [ArrayUse(buffer, offset, leaf.value.layout, leaf.role, leaf.name) for leaf, buffer, offset in rows]
            new = []
            for buffer, (name, layout) in zip(call.outputs, outputs_of(op).items(), strict=True):
                places[buffer] = OperandPlace(len(given) + len(made), 0)
                new.append(ArrayUse(buffer, 0, layout, Role.OUT, name))
                names.append(f"{name} of {info.tag}, made at {where}")
                made.append(layout.nbytes)
            for use in uses:
                at = places[use.buffer].operand
                names[at] = names[at] or f"{use.name} of {info.tag}, made at {where}"
            ops.append(RecordedOp(info.tag, call.signature, call.numbers, uses, new, [], where))
        operands = script_operands(ops, places, names, made)
        return write_script(Script(number, operands, steps_of(ops, places), [], made)), made


def _op_of(signature: bytes) -> Any:
    tag, statics, skeleton = read_signature(signature)
    cls = OPS[tag]
    return info_of(cls).join(cls, statics, skeleton)


def _flow(run: list[Call]) -> tuple[list[list[int]], list[int]]:
    """Return the operand sources of each call, and the external buffers in order of first use.

    A buffer from outside is named by its place in that order, one that the run makes by its place among those, below 0.
    """
    known: dict[int, int] = {}
    given: list[int] = []
    flow: list[list[int]] = []
    made = 0
    for call in run:
        places = call.bindings.copy()
        for at in range(0, len(places), 2):
            buffer = places[at]
            number = known.get(buffer)
            if number is None:
                number = known[buffer] = len(given)
                given.append(buffer)
            places[at] = number
        for buffer in call.outputs:
            made += 1
            known[buffer] = -made
        places.append(len(call.outputs))
        flow.append(places)
    return flow, given


def _prepared() -> None:
    """Placeholder for the call site of a chain's preparation, which the application does not call."""


_CODE: types.CodeType = _prepared.__code__
