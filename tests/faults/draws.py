"""Draws of random numbers around a loss: what they are, and what they must be."""

from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

import callboard as cb

KINDS = ("philox", "philox64", "xorwow", "mrg32k3a", "mt19937", "mtgp32", "scrambled_sobol64")


def draws(device: cb.Device, kind: str) -> tuple[Any, list[Callable[[], cb.GpuRef]]]:
    """A generator, and what it is asked for in turn."""
    g = device.rng.generator(kind, seed=3)
    turns = [lambda: g.uniform(1001), lambda: g.normal(7, dtype="f64"), lambda: g.bits(15, dtype="u64")]
    if kind.startswith("philox"):
        turns += [lambda: g.gamma(2.0, size=11), lambda: g.integers(0, 10**6, 13), lambda: g.permutation(9)]
    return g, [*turns, *turns]


async def check_they_go_on(device: cb.Device, kind: str, lose: Callable[[], Awaitable[Any]]) -> None:
    """Draw everything; then again, losing the context behind the second draw, and asking for the third once more."""
    _, turns = draws(device, kind)
    want = [await turn().get() for turn in turns]
    g, turns = draws(device, kind)
    got = [await turn().get() for turn in turns[:2]]
    before = g.position
    owed = turns[2]()
    await lose()
    with pytest.raises(cb.ContextLost):
        await owed.get()
    g.position = before
    got += [await turn().get() for turn in turns[2:]]
    for x, y in zip(got, want, strict=True):
        np.testing.assert_array_equal(x, y)
