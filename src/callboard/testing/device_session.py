"""``DeviceSession``: a real device, host and all, with the methods of :class:`LibrarySession`."""

import asyncio
import threading
from types import TracebackType
from typing import Any, Self, cast

import numpy as np

from callboard.core.backend import AccelBackend
from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.errors import UnsupportedOp
from callboard.core.op import Op, info_of
from callboard.core.ref import GpuRef
from callboard.core.reply import Reply
from callboard.device.client.handle import Device
from callboard.system import System

__all__ = ["DeviceSession"]

WAIT = 60.0
"""Seconds that a step may take, if a test does not allow it more."""


class DeviceSession:
    """Opens a device on a separate loop, in a thread, and calls it from the test's thread.

    Args:
        which: Name of the device, as for :meth:`callboard.System.device`.
        recorded: Record every op that can be recorded, and replay it once in its place.
        options: Options of the device (``isolation`` …).

    Attributes:
        wait: Seconds that a step may take. A test whose op is compiled for minutes sets more.

    Raises:
        BackendUnavailable: It cannot be used here.
    """

    wait: float = WAIT

    def __init__(self, which: str = "cpu", *, recorded: bool = False, **options: Any) -> None:
        self._recorded = recorded
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="callboard-session", daemon=True)
        self._thread.start()
        self._system: System | None = None
        try:
            self.device: Device = self._run(self._open(which, options))
        except BaseException:  # Ctrl-C, too: nothing else ends the thread
            self.close()
            raise
        self.backend: AccelBackend = self.device.accel_backend

    async def _open(self, which: str, options: dict[str, Any]) -> Device:
        self._system = await System("session").start()
        return await self._system.device(which, **options)

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(self.wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- arrays --------------------------------------------------------------------------------------------------------

    def put(self, array: Any, dtype: DTypeLike | None = None) -> GpuRef:
        """A row-major copy of a host array on the device."""
        return self.device.put(array, dtype=dtype)

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike = "f32") -> GpuRef:
        """A new array; its bytes are ``0xff``, so that an element that was not written shows."""
        kind = as_dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else shape
        octets = np.full(int(np.prod(shape)) * kind.itemsize, 255, np.uint8)
        return self.device.put(octets.view(kind.np).reshape(shape))

    def get(self, ref: GpuRef) -> "np.ndarray[Any, Any]":
        """A copy on the host."""
        return ref.get().result(self.wait)

    # -- ops -----------------------------------------------------------------------------------------------------------

    def why_not(self, op: Op[Any, Any]) -> str | None:
        """The reason why the backend does not execute this op, None if it does."""
        cls = self.backend.libraries().get(info_of(type(op)).library)
        return "no such library" if cls is None else cls.why_not(op)

    def submit(self, op: Op[Any, Any]) -> Any:
        """Execute an op and wait for it; answers and raises as :meth:`LibrarySession.submit`."""
        if self._recorded:
            recording = self.device.record()
            try:
                with recording:
                    reply = self.device.ask(op)
            except (UnsupportedOp, ValueError) as e:  # ValueError: an array without contents is not work
                if not str(e).startswith("nothing was recorded") and "cannot be recorded" not in str(e):
                    raise
            else:
                try:
                    recording.prepare().result(self.wait)
                    recording.replay().result(self.wait)
                    return reply if isinstance(reply, tuple) else cast("Reply[Any]", reply).result(self.wait)
                except UnsupportedOp as e:  # some raise only with their plan
                    if "cannot be recorded" not in str(e):
                        raise
                finally:
                    recording.close()
        reply = self.device.ask(op)
        if isinstance(reply, tuple):
            for ref in reply:
                if ref is not None:  # an output that this call does not make
                    ref.result(self.wait)
            return reply
        return cast("Reply[Any]", reply).result(self.wait)

    def close(self) -> None:
        """End the device and the loop; closing twice is harmless."""
        if self._loop.is_closed():
            return
        if self._system is not None:
            self._run(self._system.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(self.wait)
        self._loop.close()
