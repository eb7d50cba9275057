"""``NvmlActor``: power, temperatures, clocks, memory and errors of the GPUs, and their Xid events as they happen."""

import asyncio
import contextlib
import functools
import logging
import math
import os
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from callboard.actors import Actor, ActorRef, DeadLetterSuppression, Msg, Props, Request
from callboard.device.supervision.mail import ContextSuspected
from callboard.events.forking import after_fork
from callboard.events.kinds import MARK
from callboard.events.ring import EVENTS, now
from callboard.telemetry.nvidia.alarms import Alarm, Alarms
from callboard.telemetry.nvidia.figures import GpuFigures
from callboard.telemetry.nvidia.metrics import GpuSource
from callboard.telemetry.nvidia.reading import Gpus, NvmlMissing, nvml_module
from callboard.telemetry.sampling.devices import open_devices

if TYPE_CHECKING:
    from callboard.telemetry.telemetry import Telemetry

__all__ = ["GpuSnapshot", "NvmlActor", "SetInterval", "Shutdown", "watch_gpus"]

R = TypeVar("R")

log = logging.getLogger("callboard.telemetry")

_watching: "list[NvmlActor]" = []
"""The actors of this process that watch its GPUs, one for each observed system: the first tells of errors."""
after_fork(_watching.clear)

DRIVER = "/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"
"""One of these exists where there is a driver."""


class GpuSnapshot(Request["NvmlActor", list[GpuFigures]]):
    """Read the figures of all GPUs now; none on a machine without NVML."""


class SetInterval(Request["NvmlActor", None]):
    """Read the figures every ``seconds`` from now on.

    Raises:
        ValueError: ``seconds`` is not a positive, finite number.
    """

    seconds: float

    def __post_init__(self) -> None:
        seconds: Any = self.seconds  # structs do not check types
        if not (isinstance(seconds, int | float) and 0 < seconds < math.inf):
            raise ValueError(f"seconds is {seconds!r}; it must be a positive number")


class Shutdown(Request["NvmlActor", None], DeadLetterSuppression):
    """Let go of NVML and stop; the answer comes when that is done."""


class _Due(Msg["NvmlActor"]):
    """Time for a reading."""


class _Alarmed(Msg["NvmlActor"], DeadLetterSuppression):
    alarm: Alarm


