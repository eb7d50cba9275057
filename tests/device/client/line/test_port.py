"""The op line of an open device: effects of the order of calls and frees."""

import numpy as np
import pytest

import callboard as cb


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_buffers_behind_pipelined_gets_of_empty_arrays_are_freed(isolation: str) -> None:
    """Each is copied on the device, to an array without a name: its free must not come before the copy."""
    async with cb.device("cpu", isolation=isolation, standby=None) as dev:
        empty = dev.put(np.ones((0, 3), np.float32))
        await empty
        before = (await dev.stats()).buffers
        replies = [empty.get() for _ in range(8)]
        assert [(await reply).shape for reply in replies] == [(0, 3)] * 8
        del replies
        assert (await dev.stats()).buffers == before
