"""A host that is lost in the middle of a sequence: the numbers go on as if it had not been."""

import os
import signal

import numpy as np
import pytest
from tests.faults.draws import STREAMS, check_they_go_on
from tests.faults.load import lost_and_recovered

import callboard as cb
from callboard.kernel.rng.streams import LARGEST_DISCARD, RngOrdering

pytestmark = [pytest.mark.fault, pytest.mark.leaves_nothing]


def kill(device: cb.Device) -> None:
    pid = device.health().host_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind, ordering", STREAMS)
async def test_numbers_go_on_behind_a_lost_host(kind: str, ordering: RngOrdering) -> None:
    async with cb.device("cpu", isolation="process", standby=None, max_restarts=None) as device:
        await check_they_go_on(device, kind, ordering, lambda: lost_and_recovered(device, lambda: kill(device)))


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
