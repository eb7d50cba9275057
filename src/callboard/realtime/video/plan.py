"""``Plan``: the effects of a graph at one time, checked and in order."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from callboard.core.ref.handle import GpuRef
from callboard.device.client.handle import Device
from callboard.realtime.base.dag import ordered
from callboard.realtime.video.effects import Effect, Own

__all__ = ["Past", "Plan", "named"]

Past = dict[str, tuple[GpuRef, ...]]
"""Results of a node or input, the newest first, from which temporal nodes take past frames."""


class Plan:
    """Effects in an order in which each comes after what it takes. It never changes.

    Args:
        effects: By name.
        given: Names of the graph's inputs.
        outputs: Names of results; none: that of the last effect.

    Attributes:
        depth: Frames before a frame on which its results depend.
        kept: How many past frames are needed of each name that an effect takes.
        lends: The device may compute in memory of the caller and give results in its own: no function of an
            application gets at the refs.

    Raises:
        TypeError, ValueError: An effect is none, an input is unknown, effects take each other, or there are none.
    """

    def __init__(self, effects: Mapping[str, Effect], given: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        if not effects:
            raise ValueError("effects is empty; pass at least one")
        before = given[0]
        self.effects: dict[str, Effect] = {}
        for name, effect in effects.items():
            if not isinstance(effect, Effect):
                raise TypeError(f"effect {name!r} is {effect!r:.80}; pass an Effect, such as effects.blur()")
            self.effects[name] = effect if effect.inputs else msgspec.structs.replace(effect, inputs=(before,))
            before = name
        self.order = ordered("effect", {name: one.inputs for name, one in self.effects.items()}, given)
        self.outputs = outputs or (before,)
        unknown = [name for name in self.outputs if name not in self.effects]
        if unknown:
            known = ", ".join(map(repr, self.effects))
            raise ValueError(f"output {unknown[0]!r} is no effect; there are {known}")
        self.given = given
        self.kept: dict[str, int] = {}
        deep = dict.fromkeys(given, 0)
        for name in self.order:
            effect = self.effects[name]
            deep[name] = effect.past + max(deep[one] for one in effect.inputs)
            for one in effect.inputs:
                self.kept[one] = max(self.kept.get(one, 0), effect.past)
        self.depth = max(deep.values())
        self.lends = all(isinstance(one, Own) for one in self.effects.values())

    def nodes(self, device: Device, frames: Mapping[str, GpuRef], past: Past) -> Iterator[tuple[str, GpuRef]]:
        """Enqueue the effects on a frame, one with each iteration; gives names and results, also of the inputs.

        Args:
            frames: By the names of inputs.
            past: Before the frame. At the end of the iteration it is that after it.
        """
        found = dict(frames)
        yield from frames.items()
        for name in self.order:
            effect = self.effects[name]
            args: list[Any] = [found[one] for one in effect.inputs]
            if effect.past:
                args = [_back(found[one], past.get(one, ()), effect.past) for one in effect.inputs]
            found[name] = effect.run(device, *args)
            if not isinstance(found[name], GpuRef):
                raise TypeError(f"effect {name!r} returned {found[name]!r:.80}; return a ref, without await")
            yield name, found[name]
        for name, many in self.kept.items():
            past[name] = (found[name], *past.get(name, ()))[:many]


def _back(now: GpuRef, before: tuple[GpuRef, ...], many: int) -> tuple[GpuRef, ...]:
    frames = (now, *before)[: many + 1]
    return (*frames, *[frames[-1]] * (many + 1 - len(frames)))


def named(effects: Mapping[str, Effect] | Sequence[Effect]) -> dict[str, Effect]:
    """A chain's effects have their places as names: ``"0"``, ``"1"``."""
    if isinstance(effects, Mapping):
        return dict(effects)
    return {str(n): effect for n, effect in enumerate(effects)}