class NvmlActor(Actor):
    """Watches the GPUs of this machine.

    All calls of NVML run on threads of their own, so a driver that hangs stops the readings and nothing else.

    An Xid event becomes an event of telemetry (``MARK``), and the devices of the system on that GPU look at once
    whether their context is dead. After an Xid that no context survives, they are given a new one.

    ``cb.observe`` makes one where there is a driver, and ``nvidia-ml-py`` is installed.

    Args:
        interval: Seconds between readings.
        nvml: The module ``pynvml``, or an object that has its functions; None: the installed one.
        source: What shows the readings as metrics.
    """

    def __init__(self, interval: float = 1.0, nvml: Any = None, source: GpuSource | None = None) -> None:
        self._interval = SetInterval(seconds=interval).seconds
        self._nvml = nvml
        self.source = GpuSource() if source is None else source
        self._gpus: Gpus | None = None
        self._alarms: Alarms | None = None
        self._reading: asyncio.Future[list[GpuFigures]] | None = None
        self._xids: Counter[tuple[str, int]] = self.source.xids
        self._missing = False

    def pre_start(self) -> None:
        self._tell: Callable[[Msg[NvmlActor]], None] = self.ref.tell
        self._read()
        self.timers.start_fixed_delay("read", _Due(), self._interval)

    async def post_stop(self) -> None:
        if self in _watching:
            _watching.remove(self)
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=1.0)
        gpus, self._gpus = self._gpus, None
        if gpus is not None:
            await asyncio.wait([_aside(functools.partial(_close, gpus, self._alarms))], timeout=1.0)

    @GpuSnapshot.handles
    def snapshot(self, _: GpuSnapshot) -> Awaitable[list[GpuFigures]]:
        return asyncio.shield(self._read())

    @SetInterval.handles
    def set_interval(self, message: SetInterval) -> None:
        self._interval = message.seconds
        if not self._missing:
            self.timers.start_fixed_delay("read", _Due(), self._interval)

    @Shutdown.handles
    async def shutdown(self, _: Shutdown) -> None:
        self.timers.cancel("read")
        await self.post_stop()
        self._missing = True
        self.source.latest = []
        self.stop()

    @_Due.handles
    def _due(self, _: _Due) -> None:
        self._read()

    def _read(self) -> "asyncio.Future[list[GpuFigures]]":
        """The reading under way, or a new one."""
        if self._reading is None:
            self._reading = _aside(self._figures)
            self._reading.add_done_callback(self._done)
        return self._reading

    def _figures(self) -> list[GpuFigures]:
        """Read; on a thread of its own, one at a time."""
        if self._missing:
            return []
        if self._gpus is None:
            try:
                gpus = Gpus(nvml_module() if self._nvml is None else self._nvml)
            except NvmlMissing as e:
                self._missing = True
                _say(str(e))
                return []
            self._gpus = gpus
            _watching.append(self)
            self._alarms = Alarms(gpus, lambda alarm: self._tell(_Alarmed(alarm=alarm)))
            self._alarms.start()
        return self._gpus.read()

    def _done(self, reading: "asyncio.Future[list[GpuFigures]]") -> None:
        self._reading = None
        if reading.cancelled():
            return
        error = reading.exception()
        if error is not None:
            log.warning("the GPUs could not be read: %s: %s", type(error).__name__, error)
            return
        self.source.latest = reading.result()
        if self._missing:
            self.source.latest = []

    @_Alarmed.handles
    def _alarmed(self, message: _Alarmed) -> None:
        alarm = message.alarm
        where = "" if alarm.gpu is None else alarm.gpu.uuid
        if alarm.kind == "xid":
            self._xids[where, alarm.code] += 1
        if self in _watching[:1]:
            _tell(alarm, where)
        for device in open_devices(self.system):
            if device.uuid in alarm.uuids:
                device.ref.tell(ContextSuspected(reason=f"NVML: {alarm.text}", dead=alarm.fatal))


def watch_gpus(telemetry: "Telemetry", nvml: Any = None) -> ActorRef[NvmlActor] | None:
    """Show the GPUs of this machine in a system's telemetry; None, said once, where that is not possible.

    Args:
        telemetry: The telemetry.
        nvml: As of :class:`NvmlActor`.
    """
    if nvml is None and not any(map(os.path.exists, DRIVER)):
        _say("there is no NVIDIA driver")
        return None
    if nvml is None and find_spec("pynvml") is None:
        _say("the package nvidia-ml-py is not installed (extra observability-full-cuda13 or -cuda12)")
        return None
    source = GpuSource()
    actor = telemetry.system.actor_of(Props(NvmlActor, nvml=nvml, source=source))  # unnamed: the last one may yet end
    source.read = lambda: actor.ask(GpuSnapshot())
    remove = telemetry.add(source)

    def end() -> None:
        remove()
        actor.tell(Shutdown())

    telemetry.on_close(end)
    return actor


def _tell(alarm: Alarm, where: str) -> None:
    """Log an alarm, and make it an event."""
    log.log(logging.ERROR if alarm.fatal else logging.WARNING, "GPU %s: %s", where or "(unknown)", alarm.text)
    ring = EVENTS.ring
    if ring is not None:
        values = {"code": alarm.code, "text": alarm.text, "fatal": alarm.fatal}
        ring.append((next(ring.numbers), now(), MARK, where, alarm.kind, values))


@functools.cache
def _say(why: str) -> None:
    """Said once in a process: most machines have no GPU."""
    log.info("no figures of GPUs: %s", why)


def _close(gpus: Gpus, alarms: Alarms | None) -> None:
    if alarms is None or alarms.close():  # else the driver hangs, and a further call would hang, too
        gpus.close()


def _aside(work: Callable[[], R]) -> "asyncio.Future[R]":
    """Call ``work()`` on a thread of its own, which does not keep the process alive."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()

    def settle(result: Any, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as e:  # the caller's, who reads the future
            error = e
        with contextlib.suppress(RuntimeError):  # the loop is closed: the result is not wanted any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="callboard-nvml", daemon=True).start()
    return future
