"""``AccelBackend``: a kind of accelerator, which lists its devices and opens one."""

import abc
from collections.abc import Mapping, Sequence
from typing import ClassVar

from callboard.core.backend.device import AccelDevice, DeviceInfo
from callboard.core.errors import BackendUnavailable
from callboard.core.library import Library
from callboard.core.links import Link

__all__ = ["AccelBackend"]


class AccelBackend(abc.ABC):
    """A kind of accelerator."""

    name: str
    """``"cpu"``, ``"cuda"``, ``"torch:mps"``; :func:`callboard.core.registry.backend` finds it by this name."""

    isolation: str
    """The default isolation of its context: ``"process"`` or ``"thread"``."""

    completion: ClassVar[str] = "host_fn"
    """The default completion mode of its host; ``"polled"`` if querying an event is cheap and takes no core from the
    work."""

    shares: ClassVar[bool] = False
    """True if other processes can open the memory of its devices: :meth:`AccelDevice.share`, :meth:`AccelDevice.attach`
    and :meth:`AccelDevice.detach` are there."""

    kinds: tuple[str, ...] = ()
    """What :meth:`of_kind` takes; empty if the library serves one kind of devices."""

    def of_kind(self, kind: str) -> "AccelBackend":
        """The backend of one kind of devices, where a library serves several: ``"mps"`` for ``"torch:mps"``.

        Raises:
            BackendUnavailable: There is no such kind.
        """
        raise BackendUnavailable(
            f"device '{self.name}:{kind}': backend {self.name!r} has no kinds of devices; use 'auto', 'cpu', 'cuda', "
            "'cuda:1' or a UUID"
        )

    @abc.abstractmethod
    def devices(self) -> list[DeviceInfo]:
        """All devices, without opening one and without loading the driver library into this process.

        Raises:
            BackendUnavailable: None can be used; the text says why and what to install.
        """

    @abc.abstractmethod
    def environment(self, info: DeviceInfo) -> Mapping[str, str]:
        """Environment of a child process that is to see this device only."""

    def links(self, infos: Sequence[DeviceInfo]) -> list[Link]:
        """The links between these devices, each pair once, without pairs that have no link. Opens no device."""
        return []

    @abc.abstractmethod
    def libraries(self) -> Mapping[str, type[Library]]:
        """The :class:`Library` class of each compute library, by its name; importing them loads no vendor package."""

    @abc.abstractmethod
    def preload(self) -> None:
        """Import the dependencies of :meth:`open`, without creating a context (a warm standby does this ahead of time).

        Raises:
            BackendUnavailable: A package or the driver is missing.
        """

    @abc.abstractmethod
    def open(self, info: DeviceInfo) -> AccelDevice:
        """Create the context; it becomes current on the calling thread.

        Raises:
            BackendUnavailable, OutOfMemory, DriverError
        """
