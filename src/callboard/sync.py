"""The blocking twin, for scripts and notebooks: no ``async``, no ``await``, the same names.

::

    import numpy as np, callboard as cb

    with cb.sync.device("auto") as gpu:
        a = gpu.put(np.random.rand(512, 512).astype("f4"))
        print(gpu.blas.gemm(a, a).get())

Ops still return at once, with refs of pending values. Operations that must wait (``ref.get()``, ``ref.result()``,
``ref.shape`` if it depends on data, ``gpu.stats()``, calls of resident actors) wait on the calling thread, which may be
any. Ctrl-C ends a wait at once; the op continues. A second one that the same op outlasts replaces the context, if that
is in a process of its own (``isolation="process"``): its arrays are stale then. It ends the wait for an end (of a
device, a system, a server) within two seconds, and what has not ended by then is ended in the background. Where the
async API raises ``MailboxFull``, a call here waits for room, unless there can never be enough. Devices that are still
open when the interpreter exits are closed then. The event loop behind this API has a thread of its own, so it does not
conflict with a running loop. On that thread, where hooks run, blocking calls raise ``RuntimeError``.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, TypeVar

from callboard._background import open_loop
from callboard._blocking import (
    Cluster,
    Device,
    PinnedBufferPool,
    Quarantine,
    ResidentRef,
    Stream,
    System,
    cluster,
    device,
)
from callboard._blocking_device import PerGeneration, Ref
from callboard.patterns.requests.server import RequestServer

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
