"""Policies that choose among the eligible devices. Pure."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from callboard.multi_device.placement.hints import Candidate, PlacementHints

__all__ = ["Chooser", "LeastLoaded", "Pack", "PlacementPolicy", "RoundRobin", "Spread", "chooser_of"]


class PlacementPolicy(StrEnum):
    """The policy that chooses a device. Members equal their texts."""

    ROUND_ROBIN = "round_robin"
    """The next one in turn that can take it."""
    LEAST_LOADED = "least_loaded"
    """The one with the fewest ops in flight and unreleased choices; among equals the one with most memory left."""
    PACK = "pack"
    """The one with the least memory left (best fit), so that others stay empty for large work."""
    SPREAD = "spread"
    """The one with the fewest unreleased choices; among equals the one with most memory left."""


class Chooser(Protocol):
    """Chooses one of several devices; a policy of the caller's is one, too."""

    def __call__(self, hints: PlacementHints, able: Sequence[Candidate]) -> Candidate:
        """Return one of ``able``, which is not empty and in the order in which the devices were added."""
        ...


class Ordered:
    """The first one by a key; among equals the one that was added first."""

    def __init__(self, key: Callable[[Candidate], tuple[int, int]]) -> None:
        self._key = key

    def __call__(self, hints: PlacementHints, able: Sequence[Candidate]) -> Candidate:
        return min(able, key=self._key)


RoundRobin = Ordered(lambda c: (c.turn, 0))
LeastLoaded = Ordered(lambda c: (c.in_flight + c.choices, c.reserved_bytes - c.free_bytes))
Pack = Ordered(lambda c: (c.free_bytes - c.reserved_bytes, -c.choices))
Spread = Ordered(lambda c: (c.choices, c.reserved_bytes - c.free_bytes))

CHOOSERS: dict[PlacementPolicy, Chooser] = {
    PlacementPolicy.ROUND_ROBIN: RoundRobin,
    PlacementPolicy.LEAST_LOADED: LeastLoaded,
    PlacementPolicy.PACK: Pack,
    PlacementPolicy.SPREAD: Spread,
}


def chooser_of(policy: "PlacementPolicy | str | Chooser") -> Chooser:
    """The function that implements a policy.

    Raises:
        TypeError: Neither a name nor a function.
        ValueError: There is no policy of this name.
    """
    if not isinstance(policy, str):
        return _checked(policy)
    try:
        known = PlacementPolicy(policy)
    except ValueError:
        names = ", ".join(repr(str(p)) for p in PlacementPolicy)
        raise ValueError(f"policy {policy!r}: use {names}, or pass a function") from None
    return CHOOSERS[known]


def _checked(policy: Chooser) -> Chooser:
    """A policy of the caller's, which may return what is none of the candidates."""
    if not callable(policy):
        raise TypeError(f"policy is {policy!r}; pass a name, or a function of the hints and the candidates")

    def choose(hints: PlacementHints, able: Sequence[Candidate]) -> Candidate:
        chosen = policy(hints, able)
        if not any(chosen is candidate for candidate in able):
            raise ValueError(f"the policy {policy!r} returned {chosen!r}; it has to return one of its candidates")
        return chosen

    return choose
