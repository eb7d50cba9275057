"""``RecordedPort`` and ``RecordedTransfers``: the op line of a device whose work is reported to a :class:`DeviceLog`.

They take the place of :class:`.OpPort` and :class:`.Transfers` when a device is opened in a recorded system; other
devices have neither, and pay nothing. Element-wise functions are not fused on a recorded device: where a chain of them
ends depends on the iterations of the loop, and would differ between a recording and its replay.
"""

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.errors import AccelError, DeviceStopped
from callboard.core.layout import OpenLayout
from callboard.core.op import Op, Repeated, info_of
from callboard.core.operand import Role, StructOperand, operands_of
from callboard.core.opinfo import read_signature
from callboard.core.ref import DeferredRef, GpuRef
from callboard.core.reply import DONE, PENDING, Reply
from callboard.device.client.line.entries import Entry
from callboard.device.client.line.port import OpPort
from callboard.device.client.line.transfers import Transfers
from callboard.device.config import DeviceConfig
from callboard.device.protocol.messages import ActorCall, Call
from callboard.device.protocol.recording import MARK, read_script
from callboard.device.protocol.residents.foreign import host_values
from callboard.kernel.recording import recorder

__all__ = ["DeviceLog", "RecordedPort", "RecordedTransfers"]

UNREAD = ("event", "ipc")
"""Libraries whose numbers and results differ in each run: times and handles."""
RUN = "collective.run"
SCRIPTS = 256
"""Recordings whose ops are not reported again with each replay."""
FETCHED = 256 << 20
"""Bytes of results that are being read back for a log at most; those beyond are not read."""


class DeviceLog(Protocol):
    """Receives what a device is asked for. Values may contain refs. Any thread."""

    def ready(self) -> None:
        """Raise if nothing can be recorded: nothing is sent then."""

    def called(self, op: str, arguments: Mapping[str, Any], outputs: Mapping[str, GpuRef[Any]]) -> int:
        """An op was submitted, that writes ``outputs``; returns its number."""
        ...

    def wants(self, number: int, name: str, nbytes: int | None) -> bool:
        """True if an output is to be read back; its size is None while it depends on data."""
        ...

    def returned(self, number: int, name: str, value: Any) -> None:
        """An output or reply of an op, or its error."""

    def unread(self, number: int, name: str) -> None:
        """An output that is wanted is not read back: too many are being read, or the device was closed before."""

    def chosen(self) -> None:
        """A placement has chosen the device."""

    def lost(self, error: BaseException) -> None:
        """The context was lost."""

    def closed(self) -> None:
        """The device takes no more ops."""


