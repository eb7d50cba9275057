"""Streams of pairs of ``pts`` and a frame."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from typing import Any

__all__ = ["each", "synced"]


async def each(items: Iterable[Any] | AsyncIterable[Any]) -> AsyncGenerator[Any, None]:
    """Items of either kind of iterable."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


async def synced(
    streams: Mapping[str, Iterable[Any] | AsyncIterable[Any]],
) -> AsyncGenerator[tuple[float, dict[str, Any]], None]:
    """Frames of several streams that are shown at the same time, by the ``pts`` of the first stream.

    Each frame of the first stream comes with the last one of each other stream whose ``pts`` is not greater. Frames
    before all streams have begun are left out. A stream that has ended goes on with its last frame.

    Args:
        streams: Pairs of ``pts`` and a frame, in the order of ``pts``, by names of inputs.
    """
    first, *others = streams
    iterators = {name: each(streams[name]) for name in others}
    ahead = {name: await anext(iterator, None) for name, iterator in iterators.items()}
    frames: dict[str, Any] = {}
    async for pts, frame in each(streams[first]):
        for name, iterator in iterators.items():
            while (item := ahead[name]) is not None and item[0] <= pts:
                frames[name] = item[1]
                ahead[name] = await anext(iterator, None)
        if len(frames) == len(others):
            yield pts, {first: frame, **frames}
