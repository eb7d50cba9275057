"""``System``: actors and devices of one event loop."""

import asyncio
import logging
import os
from collections.abc import Collection
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack, final

import msgspec

from callboard.actors import ActorSystem, Clock, DeadLetters, Strategy
from callboard.actors._runtime.recording import Recorder
from callboard.core import registry
from callboard.core.backend import DeviceInfo
from callboard.core.errors import DeviceStopped, Withdrawn
from callboard.device.client.handle import Device
from callboard.device.client.recorded import DeviceLog
from callboard.device.config import DeviceConfig, DeviceOptions
from callboard.device.configure import check_libraries, device_config, differing, warn_of_unknown_variables
from callboard.device.opening import open_device, remote_config
from callboard.device.protocol.residents.importing import note_importing, refuse_nested
from callboard.device.supervision.hosts.starter import starter_for
from callboard.device.supervision.remote.place import HostPlace
from callboard.device.supervision.remote.starter import RemoteStarter
from callboard.device.supervision.supervisor import DeviceSupervisor

__all__ = ["System", "device"]

started: ContextVar["list[System] | None"] = ContextVar("callboard_started", default=None)
"""Systems that are started in this context are added to this list."""

log = logging.getLogger("callboard")


class System(ActorSystem):
    """An actor system with devices, on one event loop. Leaving ``async with`` ends all of them, devices last.

    ::

        async with cb.System("demo") as system:
            gpu = await system.device()
    """

    def __init__(
        self,
        name: str = "callboard",
        *,
        supervision: Strategy | None = None,
        clock: Clock | None = None,
        stop_timeout: float = 10.0,
        dead_letters: DeadLetters | None = None,
        stop_signals: Collection[int] = (),
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__(
            name,
            supervision=supervision,
            clock=clock,
            stop_timeout=stop_timeout,
            dead_letters=dead_letters,
            stop_signals=stop_signals,
            recorder=recorder,
        )
        self._devices: dict[tuple[str, str], asyncio.Task[Device]] = {}
        self._closing: list[asyncio.Task[Device]] = []

    async def start(self) -> "System":
        await super().start()
        self.shutdown.add_task("devices", "close all devices", self._close_devices)
        if (listed := started.get()) is not None:
            listed.append(self)
        if os.environ.get("CALLBOARD_LOG"):
            from callboard.telemetry.logs import log_by_environment

            log_by_environment()
        if os.environ.get("CALLBOARD_TELEMETRY"):
            from callboard.telemetry.install import observe_by_environment

            observe_by_environment(self)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # asyncio.run() turns a Ctrl-C into a cancel. A body that is cancelled for `stop_signals` has a failure: devices
        # are drained then.
        if self.failure is None and isinstance(exc, asyncio.CancelledError | KeyboardInterrupt):
            self._hurry()
        await super().__aexit__(exc_type, exc, traceback)

    def _hurry(self) -> None:
        """Make the end of all devices, later or under way, take little time: the application was interrupted."""
        for task in (*self._devices.values(), *self._closing):
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result()._hurry()

    async def device(
        self,
        which: str = "auto",
        *,
        supervisor: DeviceSupervisor | None = None,
        config: DeviceConfig | None = None,
        wait: bool = True,
        node: HostPlace | None = None,
        **options: Unpack[DeviceOptions],
    ) -> Device:
        """The device, opened on first use; the same device gives the same handle.

        Args:
            which: ``"auto"`` (first usable CUDA device, else CPU), ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or a UUID.
            supervisor: Supervisor that decides what follows a loss; by default one with the budget of the
                configuration.
            config: All settings; ``options`` override single ones (``isolation="process"``, ``standby="hot"`` …: the
                fields of :class:`DeviceConfig` and, by name, of :class:`HostConfig`).
            wait: Return when the context is ready, not before.
            node: The machine that has the device (:class:`callboard.Node`); None for this machine.

        Raises:
            BackendUnavailable: The device cannot be used here; the text says why and what to install.
            DeviceStopped: Its context could not be opened.
            ValueError: An option is unknown, or differs from that of the device, which is open already; so may be the
                supervisor.
            TypeError: ``supervisor`` is no :class:`DeviceSupervisor`.
            RuntimeError: This process is a context host, which opens no devices.
        """
        refuse_nested(which)
        note_importing()
        if node is not None:
            remote = await self._open_remote(node, which, config, options, supervisor)
            return await remote.ready() if wait else remote
        backend, info = registry.resolve(which)
        settings = device_config(backend.isolation, config, options)
        warn_of_unknown_variables()
        check_libraries(settings, backend.libraries())
        key = (backend.name, info.uuid)
        task = self._devices.get(key)
        if task is None or _is_over(task):
            task = self._devices[key] = asyncio.ensure_future(self._open(backend, info, settings, supervisor, task))
        opened = await asyncio.shield(task)
        if options and opened.config != settings:
            raise ValueError(
                f"{opened.name} is open with other settings: {differing(opened.config, settings)}; close it first, or "
                "pass the same"
            )
        if supervisor is not None and opened._actor.supervisor is not supervisor:
            raise ValueError(f"{opened.name} is open with another supervisor; close it first, or pass the same")
        return await opened.ready() if wait else opened

    async def _open(
        self,
        backend: Any,
        info: Any,
        config: DeviceConfig,
        supervisor: DeviceSupervisor | None,
        stopped: asyncio.Task[Device] | None,
    ) -> Device:
        if stopped is not None and not stopped.cancelled() and stopped.exception() is None:
            await stopped.result().close()
        starter = starter_for(config.isolation or backend.isolation, backend.environment(info), config)
        name = f"{backend.name}:{info.index}"
        log = self._log_of(name, info)
        return await open_device(self, name, backend, info, config, starter, supervisor, self._unretrieved, log)

    def _log_of(self, name: str, info: DeviceInfo) -> DeviceLog | None:
        """The log of a new device, if the system's recorder records devices."""
        attach = getattr(self.recorder, "attach_device", None)
        log: DeviceLog | None = None if attach is None else attach(name, info.backend, info.uuid)
        return log

    async def _open_remote(
        self,
        node: HostPlace,
        which: str,
        config: DeviceConfig | None,
        options: DeviceOptions,
        supervisor: DeviceSupervisor | None,
    ) -> Device:
        info = await node.describe(which)
        backend = registry.backend(info.backend)
        # Two machines have a "CPU-0" each; and what "auto" means must not change when another node takes over.
        info = msgspec.structs.replace(info, uuid=f"{info.uuid}@{node}")
        which = info.backend if which == "auto" else which
        settings = remote_config(config, options)
        check_libraries(settings, backend.libraries())
        key = (f"{node} {backend.name}", info.uuid)
        task = self._devices.get(key)
        if task is None or _is_over(task):
            starter = RemoteStarter(node.locate, which, settings, node.lost_after)
            name = f"{node}/{backend.name}:{info.index}"
            log = self._log_of(name, info)
            opening = open_device(self, name, backend, info, settings, starter, supervisor, self._unretrieved, log)
            task = self._devices[key] = asyncio.ensure_future(opening)
        return await asyncio.shield(task)

    async def _close_devices(self) -> None:
        tasks, self._devices = self._devices, {}
        self._closing = list(tasks.values())
        for task in self._closing:
            if task.done() and not task.cancelled() and task.exception() is None:
                await task.result().close()
            else:
                task.cancel()

    def _unretrieved(self, error: BaseException) -> None:
        self.dead_letters.publish(error, f"device {getattr(error, 'device', None)}", "unretrieved")
        if isinstance(error, DeviceStopped) and error.closed:  # by the program, too, which is told all the same
            log.info("an op had not ended and was not awaited: %s", str(error))
        elif not isinstance(error, Withdrawn):  # cancelled by the program, which waits for it no more
            log.error("an op failed and was not awaited: %s: %s", type(error).__name__, str(error))


def device(
    which: str = "auto",
    *,
    supervisor: DeviceSupervisor | None = None,
    config: DeviceConfig | None = None,
    wait: bool = True,
    node: HostPlace | None = None,
    **options: Unpack[DeviceOptions],
) -> "OpenDevice":
    """A system with one device: ``async with cb.device("auto") as gpu``. Arguments as :meth:`System.device`."""
    return OpenDevice(
        System(), which, {"supervisor": supervisor, "config": config, "wait": wait, "node": node, **options}
    )


@final
class OpenDevice:
    """Returned by :func:`device`: ``async with`` opens the device, and closes it at its end.

    Raises:
        TypeError: Used with ``with`` or ``await``; :func:`callboard.sync.device` is for code without ``async``.
    """

    def __init__(self, system: System, which: str, options: dict[str, Any]) -> None:
        self._system = system
        self._which = which
        self._options = options

    async def __aenter__(self) -> Device:
        system = await self._system.__aenter__()
        try:
            return await system.device(self._which, **self._options)
        except BaseException as e:  # a cancel, too
            await system.__aexit__(type(e), e, e.__traceback__)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._system.__aexit__(kind, error, trace)

    if not TYPE_CHECKING:  # checkers refuse these

        def __enter__(self):
            raise TypeError(
                "cb.device() is for asyncio: use `async with cb.device(...) as gpu`, or without asyncio "
                "`with cb.sync.device(...) as gpu`"
            )

        def __exit__(self, *_):
            """Defined so that ``with`` calls ``__enter__``."""

        def __getattr__(self, name):
            raise AttributeError(
                f"cb.device() has no {name!r} before it is opened: use `async with cb.device(...) as gpu`, or without "
                "asyncio `gpu = cb.sync.device(...)`",
                name=name,
                obj=self,
            )

        def __await__(self):
            raise TypeError(
                "cb.device() is opened by `async with cb.device(...) as gpu`; to keep a device open, "
                "`await system.device(...)` of a cb.System"
            )


# `import callboard.device.client as client` takes `client` from `callboard.device`, which is this function. It has no
# such attribute, so Python then imports the module `<its __name__>.client`.
device.__name__ = "callboard.device"


def _is_over(task: "asyncio.Task[Device]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None or task.result().stopped)