class RecordedPort(OpPort):
    """An :class:`.OpPort` that reports each op of the application; not the ops that callboard adds.

    Attributes:
        log: The log.
        transfers: Reads results back; the device sets it.
    """

    transfers: "RecordedTransfers"

    def __init__(self, *args: Any, log: DeviceLog) -> None:
        super().__init__(*args)
        self.log = log
        self.recorded = self
        self.deferrals = None
        self._nested = threading.local()
        self._fetched = 0
        self._scripts: dict[bytes, str] = {}

    def beside(self, name: str, config: DeviceConfig) -> OpPort:
        port = super().beside(name, config)
        port.recorded = self  # calls of actors in processes of their own
        return port

    @contextlib.contextmanager
    def unrecorded(self) -> Iterator[None]:
        """What this thread submits inside is part of an op that is reported, or of none."""
        nested = self._nested
        before = getattr(nested, "inside", False)
        nested.inside = True
        try:
            yield
        finally:
            nested.inside = before

    @property
    def reports(self) -> bool:
        """True if what this thread submits now is reported."""
        if getattr(self._nested, "inside", False):
            return False
        return not self.recordings or (recording := recorder.get()) is None or not recording.owns(self)

    def submit(
        self,
        op: Op[Any, Any] | Repeated,
        extra: Any = None,
        keep: Any = None,
        depth: int = 2,
        into: DeferredRef[Any] | None = None,
        further: bool = False,
    ) -> Any:
        reports = not further and self.reports
        if reports:
            self.log.ready()
        with self.unrecorded():
            reply = super().submit(op, extra, keep, depth + 1, into, further)
        if reports:
            message = op.made() if isinstance(op, Repeated) else op
            fields = ((name, getattr(message, name)) for name in message.__struct_fields__)
            outputs = _outputs(message, reply)
            self._note(message.label, {name: value for name, value in fields if value is not None}, outputs, reply)
        return reply

    def enter(
        self, call: Call | ActorCall, entry: Entry, pending: dict[int, Entry], sent: bool, *, now: bool = True
    ) -> None:
        super().enter(call, entry, pending, sent, now=now)
        # Parts of collectives and replays of recordings come here without `submit`.
        if isinstance(call, Call) and entry.tag != "memory.empty" and self.reports:
            numbers = call.numbers[1:] if entry.tag == RUN else call.numbers  # the first is the id of the world
            arguments = {"numbers": numbers, **self._described(call.signature)}
            reply = entry.reply()
            refs = getattr(reply, "refs", (reply,))
            arrays = [ref for ref in refs if isinstance(ref, GpuRef)]
            self._note(entry.tag, arguments, {f"out.{n}": ref for n, ref in enumerate(arrays)}, None)

    def _described(self, signature: bytes) -> dict[str, Any]:
        """What a signature says: settings and layouts; of a recording its ops, with the first replay."""
        if not signature.startswith(MARK):
            _, settings, layouts = read_signature(signature)
            return {"settings": settings, "layouts": layouts}
        known = self._scripts.get(signature)
        if known is not None:
            return {"recording": known}
        script = read_script(signature)
        if len(self._scripts) >= SCRIPTS:
            self._scripts.clear()
        self._scripts[signature] = f"the one with {len(script.steps)} ops that was replayed before"
        steps = []
        for step in script.steps:
            op, settings, layouts = read_signature(step.signature)
            drawn = [0 if at in step.drawn else number for at, number in enumerate(step.numbers)]
            steps.append({"op": op, "settings": settings, "layouts": layouts, "numbers": drawn})
        return {"recording": steps}

    def _note(self, op: str, arguments: dict[str, Any], outputs: dict[str, GpuRef[Any]], reply: Any) -> None:
        library = op.partition(".")[0]
        if library == "collective" and op != RUN:
            return  # forming and leaving a world: by callboard, under an id of its own
        if library in UNREAD:
            arguments = {name: value for name, value in arguments.items() if isinstance(value, GpuRef)}
        number = self.log.called(op, arguments, outputs)
        if op == "memory.empty" or library in UNREAD:
            return
        for name, ref in outputs.items():
            self._fetch(number, name, ref)
        if isinstance(reply, Reply) and not isinstance(reply, GpuRef):
            observe(reply, lambda value: self._returned(number, "value", value))

    def _returned(self, number: int, name: str, value: Any) -> None:
        if isinstance(value, DeviceStopped) and value.closed:  # what is known before a device is closed is chance
            self.log.unread(number, name)
        else:
            self.log.returned(number, name, value)

    def _fetch(self, number: int, name: str, ref: GpuRef[Any]) -> None:
        """Read an output back, behind the op and in front of all later ones."""
        size = 0 if isinstance(ref.layout, OpenLayout) else ref.nbytes
        if not self.log.wants(number, name, None if isinstance(ref.layout, OpenLayout) else size):
            return
        if self._fetched + size > FETCHED or 2 * self.in_flight >= self._room:
            self.log.unread(number, name)
            return

        def read(value: Any) -> None:
            self._fetched -= size
            self._returned(number, name, value)

        self._fetched += size
        try:
            with self.unrecorded():
                observe(self.transfers.get(ref, None), read)
        except AccelError:  # no room, or lost meanwhile
            self._fetched -= size
            self.log.unread(number, name)

    def report_call(self, tag: str, args: Sequence[Any], named: Mapping[str, Any], reply: Reply[Any]) -> None:
        """Report a call of a resident actor."""
        arguments = {f"args[{n}]": each for n, each in enumerate(args)} | dict(named)
        number = self.log.called(tag, arguments, {})
        observe(reply, lambda value: self.log.returned(number, "result", value))

    def report_copy(self, copy: Callable[[], GpuRef[Any]], source: GpuRef[Any]) -> GpuRef[Any]:
        """Make a copy from another device, and report it as one op."""
        reports = self.reports
        other = getattr(source._port, "recorded", None) or self
        with self.unrecorded(), other.unrecorded():
            ref = copy()
        if reports:
            self._note("memory.copy_from", {"src": source}, {"out": ref}, None)
        return ref

    def lose(self, error: AccelError, generation: int) -> int:
        failed = super().lose(error, generation)
        if self.stopped is None:
            self.log.lost(error)
        return failed

    def close(self) -> None:
        super().close()
        self.log.closed()


