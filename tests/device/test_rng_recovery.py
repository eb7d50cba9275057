"""A host that is lost in the middle of a sequence: the numbers go on as if it had not been."""

import os
import signal
from typing import Any

import numpy as np
import pytest
from tests.faults.load import lost_and_recovered

import callboard as cb
from callboard.kernel.rng.streams import LARGEST_DISCARD

pytestmark = [pytest.mark.fault, pytest.mark.leaves_nothing]


def kill(device: cb.Device) -> None:
    pid = device.health().host_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def draws(device: cb.Device, kind: str) -> tuple[Any, list[Any]]:
    """A generator, and what it is asked for in turn."""
    g = device.rng.generator(kind, seed=3)
    turns = [lambda: g.uniform(1001), lambda: g.normal(7, dtype="f64"), lambda: g.bits(15, dtype="u64")]
    if kind.startswith("philox"):
        turns += [lambda: g.gamma(2.0, size=11), lambda: g.integers(0, 10**6, 13), lambda: g.permutation(9)]
    return g, [*turns, *turns]


@pytest.mark.parametrize("kind", ["philox", "philox64", "xorwow", "mrg32k3a", "mt19937", "scrambled_sobol64"])
async def test_numbers_go_on_behind_a_lost_host(kind: str) -> None:
    async with cb.device("cpu", isolation="thread") as other:
        _, turns = draws(other, kind)
        want = [await turn().get() for turn in turns]
    async with cb.device("cpu", isolation="process", standby=None, max_restarts=None) as device:
        g, turns = draws(device, kind)
        got = [await turn().get() for turn in turns[:2]]
        before = g.position
        lost = turns[2]()
        await lost_and_recovered(device, lambda: kill(device))
        with pytest.raises(cb.ContextLost):
            await lost.get()
        g.position = before  # asks for the lost numbers again
        got += [await turn().get() for turn in turns[2:]]
    for x, y in zip(got, want, strict=True):
        np.testing.assert_array_equal(x, y)


async def test_what_cannot_skip_refuses_far_places() -> None:
    async with cb.device("cpu", isolation="thread") as device:
        g = device.rng.mt19937(1)
        first = await g.bits(10).get()
        g.skip(LARGEST_DISCARD + 1)
        with pytest.raises(cb.UnsupportedOp, match=r"mt19937 cannot skip, and position .* use philox, or another seed"):
            await g.bits(10)
        g.position = 3
        np.testing.assert_array_equal(await g.bits(7).get(), first[3:])


def test_blocking_generators() -> None:
    from callboard import sync

    with sync.device("cpu", isolation="thread") as device:
        g = device.rng.philox(1)
        x = g.normal((2, 3)).get()
        g.position = 0
        np.testing.assert_array_equal(g.normal((2, 3)).get(), x)
