"""Draws of random numbers around a loss, and their expected values."""

from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.kernel.rng import RngFillGamma
from callboard.kernel.rng.streams import KINDS, RngOrdering

STREAMS = [
    *((kind, "default") for kind in KINDS),
    *((kind.name, ordering) for kind in KINDS.values() for ordering in kind.orders),
]
"""Every generator, in every order that it has."""


def draws(device: cb.Device, kind: str, ordering: RngOrdering) -> tuple[Any, list[Callable[[], cb.GpuRef]]]:
    """A generator, and what it is asked for in turn."""
    g = device.rng.generator(kind, seed=3 if KINDS[kind].seeded else 0, ordering=ordering)
    turns = [
        lambda: g.uniform(1001),
        lambda: g.normal(7, dtype="f64"),
        lambda: g.bits(15),
        lambda: g.log_normal(5),
        lambda: g.exponential(3, dtype="f64"),
        lambda: g.cauchy(6),
    ]
    if kind in RngFillGamma.kinds:
        turns += [
            lambda: g.gamma(2.0, size=11),
            lambda: g.beta(0.5, 2.0, 4, dtype="f64"),
            lambda: g.poisson(40.0, 9),
            lambda: g.integers(0, 10**6, 13),
            lambda: g.discrete(device.put(np.array([1.0, 2.0, 5.0])), 8),
            lambda: g.permutation(9),
        ]
    return g, [*turns, *turns]


async def check_they_go_on(
    device: cb.Device, kind: str, ordering: RngOrdering, lose: Callable[[], Awaitable[Any]]
) -> None:
    """Draw everything; then again, losing the context behind the second draw, and asking for the third once more."""
    _, turns = draws(device, kind, ordering)
    want = [await turn().get() for turn in turns]
    g, turns = draws(device, kind, ordering)
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
