"""``HostStarter``: starts the hosts of one device, in its isolation."""

import abc
import asyncio
from collections.abc import Callable, Mapping

from callboard.device.config import DeviceConfig
from callboard.device.protocol.messages import FromHost
from callboard.device.supervision.hosts.base import Host, HostEnd

__all__ = ["HostStarter", "LoopStarter", "ProcessStarter", "ThreadStarter", "starter_for"]


class HostStarter(abc.ABC):
    """Starts hosts.

    Attributes:
        isolated: Hosts are processes: standbys make sense, and a lost context can be replaced.
        recovers: A lost context can be replaced here.
        remote: Hosts are on other machines.
    """

    isolated: bool
    recovers: bool
    remote: bool = False

    @abc.abstractmethod
    async def start(
        self, on_message: Callable[[FromHost], None], on_end: Callable[[HostEnd], None], label: str
    ) -> Host:
        """A started host.

        Raises:
            HostEnd: It could not be started.
            BackendUnavailable: Not on this platform.
        """

    def again(self, error: Exception) -> float | None:
        """Seconds after which a start that failed with this is tried again; None: it counts as a lost context."""
        return None


class ProcessStarter(HostStarter):
    """Each host is a child process.

    Args:
        environment: Added to the child's environment.
    """

    isolated = True
    recovers = True

    def __init__(self, environment: Mapping[str, str], config: DeviceConfig) -> None:
        self._environment = environment
        self._config = config

    async def start(
        self, on_message: Callable[[FromHost], None], on_end: Callable[[HostEnd], None], label: str
    ) -> Host:
        from callboard.device.supervision.hosts.process import ProcessHost

        return await ProcessHost.start(
            asyncio.get_running_loop(),
            self._environment,
            on_message,
            on_end,
            hang_after=self._config.hang_after,
            step_timeout=self._config.step_timeout,
            interval=self._config.host.interval,
            label=label,
            guardian=self._config.guardian,
        )


class ThreadStarter(HostStarter):
    """Each host is a thread of this process."""

    isolated = False
    recovers = False

    async def start(
        self, on_message: Callable[[FromHost], None], on_end: Callable[[HostEnd], None], label: str
    ) -> Host:
        from callboard.device.supervision.hosts.thread import ThreadHost

        return await ThreadHost.start(asyncio.get_running_loop(), on_message, on_end, label=label)


class LoopStarter(ThreadStarter):
    """The host is the caller's own loop."""

    async def start(
        self, on_message: Callable[[FromHost], None], on_end: Callable[[HostEnd], None], label: str
    ) -> Host:
        from callboard.device.supervision.hosts.loop import LoopHost

        return LoopHost(asyncio.get_running_loop(), on_message, on_end, label)


def starter_for(isolation: str, environment: Mapping[str, str], config: DeviceConfig) -> HostStarter:
    """The starter of an isolation, ``"process"`` or ``"thread"``."""
    if isolation == "process":
        return ProcessStarter(environment, config)
    return LoopStarter() if config.dispatcher == "caller" else ThreadStarter()
