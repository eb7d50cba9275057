"""Experts as grouped products on a device: equal to a loop over the experts."""

import asyncio
import os
import signal
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from moe_lab import LIMIT, Block

import callboard as cb


def weights(block: Block) -> dict[str, Any]:
    """The block's matrices as ``GroupedExperts`` takes them."""
    up, down, gate = (each.transpose(0, 2, 1) for each in (block.w3, block.w2, block.w1))
    return {"up": up, "down": down, "gate": gate, "activation": "silu"}


def looped(block: Block, rows: Any, offsets: Any) -> Any:
    spans = pairwise(offsets)
    return np.concatenate([block.expert(e)(rows[begin:end]) for e, (begin, end) in enumerate(spans)])


OFFSETS = ([0, 3, 3, 4, 9], [0, 0, 0, 0, 9], [0, 9, 9, 9, 9])


async def test_groups_are_equal_to_a_loop_recorded_or_not() -> None:
    block = Block()
    rows = block.tokens(9)
    async with cb.device("cpu", isolation="thread") as dev, asyncio.timeout(LIMIT):
        grouped = cb.GroupedExperts(dev, **weights(block))
        x, offsets = dev.put(rows), dev.put(np.array(OFFSETS[0], "i4"))
        recording = dev.record(x=x, offsets=offsets)
        with recording:
            recording.returns(grouped(x, offsets))
        for each in OFFSETS:
            starts = dev.put(np.array(each, "i4"))
            direct = await grouped(x, starts).get()
            outs: Any = recording.replay(x=x, offsets=starts)
            replayed = await outs.get()
            np.testing.assert_allclose(direct, looped(block, rows, each), rtol=1e-4, atol=1e-5)
            assert np.array_equal(direct, replayed)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
async def test_two_matrices_in_each_dtype(activation: str) -> None:
    rng = np.random.default_rng(3)
    up, down = rng.standard_normal((3, 8, 6)), rng.standard_normal((3, 6, 5))
    rows, offsets = rng.standard_normal((7, 8)), np.array([0, 2, 6, 7])
    of_row = np.repeat(np.arange(3), np.diff(offsets))
    hidden = np.einsum("rk,rkn->rn", rows, up[of_row])
    if activation == "relu":
        hidden = np.maximum(hidden, 0)
    else:
        hidden = hidden / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (hidden + 0.044715 * hidden**3)))
    expected = np.einsum("rk,rkn->rn", hidden, down[of_row])
    async with cb.device("cpu", isolation="thread") as dev, asyncio.timeout(LIMIT):
        for dtype, tolerance in (("f8", 1e-12), ("f4", 1e-4), ("f2", 4e-2)):
            grouped = cb.GroupedExperts(dev, up.astype(dtype), down.astype(dtype), activation=activation)
            found = await grouped.run(offsets, rows)
            assert found.dtype == dtype
            np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("capacity", ["dropless", "drop", "reroute"])
async def test_a_router_of_them(capacity: Any) -> None:
    block = Block()
    tokens = block.tokens(50)
    async with cb.device("cpu", isolation="thread") as dev, asyncio.timeout(LIMIT):
        grouped = cb.GroupedExperts(dev, **weights(block))
        settings: Any = {"capacity": capacity, "capacity_factor": 0.9, "shared": [np.sin]}
        async with (
            cb.MoeRouter(block.gate, grouped, **settings) as router,
            cb.MoeRouter(block.gate, block.experts, **settings) as loop,
        ):
            for given in (tokens, tokens[:1], tokens[0], tokens[:0]):
                found, expected = await router.submit(given), await loop.submit(given)
                np.testing.assert_allclose(found.output, expected.output, rtol=1e-4, atol=1e-5)
                assert np.array_equal(found.load, expected.load)


@pytest.mark.fault
@pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only")
async def test_weights_are_copied_again_after_a_loss() -> None:
    block = Block()
    tokens = block.tokens(6)
    async with cb.device("cpu", isolation="process", standby=None) as dev, asyncio.timeout(LIMIT):
        grouped = cb.GroupedExperts(dev, **weights(block))
        async with cb.MoeRouter(block.gate, grouped) as router:
            before = (await router.submit(tokens)).output
            generation = dev.generation
            pid = dev.health().host_pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await dev.watch_generation().changed(generation)
            assert np.array_equal((await router.submit(tokens)).output, before)


async def test_what_does_not_fit_is_named() -> None:
    up, down = np.zeros((3, 8, 6), "f4"), np.zeros((3, 6, 8), "f4")
    async with cb.device("cpu", isolation="thread") as dev, asyncio.timeout(LIMIT):
        wrong: Any = (
            ({"up": up[0], "down": down}, r"up is \[8, 6\]"),
            ({"up": up, "down": down[:2]}, r"down is float32\[2, 6, 8\]"),
            ({"up": up, "down": down.astype("f8")}, "down is float64"),
            ({"up": up, "down": down, "gate": down}, r"gate is float32\[3, 6, 8\]"),
        )
        for given, says in wrong:
            with pytest.raises(ValueError, match=says):
                cb.GroupedExperts(dev, **given)
        with pytest.raises(cb.ShapeError, match="no activation"):
            cb.GroupedExperts(dev, up, down, activation="softplus")
        async with cb.MoeRouter(lambda x: x[:, :3], cb.GroupedExperts(dev, up, down)) as router:
            with pytest.raises(cb.ShapeError, match=r"f32\[8, 7\]") as raised:
                await router.submit(np.zeros((4, 7), "f4"))
            assert raised.value.__notes__ == ["raised by the grouped experts"]
