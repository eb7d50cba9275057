"""``VideoEffectsGraph``: effects on the frames of videos, on a device."""

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from callboard.actors.clock import Clock, LoopClock
from callboard.core.errors import ContextLost
from callboard.core.ref.handle import GpuRef
from callboard.device.client.handle import Device
from callboard.realtime.base.asking import Asked
from callboard.realtime.base.checks import count, number
from callboard.realtime.base.cpu.recycled import Recycled
from callboard.realtime.base.live import fetched, lent
from callboard.realtime.base.simulation import sleep
from callboard.realtime.video import messages
from callboard.realtime.video.effects import Effect
from callboard.realtime.video.plan import Past, Plan, named
from callboard.realtime.video.streams import each

__all__ = ["VideoEffectsGraph", "VideoFrame", "VideoStats"]

ATTEMPTS = 3
"""Contexts that a frame may lose before it fails."""
Frames = dict[str, NDArray[Any]]


class VideoFrame(NamedTuple):
    """A frame of :meth:`VideoEffectsGraph.run`.

    Attributes:
        pts: When it is shown, in seconds.
        result: What :meth:`VideoEffectsGraph.process_frame` returns.
        dropped: Frames before it that were dropped since the last one.
    """

    pts: float
    result: Any
    dropped: int


class VideoStats(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a graph.

    Attributes:
        frames: Processed.
        dropped: Came too late, and were not processed.
        losses: Contexts that frames were in when they were lost.
        milliseconds: Of each effect, in the last frame that was measured.
    """

    frames: int
    dropped: int
    losses: int
    milliseconds: dict[str, float]


class VideoEffectsGraph(Asked):
    """Applies effects to frames, one by one. A lost device costs no frame: it is processed again, with its past.

    ::

        graph = cb.VideoEffectsGraph(
            gpu,
            {
                "soft": effects.blur(9, "video"),
                "lines": effects.edge("video"),
                "both": effects.merge("soft", "lines"),
            },
            inputs=("video",),
        )
        shown = await graph.process_frame(frame)

    All that is between the input and the results stays on the device, also the past frames of temporal effects. Frames
    are processed in the order of the calls; several may be under way.

    Args:
        device: Open.
        effects: By name, in any order, or a sequence, each of which takes the result of the one before.
        inputs: Names of the frames that come in together.
        output: Name of the result, or a tuple of names, for a dict of results; None: the last effect.
        measure_every: Every so many frames, effects run one by one, and the time of each is taken.
        clock: Tells the time; for tests.

    Class attributes:
        ProcessFrame, UpdateEffects: The messages that :meth:`ask` takes.

    Raises:
        TypeError, ValueError: An argument does not fit, an input is unknown, or effects take each other in a circle.
    """

    ProcessFrame: ClassVar = messages.ProcessFrame
    UpdateEffects: ClassVar = messages.UpdateEffects

    def __init__(
        self,
        device: Device,
        effects: Mapping[str, Effect] | Sequence[Effect],
        *,
        inputs: tuple[str, ...] = ("input",),
        output: str | tuple[str, ...] | None = None,
        measure_every: int = 100,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(device)
        given: Any = inputs
        if isinstance(given, str) or not inputs or len(set(inputs)) < len(inputs):
            raise ValueError(f"inputs is {inputs!r:.80}; pass a tuple of different names, at least one")
        self._clock = clock or LoopClock()
        self._several = isinstance(output, tuple)
        self._outputs = output if isinstance(output, tuple) else () if output is None else (output,)
        self._plan = Plan(named(effects), inputs, self._outputs)
        self._every = count("measure_every", measure_every)
        self._turn = asyncio.Lock()
        self._copies = Recycled()
        self._past: Past = {}
        self._recent: deque[tuple[Plan, Frames]] = deque(maxlen=self._plan.depth)
        self._generation = device.generation
        self._frames = self._dropped = self._losses = 0
        self._times: dict[str, float] = {}

    async def process_frame(self, frame: Any) -> Any:
        """Apply all effects to a frame.

        Args:
            frame: An array ``[h, w]`` or ``[h, w, c]`` of the host; a mapping of them if there are several inputs.

        Returns:
            The result on the host, or a dict of results.

        Raises:
            TypeError, ShapeError, ValueError: It is no frame, or an effect does not take it. It counts as not passed.
        """
        frames = self._arrays(frame)
        async with self._turn:
            plan = self._plan
            before = tuple(self._recent)
            if self._generation != self._device.generation:
                self._again(before)
            past, found = dict(self._past), {}
            self._frames += 1
            measured = self._frames % self._every == min(2, self._every - 1)
            try:
                at = self._clock.time()
                for name, ref in plan.nodes(self._device, self._put(plan, frames), past):
                    found[name] = ref
                    if measured:
                        await ref
                        now = self._clock.time()
                        if name in plan.effects:
                            self._times[name] = (now - at) * 1e3
                        at = now
            except ContextLost:
                found = {}
            except BaseException:  # a frame that is cancelled counts as not passed, too
                self._frames -= 1
                raise
            self._past = past
            self._recent.append((plan, frames))
            replies = self._fetched(plan, found) if found else []
        return self._result(plan, await self._arrived(replies, (*before, (plan, frames))))

    async def _arrived(self, replies: list[Any], frames: tuple[tuple[Plan, Frames], ...]) -> list[NDArray[Any]]:
        """The results, of another context if this one is lost."""
        for attempt in range(ATTEMPTS):
            try:
                if replies:
                    return [np.asarray(await reply) for reply in replies]
            except ContextLost:
                if attempt == ATTEMPTS - 1:
                    raise
            self._losses += 1
            await self._device.ready()
            past: Past = {}
            try:
                made = [
                    (plan, dict(plan.nodes(self._device, self._put(plan, arrays), past))) for plan, arrays in frames
                ]
                plan, found = made[-1]
                replies = self._fetched(plan, found)
            except ContextLost:
                replies = []
        raise ContextLost(f"the context was lost {ATTEMPTS} times in one frame")

    def _again(self, before: tuple[tuple[Plan, Frames], ...]) -> None:
        """Make the past again in another context."""
        self._generation, self._past = self._device.generation, {}
        for plan, arrays in before:
            for _ in plan.nodes(self._device, self._put(plan, arrays), self._past):
                pass

    def _put(self, plan: Plan, frames: Frames) -> dict[str, GpuRef]:
        put = partial(lent, self._device) if plan.lends else self._device.put
        return {name: put(array) for name, array in frames.items()}

    def _fetched(self, plan: Plan, found: dict[str, GpuRef]) -> list[Awaitable[NDArray[Any]]]:
        """Arrays that the caller may write to: of what other effects take, a copy."""
        lends = [plan.lends and name not in plan.kept for name in plan.outputs]
        refs = [found[name] for name in plan.outputs]
        return [fetched(self._device, ref) if one else ref.get() for ref, one in zip(refs, lends, strict=True)]

    def _arrays(self, frame: Any) -> Frames:
        given = self._plan.given
        if not isinstance(frame, Mapping):
            frame = {given[0]: frame}
        if set(frame) != set(given):
            raise ValueError(f"frame has {', '.join(map(repr, frame))}; pass one for each of {', '.join(given)}")
        return {name: self._copies.copy(frame[name]) for name in given}  # the caller may write the next one into it

    def _result(self, plan: Plan, found: list[NDArray[Any]]) -> Any:
        return dict(zip(plan.outputs, found, strict=True)) if self._several else found[0]

    def update_effects(self, effects: Mapping[str, Effect | None] | Sequence[Effect]) -> None:
        """Go on with other effects, from the next frame; past frames are kept.

        Args:
            effects: A mapping replaces or adds effects by name, and None takes one away. A sequence replaces all.

        Raises:
            TypeError, ValueError: They make no graph; nothing is changed.
        """
        if isinstance(effects, Mapping):
            merged = {**self._plan.effects, **effects}
            new = {name: one for name, one in merged.items() if one is not None}
        else:
            new = named(effects)
        plan = Plan(new, self._plan.given, self._outputs)
        self._recent = deque(self._recent, maxlen=max(plan.depth, self._recent.maxlen or 0))
        self._plan = plan

    async def run(
        self, frames: Iterable[Any] | AsyncIterable[Any], *, fps: float | None = None
    ) -> AsyncGenerator[VideoFrame, None]:
        """Process pairs of ``pts`` in seconds and a frame, each when it is due.

        Args:
            frames: In the order of ``pts``; see :func:`.read_video` and :func:`.synced`.
            fps: Frames that are late by more than one of its periods are dropped, and temporal effects do not see them;
                None: every frame is processed, as soon as possible.
        """
        period = None if fps is None else 1 / number("fps", fps, above=0.0)
        began = math.nan  # until the first frame
        dropped = 0
        async for pts, frame in each(frames):
            if period is not None:
                now = self._clock.time()
                began = now - pts if math.isnan(began) else began
                late = now - began - pts
                if late > period:
                    dropped += 1
                    self._dropped += 1
                    continue
                if late < 0:
                    await sleep(self._clock, -late)
            yield VideoFrame(pts, await self.process_frame(frame), dropped)
            dropped = 0

    def stats(self) -> VideoStats:
        """Figures since the start."""
        return VideoStats(
            frames=self._frames, dropped=self._dropped, losses=self._losses, milliseconds=dict(self._times)
        )

    @messages.ProcessFrame.handles
    async def _on_frame(self, m: messages.ProcessFrame) -> Any:
        return await self.process_frame(m.frame)

    @messages.UpdateEffects.handles
    async def _on_update(self, m: messages.UpdateEffects) -> None:
        self.update_effects(m.effects)
