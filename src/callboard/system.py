"""``System``: actors and devices of one event loop."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from callboard.actors import ActorSystem, Props
from callboard.core import registry
from callboard.device.actor import DeviceActor
from callboard.device.config import DeviceConfig
from callboard.device.configure import check_libraries, device_config
from callboard.device.handle import Device
from callboard.device.hosts.starter import starter_for
from callboard.device.line.port import OpPort
from callboard.device.line.transfers import Transfers
from callboard.device.supervision.supervisor import DeviceSupervisor

__all__ = ["System", "device"]

log = logging.getLogger("callboard")


class System(ActorSystem):
    """Actors and devices; belongs to one loop. Leaving ``async with`` ends all of them, devices last.

    ::

        async with cb.System("demo") as system:
            gpu = await system.device()
    """

    def __init__(self, name: str = "callboard", **options: Any) -> None:
        super().__init__(name, **options)
        self._devices: dict[tuple[str, str], asyncio.Task[Device]] = {}

    async def start(self) -> "System":
        await super().start()
        self.shutdown.add_task("devices", "close all devices", self._close_devices)
        return self

    async def device(
        self,
        which: str = "auto",
        *,
        supervisor: DeviceSupervisor | None = None,
        config: DeviceConfig | None = None,
        wait: bool = True,
        **options: Any,
    ) -> Device:
        """The device, opened on first use; the same device gives the same handle.

        Args:
            which: ``"auto"`` (first usable CUDA device, else CPU), ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or a UUID.
            supervisor: What failures mean; by the configuration otherwise.
            config: All settings; ``options`` override single ones (``isolation="process"``, ``standby="hot"`` …: the
                fields of :class:`DeviceConfig` and, by name, of :class:`HostConfig`).
            wait: Return when the context is ready, not before.

        Raises:
            BackendUnavailable: It cannot be used here; the text says why and what to install.
            DeviceStopped: Its context could not be opened.
            ValueError: An unknown option, or one that differs from those that the open device has.
        """
        backend, info = registry.resolve(which)
        settings = device_config(backend.isolation, config, options)
        check_libraries(settings)
        key = (backend.name, info.uuid)
        task = self._devices.get(key)
        if task is None or _is_over(task):
            task = self._devices[key] = asyncio.ensure_future(self._open(backend, info, settings, supervisor, task))
        opened = await asyncio.shield(task)
        if options and opened.config != settings:
            raise ValueError(
                f"{opened.name} is open with other settings ({opened.config}); close it first, or pass the same"
            )
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
        isolation = config.isolation or backend.isolation
        name = f"{backend.name}:{info.index}"
        port = OpPort(
            asyncio.get_running_loop(), name, info.uuid, backend.name, backend.libraries(), config, self._unretrieved
        )
        starter = starter_for(isolation, backend.environment(info), config)
        supervisor = supervisor or DeviceSupervisor(config.max_restarts, config.within, config.on_exhausted)
        made: asyncio.Future[DeviceActor] = asyncio.get_running_loop().create_future()

        def make() -> DeviceActor:
            try:
                actor = DeviceActor(info, backend, config, supervisor, starter, port)
            except BaseException as e:  # of any class: told to who waits, and raised
                made.set_exception(e)
                raise
            made.set_result(actor)
            return actor

        label = re.sub(r"[^\w.:@+=~-]+", "-", backend.name, flags=re.ASCII)
        try:
            ref = self.actor_of(Props(make), f"device-{label}-{info.index}")
            actor = await made
        except BaseException:  # a cancel, too
            port.close()
            raise
        return Device(ref, actor, Transfers(port, actor.arenas))

    async def _close_devices(self) -> None:
        tasks, self._devices = self._devices, {}
        for task in tasks.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                await task.result().close()
            else:
                task.cancel()

    def _unretrieved(self, error: BaseException) -> None:
        self.dead_letters.publish(error, f"device {getattr(error, 'device', None)}", "unretrieved")
        log.error("an op failed and nobody awaited it: %s: %s", type(error).__name__, str(error))


@asynccontextmanager
async def device(which: str = "auto", **options: Any) -> AsyncIterator[Device]:
    """A system with one device: ``async with cb.device("auto") as gpu``. Arguments as :meth:`System.device`."""
    async with System() as system:
        yield await system.device(which, **options)


def _is_over(task: "asyncio.Task[Device]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None or task.result().stopped)
