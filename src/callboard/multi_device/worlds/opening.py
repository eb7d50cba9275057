"""``world()``: forms a world."""

from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import Any

from callboard.actors.clock import Clock
from callboard.device.client.handle import Device
from callboard.multi_device.worlds.world import World

__all__ = ["OpenWorld", "world"]


class OpenWorld:
    """The return value of :func:`world`: ``await`` forms the world; ``async with`` also closes it at its end."""

    def __init__(self, make: Callable[[], World]) -> None:
        self._make = make
        self._world: World | None = None

    def __await__(self) -> Generator[Any, None, World]:
        return self._open().__await__()

    async def _open(self) -> World:
        made = self._make()
        try:
            return await made.ready()
        except BaseException:  # a cancellation, too: end what was started
            await made.close(drain=False)
            raise

    async def __aenter__(self) -> World:
        self._world = await self._open()
        return self._world

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self._world is not None
        await self._world.__aexit__(kind, error, tb)


def world(
    devices: Sequence[Device],
    *,
    timeout: float = 600.0,
    form_timeout: float = 60.0,
    clock: Clock | None = None,
) -> OpenWorld:
    """Form a world of open devices, when all are ready: ``world = await cb.world([gpu0, gpu1])``.

    Args:
        devices: Rank 0, rank 1, …; of one backend, all of the running loop.
        timeout: Seconds without a completed collective after which those in flight count as hung. The time that ranks
            compute before a collective counts, too, so the timeout must exceed it.
        form_timeout: Seconds that forming may take once all devices are ready.
        clock: Source of the time; for tests.

    Returns:
        An object to ``await`` for a :class:`World`, or to enter with ``async with``, which closes the world at the end
        of the block.

    Raises:
        TypeError: Not a device; when it is awaited, as are the next.
        ValueError: No device, one of them twice, one of another loop, several backends, or a bound that is not
            positive.
        WorldStopped: It cannot be formed: NCCL is missing, a device has stopped, or it took too long; when awaited.
    """
    return OpenWorld(lambda: World(devices, timeout, form_timeout, clock))