class RecordedTransfers(Transfers):
    """:class:`.Transfers` that reports each transfer of the application, with the contents of the host array."""

    def put(
        self,
        array: Any,
        dtype: DTypeLike | None,
        non_blocking: bool,
        out: GpuRef[Any] | None = None,
        depth: int = 2,
    ) -> GpuRef[Any]:
        port = self._recorded
        if not port.reports:
            return super().put(array, dtype, non_blocking, out, depth + 1)
        port.log.ready()
        with port.unrecorded():
            ref = super().put(array, dtype, non_blocking, out, depth + 1)
        arguments: dict[str, Any] = {"array": host_values("put", array, None if dtype is None else as_dtype(dtype))}
        if out is not None:
            arguments["out"] = out
        port.log.called("memory.put", arguments, {"out": ref})
        return ref

    def get(self, ref: GpuRef[Any], out: np.ndarray[Any, Any] | None, depth: int = 2) -> Reply[np.ndarray[Any, Any]]:
        port = self._recorded
        if not port.reports:
            return super().get(ref, out, depth + 1)
        port.log.ready()
        with port.unrecorded():
            reply = super().get(ref, out, depth + 1)
        number = port.log.called("memory.get", {"src": ref}, {})
        observe(reply, lambda value: port.log.returned(number, "value", value))
        return reply

    @property
    def _recorded(self) -> RecordedPort:
        port = self._port
        assert isinstance(port, RecordedPort)
        return port


class _Observer:
    """A waiter that is told the outcome of a reply, and does not count as one that waits for it."""

    __slots__ = ("_reply", "_tell")

    def __init__(self, reply: Reply[Any], tell: Callable[[Any], None]) -> None:
        self._reply = weakref.ref(reply)
        self._tell = tell

    def done(self) -> bool:
        reply = self._reply()
        return reply is None or reply._state == PENDING

    def set_result(self, _: None) -> None:
        reply = self._reply()
        if reply is not None:
            outcome = reply._outcome
            # The failure counts as seen when the application sees it.
            self._tell(outcome if reply._state == DONE else outcome.cause.error(outcome.op))


def observe(reply: Reply[Any], tell: Callable[[Any], None]) -> None:
    """Have ``tell`` called with the value or error of a reply, before any waiter goes on."""
    reply._attach(_Observer(reply, tell))


def _outputs(op: Op[Any, Any], reply: Any) -> dict[str, GpuRef[Any]]:
    """The arrays that an op writes, by name: those of its reply, and operands."""
    values = reply if isinstance(reply, tuple) else (reply,)
    names = op.returns if len(op.returns) == len(values) else [f"out.{n}" for n in range(len(values))]
    found: dict[str, GpuRef[Any]] = {}
    for name, value in zip(names, values, strict=True):
        if isinstance(value, StructOperand):
            found |= {f"{name}.{part}": ref for part, ref in operands_of(value).items()}
        elif isinstance(value, GpuRef):
            found[name] = value
    known = {id(ref.allocation) for ref in found.values()}
    info = info_of(type(op))
    for leaf in info.leaves(op):
        written = leaf.role in (Role.OUT, Role.INOUT) and isinstance(leaf.value, GpuRef)
        if written and id(leaf.value.allocation) not in known:
            found[info.called(leaf)] = leaf.value
    return found
