"""``Stream``: what happens in a run, for its caller."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, Literal

__all__ = ["Mode", "Stream", "parts"]

Mode = Literal["values", "updates", "custom"]
MODES = ("values", "updates", "custom")


class Stream:
    """Takes the items of the modes that are asked for.

    Args:
        modes: The modes.
        write: Called with each mode and item; None: they are queued for :func:`parts`.
    """

    def __init__(self, modes: Mode | Sequence[Mode], write: Callable[[str, Any], None] | None = None) -> None:
        asked = (modes,) if isinstance(modes, str) else tuple(modes)
        for mode in asked:
            if mode not in MODES:
                raise ValueError(f"stream_mode has {mode!r}; the modes are {', '.join(map(repr, MODES))}")
        self.single = isinstance(modes, str)
        self.shape: Callable[[Any], Any] = dict
        self.queue: asyncio.Queue[tuple[Any] | None] = asyncio.Queue()
        self._modes = asked
        self._write = write
        self._loop: asyncio.AbstractEventLoop | None = None

    def emit(self, mode: str, item: Any) -> None:
        """Take an item, from any thread."""
        if mode not in self._modes:
            return
        if mode == "values":
            item = self.shape(item)
        if self._write is not None:
            self._write(mode, item)
            return
        part = (item,) if self.single else ((mode, item),)
        if self._loop is None or asyncio._get_running_loop() is self._loop:
            self.queue.put_nowait(part)
        else:
            self._loop.call_soon_threadsafe(self.queue.put_nowait, part)

    def start(self) -> None:
        """Belong to the running loop."""
        self._loop = asyncio.get_running_loop()


async def parts(stream: Stream, run: Coroutine[Any, Any, Any]) -> AsyncGenerator[Any, None]:
    """Run, and give the items. The run is cancelled when the caller leaves."""
    stream.start()
    task = asyncio.ensure_future(run)
    task.add_done_callback(lambda _: stream.queue.put_nowait(None))
    try:
        while (part := await stream.queue.get()) is not None:
            yield part[0]
        await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
