"""The blocking twin, for scripts and notebooks: no ``async``, no ``await``, the same names.

::

    import numpy as np, callboard as cb

    with cb.sync.device("auto") as gpu:
        a = gpu.put(np.random.rand(512, 512).astype("f4"))
        print(gpu.blas.gemm(a, a).get())

Ops still return at once, with refs of pending values. Operations that must wait (``ref.get()``, ``ref.result()``,
``ref.shape`` if it depends on data, ``gpu.stats()``, calls of resident actors) wait on the calling thread, which may be
any. Ctrl-C ends a wait at once; the op continues. It ends the wait for an end (of a device, a system, a server) within
two seconds, and what has not ended by then is ended in the background. Where the async API raises ``MailboxFull``, a
call here waits for room, unless there can never be enough. Devices that are still open when the interpreter exits are
closed then. The event loop behind this API has a thread of its own, so it does not conflict with a running loop. On
that thread, where hooks run, blocking calls raise ``RuntimeError``.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from callboard._background import BackgroundLoop, open_loop
from callboard._blocking import PerGeneration, ResidentRef
from callboard._blocking_cluster import Cluster, cluster
from callboard._blocking_device import Device, Ref
from callboard._blocking_memory import PinnedBufferPool
from callboard._blocking_quarantine import Quarantine
from callboard._blocking_stream import Stream
from callboard.actors.handles import Handle
from callboard.device.client.handle import Device as AsyncDevice
from callboard.device.config import DeviceConfig, DeviceOptions
from callboard.device.protocol.residents.importing import note_importing
from callboard.device.supervision.remote.place import HostPlace
from callboard.device.supervision.supervisor import DeviceSupervisor
from callboard.patterns.requests.server import RequestServer
from callboard.system import System as AsyncSystem

__all__ = [
    "Cluster",
    "Device",
    "PerGeneration",
    "PinnedBufferPool",
    "Quarantine",
    "Ref",
    "ResidentRef",
    "Stream",
    "System",
    "cluster",
    "device",
    "serving",
]

S = TypeVar("S", bound=RequestServer[Any, Any])


class System(Handle):
    """Devices that are closed together: ``with cb.sync.System("demo") as system: gpu = system.device()``."""

    def __init__(self, name: str = "callboard") -> None:
        self.name = name
        self._lock = threading.Lock()
        self._background: BackgroundLoop | None = None
        self._system: AsyncSystem | None = None
        self._user: Callable[[], None] = self.close
        self._devices: dict[AsyncDevice, Device] = {}

    def device(
        self,
        which: str = "auto",
        *,
        supervisor: DeviceSupervisor | None = None,
        config: DeviceConfig | None = None,
        wait: bool = True,
        node: HostPlace | None = None,
        **options: Unpack[DeviceOptions],
    ) -> Device:
        """The device, opened on first use; arguments and errors as :meth:`callboard.System.device`."""
        note_importing()  # of this thread; the other one opens the device
        with self._lock:
            if self._background is None or self._background.forked:
                self._user = functools.partial(self.close)  # of its own: an earlier one may not have left yet
                self._background = open_loop(self._user)
                self._system = self._background.run(_started(self.name))
                self._devices = {}
            background, system = self._background, self._system
        assert system is not None
        try:
            opened = background.run(
                system.device(which, supervisor=supervisor, config=config, wait=wait, node=node, **options)
            )
            with self._lock:
                return self._devices.get(opened) or self._devices.setdefault(
                    opened, Device(background, opened, self._close)
                )
        finally:
            self._close_if_unused()

    def close(self) -> None:
        """Close all devices; their processes have ended and their memory is free when this returns.

        Closing twice is harmless. Ctrl-C ends the wait within two seconds; the devices are closed in the background.
        """
        if self._background is not None:
            self._background.check_thread()
        with self._lock:
            background, system, user = self._background, self._system, self._user
            self._background = self._system = None
            self._devices = {}
        if background is not None and system is not None:
            background.finish(system.stop(), system._hurry, user)

    def _close(self, device: AsyncDevice) -> None:
        if self._background is not None:
            self._background.check_thread()
        with self._lock:
            background = self._background
            known = self._devices.pop(device, None)
        if known is not None and background is not None:
            try:
                background.finish(device.close(), device._hurry)
            finally:
                self._close_if_unused()

    def _close_if_unused(self) -> None:
        if not self._devices:
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    if not TYPE_CHECKING:  # checkers refuse it

        async def __aenter__(self):
            raise TypeError(
                "cb.sync.System is for programs without asyncio: use `with`, or in asyncio `async with cb.System(...)`"
            )

        async def __aexit__(self, *_):
            """Defined so that ``async with`` calls ``__aenter__``."""

    def __repr__(self) -> str:
        return (
            f"<cb.sync.System {self.name!r}: {', '.join(d.name for d in self._devices.values()) or 'no device open'}>"
        )


async def _started(name: str) -> AsyncSystem:
    return await AsyncSystem(name).start()


def device(
    which: str = "auto",
    *,
    supervisor: DeviceSupervisor | None = None,
    config: DeviceConfig | None = None,
    wait: bool = True,
    node: HostPlace | None = None,
    **options: Unpack[DeviceOptions],
) -> Device:
    """A blocking device: ``with cb.sync.device("auto") as gpu``, or without ``with`` in a notebook.

    Arguments and errors as :meth:`callboard.System.device`. The same device gives the same handle while it is open.
    """
    return _default.device(which, supervisor=supervisor, config=config, wait=wait, node=node, **options)


@contextlib.contextmanager
def serving(server: S) -> Iterator[S]:
    """Run a serving blueprint in a program without asyncio.

    ``with cb.sync.serving(cb.DynamicBatchingServer(embed_many)) as server: server.ask("hello")``. It runs on the thread
    of the loop behind this module; ``ask`` and ``submit_threadsafe`` are for every other thread. The batch function is
    called on a thread of its own, so it may use a blocking device. When the block ends the server is drained, or
    stopped at once if an exception ended it. Ctrl-C ends the wait for either within two seconds; a function that runs
    on a thread then is left behind.

    Raises:
        RuntimeError: The server was started before.
    """
    ended = False

    def end() -> None:  # when the interpreter exits, at the latest
        nonlocal ended
        if not ended:
            ended = True
            background.finish(server.stop(), _nothing, end)

    background = open_loop(end)
    try:
        background.run(server.start())
    except BaseException:  # nothing was started here that would have to be stopped
        background.leave(end)
        raise
    try:
        yield server
        background.run(_drained(server))
    finally:
        end()


def _nothing() -> None:
    """Nothing makes a function hurry."""


async def _drained(server: RequestServer[Any, Any]) -> None:
    await server.drain()


_default = System()
