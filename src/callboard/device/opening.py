"""``open_device``: a device's actor, its op line, and the handle of both."""

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any

from callboard.actors import ActorSystem, Props
from callboard.core.backend import AccelBackend, DeviceInfo
from callboard.device.client.graphs.chains import Chains
from callboard.device.client.handle import Device
from callboard.device.client.line.port import OpPort
from callboard.device.client.line.transfers import Transfers
from callboard.device.client.recorded import DeviceLog, RecordedPort, RecordedTransfers
from callboard.device.config import DeviceConfig
from callboard.device.configure import device_config
from callboard.device.supervision.actor import DeviceActor
from callboard.device.supervision.hosts.starter import HostStarter
from callboard.device.supervision.supervisor import DeviceSupervisor, checked
from callboard.kernel.ipc.sharing import no_descriptors

__all__ = ["open_device", "remote_config"]


def remote_config(config: DeviceConfig | None, options: Mapping[str, Any]) -> DeviceConfig:
    """The settings of a device of another machine, whose contexts live in processes and have no standby by default.

    Raises:
        ValueError: See :func:`.device_config`; or thread isolation is requested.
    """
    settings = device_config("process", config, options if config is not None else {"standby": None, **options})
    if settings.isolation != "process" or settings.dispatcher != "own":
        raise ValueError("a device of another machine lives in a process there: isolation='process', dispatcher='own'")
    return settings


async def open_device(
    system: ActorSystem,
    name: str,
    backend: AccelBackend,
    info: DeviceInfo,
    config: DeviceConfig,
    starter: HostStarter,
    supervisor: DeviceSupervisor | None,
    unretrieved: Callable[[BaseException], None],
    log: DeviceLog | None = None,
) -> Device:
    """Open a device in a system of actors.

    Args:
        system: System of the device's actor.
        name: Name of the device, for errors and logs.
        backend: Backend of the device; ops are checked against it in the application.
        info: The device.
        config: Settings of the device.
        starter: Starts its hosts.
        supervisor: Supervisor that decides what follows a loss; when None, one from the configuration.
        unretrieved: Called with each failure that was never awaited.
        log: Receives what the device is asked for; None if it is not recorded.

    Raises:
        OutOfMemory: This process has no descriptor left.
        TypeError: ``supervisor`` is no :class:`DeviceSupervisor`.
    """
    supervisor = (
        DeviceSupervisor(config.max_restarts, config.within, config.on_exhausted)
        if supervisor is None
        else checked(supervisor)
    )
    loop, libraries = asyncio.get_running_loop(), backend.libraries()
    try:
        opened = (loop, name, info.uuid, backend.name, libraries, config, unretrieved)
        port = OpPort(*opened) if log is None else RecordedPort(*opened, log=log)
    except OSError as e:
        raise no_descriptors(f"{name} cannot be opened", e) from e
    if config.auto_record:
        port.chains = chains = Chains(port)
        port.outbox.shorten = chains.shortened
    if config.auto_record or config.host.memory_limit is not None:
        port.outbox.released.few = 1  # a chain has its frees at the same places each time; a limit is kept to the byte
    made: asyncio.Future[DeviceActor] = asyncio.get_running_loop().create_future()

    def make() -> DeviceActor:
        try:
            actor = DeviceActor(info, backend, config, supervisor, starter, port)
        except BaseException as e:  # of any class: passed to the waiters, and raised
            made.set_exception(e)
            raise
        made.set_result(actor)
        return actor

    label = re.sub(r"[^\w.@+=~-]+", "-", name, flags=re.ASCII)
    try:
        ref = system.actor_of(Props(make), f"device-{label}")
        actor = await made
    except BaseException:  # a cancel, too
        port.close()
        raise
    if not isinstance(port, RecordedPort):
        return Device(ref, actor, Transfers(port, actor.arenas))
    port.transfers = RecordedTransfers(port, actor.arenas)
    return Device(ref, actor, port.transfers)
