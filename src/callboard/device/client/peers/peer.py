"""``Peer``: a device, as others copy from it and to it."""

import asyncio
import functools
from typing import TYPE_CHECKING, Any

from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.errors import AccelError, DeviceMismatch, ShapeError, UnsupportedOp
from callboard.core.ref import GpuRef
from callboard.device.client.line.port import OpPort
from callboard.device.client.line.transfers import Transfers
from callboard.device.client.peers.incoming import Incoming
from callboard.device.client.peers.lent import LentCopy
from callboard.device.client.peers.staged import staged_copy
from callboard.device.client.residents.lender import Lender
from callboard.device.supervision.lifecycle import State
from callboard.kernel.ipc.sharing import process_started
from callboard.kernel.memory import Copy
from callboard.kernel.recording import recorder

if TYPE_CHECKING:
    from callboard.device.client.line.answers import Answers
    from callboard.device.supervision.actor import DeviceActor
    from callboard.device.supervision.hosts.base import Host

__all__ = ["Peer", "Route"]

ASKED = 1.0
"""Seconds for a host to close another device's memory."""


class Peer:
    """Copies arrays of other devices to this one.

    Args:
        port, transfers, actor, answers: Op port, transfers, actor and answers of the device.
    """

    def __init__(self, port: OpPort, transfers: Transfers, actor: "DeviceActor", answers: "Answers") -> None:
        self.port = port
        self.transfers = transfers
        self.actor = actor
        self._answers = answers
        self._borrowed: dict[Peer, Borrowed] = {}
        self._process: tuple[Host | None, tuple[int, int]] = None, (-1, -1)
        port.peer = self

    @property
    def process(self) -> tuple[int, int]:
        """Process id and start time of the device's host; -1 and -1 if it has none."""
        host = self.actor.host
        known, process = self._process
        if known is not host:
            process = (-1, -1) if host is None else (host.pid, process_started(host.pid))
            self._process = host, process
        return process

    def put(self, ref: GpuRef[Any], dtype: DTypeLike | None, out: GpuRef[Any] | None) -> GpuRef[Any]:
        """See :meth:`callboard.Device.put`. Any thread."""
        source: Peer | None = getattr(ref._port, "peer", None)
        if source is None:
            raise DeviceMismatch(
                f"put: {ref.layout!r} belongs to a resident actor's ctx.device; return ctx.ref(array) from the method"
            )
        if dtype is not None and ref.dtype is not as_dtype(dtype):
            raise TypeError(f"put: the array is {ref.layout!r} on {ref.device}; convert it to {dtype} before or after")
        ref.access()
        layout = ref.layout
        if out is not None and getattr(out, "_port", None) is not self.port:
            raise DeviceMismatch(f"put: out is {out!r}; pass a GpuRef of {self.port.name}")
        if out is not None and (out.access().dtype, out.shape) != (layout.dtype, layout.shape):
            raise ShapeError(f"put: out is {out.layout!r}, the array is {layout!r}; pass one of that dtype and shape")
        if source is self:
            copied: GpuRef[Any] = self.port.submit(Copy(src=ref, out=out))
            return copied
        for port in (source.port, self.port):
            if port.recordings and (recording := recorder.get()) is not None and recording.owns(port):
                raise UnsupportedOp("a copy between devices is not recorded; copy before the recording, or after it")
        self.port.check_room()
        source.port.check_room()
        if self.port.recorded is not None:
            return self.port.recorded.report_copy(lambda: self._copy(source, ref, out), ref)
        return self._copy(source, ref, out)

    def _copy(self, source: "Peer", ref: GpuRef[Any], out: GpuRef[Any] | None) -> GpuRef[Any]:
        route = f"from {source.port.name} to {self.port.name}"
        if not ref.size:
            return self._empty(source, ref, out, route)
        borrowed = self._borrowed.get(source)
        if borrowed is None:
            how = _route(source.actor, self.actor)
            if how == "arenas":
                return staged_copy(source, self, ref, out, route)
            borrowed = self._borrowed.setdefault(source, Borrowed(source, self, here=how == "address"))
        borrowed.lender.start()
        there = borrowed.lender.here or not ref.allocation.foreign  # no other process opens memory of other packages
        packed: GpuRef[Any] = (
            ref if ref.layout.contiguous and there else source.port.submit(Copy(src=ref), further=True)
        )
        return LentCopy(source, self, borrowed.lender, packed, route).begin(out)

    def _empty(self, source: "Peer", ref: GpuRef[Any], out: GpuRef[Any] | None, route: str) -> GpuRef[Any]:
        """Copy an array without elements: only check that the output can be made."""
        incoming = Incoming(self.port, ref.layout, route, source.port)
        incoming.expect()
        try:
            source.port.submit(Copy(src=ref), keep=_Told(incoming))
        except BaseException as e:  # Ctrl-C, too: the announced buffer will not arrive
            incoming.fail(e)
            raise
        copy: GpuRef[Any] = self.port.submit(Copy(src=incoming.ref, out=out))
        return copy

    async def detach(self, handles: list[bytes]) -> bool:
        """Have the host close memory of another device; returns whether none of it is open."""
        actor = self.actor
        if actor.state is not State.READY or not actor.fleet.hosts <= set(actor._serving()):
            return not actor.fleet.hosts
        try:
            return bool(await self._answers.ask("detach", handles, timeout=ASKED, type=bool))
        except AccelError:  # lost, stopped, or busy for too long
            return False


class Borrowed:
    """Memory of another device that one device has open."""

    def __init__(self, source: Peer, target: Peer, *, here: bool) -> None:
        self._target = target
        self._detaching: set[asyncio.Task[bool]] = set()
        self.lender = Lender(
            source.actor.residents,
            f"copies to {target.port.name}",
            target.transfers.arenas,
            False,
            target.transfers.copy,
            target.actor.fleet.when_reaped,
            self._detach_soon,
            here,
        )
        self.lender.actor = source.actor.residents.new_id()
        if not here:
            source.actor.own.lend_to(self)

    def _detach_soon(self, handles: list[bytes]) -> None:
        task = self._target.port.loop.create_task(self.detach(handles), name="callboard-detach")
        self._detaching.add(task)
        task.add_done_callback(self._detaching.discard)

    async def detach(self, handles: list[bytes]) -> bool:
        """See :meth:`Peer.detach`."""
        return await self._target.detach(handles)


class _Told:
    """Tells the copy of an array without elements how the array's op has ended."""

    __slots__ = ("_incoming",)

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming

    def _resolve(self) -> None:
        self._incoming.arrive([])

    def _reject(self, failure: Any) -> None:
        failure.cause.seen = True  # the copy has it
        self._incoming.fail(failure.cause.error(failure.op))


Route = str
"""``"address"``, ``"handle"`` or ``"arenas"``."""


def _route(source: "DeviceActor", target: "DeviceActor") -> Route:
    """The route of a copy: by the array's address, by a handle opened in the target's process, or through arenas."""
    backend = source.backend
    if backend.name != target.backend.name:
        return "arenas"
    if not (source.isolated or target.isolated):
        return "address"
    if not backend.shares or source.remote or target.remote or source.port.loop is not target.port.loop:
        return "arenas"
    one, other = sorted((source.info, target.info), key=lambda info: info.uuid)
    return "handle" if one.uuid == other.uuid or _reaches(backend, one, other) else "arenas"


@functools.lru_cache(maxsize=4096)
def _reaches(backend: Any, one: Any, other: Any) -> bool:
    return any(link.direct for link in backend.links([one, other]))
