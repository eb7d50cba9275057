"""``Show``: a player that runs while viewers look, and the newest frame for each of them."""

import asyncio
from typing import NamedTuple

from callboard.device.client.handle import Device
from callboard.realtime.base.checks import number
from callboard.realtime.base.simulation import Frame
from callboard.realtime.play.players import Player

__all__ = ["Show", "Shown"]


class Shown(NamedTuple):
    """A frame as viewers get it: colours row by row, three bytes a pixel."""

    frame: Frame
    width: int
    height: int
    pixels: bytes

    def __repr__(self) -> str:
        return f"<{self.width} x {self.height} pixels of {self.frame}>"


class Show:
    """Frames are drawn as fast as the fastest viewer asks for them, at most ``fps``; each viewer gets the newest one.

    Use it as a context manager.

    Args:
        device, player: What runs, and where.
        fps, width, height: Of the pictures.
    """

    def __init__(
        self,
        device: Device,
        player: Player,
        *,
        fps: float = 30.0,
        width: int = 480,
        height: int = 360,
    ) -> None:
        self.player = player
        self.values = {slider.name: slider.value for slider in player.sliders}
        self.simulation = player.make(device)
        self._fps, self._size = fps, (width, height)
        self._wanted = asyncio.Event()
        self._news = asyncio.Condition()
        self._shown: Shown | None = None
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Show":
        await self.simulation.start()
        await self.simulation.update_config(**self.player.changes(self.values))
        self._running = asyncio.ensure_future(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._running is not None
        self._running.cancel()
        await asyncio.wait([self._running])
        await self.simulation.stop()

    async def newest(self, after: int) -> Shown:
        """The newest frame, once there is one with a higher number.

        Raises:
            Exception: Of the simulation, if that has ended.
        """
        self._wanted.set()
        async with self._news:
            while self._shown is None or self._shown.frame.number <= after:
                if self._running is not None and self._running.done():
                    self._running.result()
                self._wanted.set()
                await self._news.wait()
            return self._shown

    async def set(self, name: str, value: float) -> None:
        """Move a slider.

        Raises:
            ValueError, TypeError: There is none of this name, or it has no such value.
        """
        slider = next((one for one in self.player.sliders if one.name == name), None)
        if slider is None:
            raise ValueError(f"there is no slider {name!r:.40}; there are {', '.join(self.values)}")
        self.values[name] = number(name, value, least=slider.low, most=slider.high)
        await self.simulation.update_config(**self.player.changes(self.values))

    async def _run(self) -> None:
        try:
            frames = self.simulation.run(self._fps, steps_per_frame=self.player.steps, dt=self.player.dt)
            async for frame in frames:
                pixels = (await self.simulation.picture(*self._size)).tobytes()
                self._wanted.clear()
                async with self._news:
                    self._shown = Shown(frame, *self._size, pixels)
                    self._news.notify_all()
                await self._wanted.wait()  # without viewers, it stands still
        finally:
            async with self._news:
                self._news.notify_all()
