"""Chains that come again: replayed as one, with the results, failures and frees of ops that are called one by one."""

import asyncio
import os
import signal
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import callboard as cb
from callboard.core.errors import UnsupportedOp
from callboard.device.client.graphs.chains import LEAST, WORTH
from callboard.device.host.context.admission.graphs.replay import RecordedStep

Array = np.ndarray[Any, Any]
WAIT = 60.0


def layers(dev: Any, x: Any, ws: list[Any], alpha: float = 1.0) -> Any:
    for w in ws:
        x = dev.tensor.permutation(dev.blas.gemm(x, w, alpha=alpha), "ij", "ij", op_a="relu")
    return x


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype("f8")


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_a_chain_that_comes_again_is_one_call(isolation: Any) -> None:
    async with cb.device("cpu", isolation=isolation, auto_record=True, standby=None) as dev:
        ws = [dev.put(drawn(6, 6, seed=i)) for i in range(3)]
        inputs = [drawn(4, 6, seed=10 + i) for i in range(8)]
        await dev.drain()
        for times, x in enumerate(inputs):
            want = x
            for w in range(3):
                want = np.maximum(want @ drawn(6, 6, seed=w), 0)
            given = await dev.put(x)
            y = layers(dev, given, ws)
            assert np.array_equal(await y.get(), want)
            await dev.drain()  # also what makes the chain ready
            stats = await dev.stats()
            assert stats.recorded == 5 * max(0, times + 1 - WORTH), "the six ops of each further chain are one call"
        assert stats.plans["graph"].entries == 1
        assert stats.buffers <= 3 + 2 + 2, "what is dropped is freed"


async def test_other_numbers_and_other_shapes_are_other_chains() -> None:
    """Also a 0 of the other sign, which is equal to the other one."""
    async with cb.device("cpu", auto_record=True) as dev:
        x, y, ws = dev.put(drawn(2, 4)), dev.put(drawn(3, 4)), [dev.put(drawn(4, 4, seed=i)) for i in (1, 2)]
        await dev.drain()
        for _ in range(WORTH + 2):
            for alpha in (1.0, 2.0, 0.0, -0.0):
                for given, value in ((x, drawn(2, 4)), (y, drawn(3, 4))):
                    got = await layers(dev, given, ws, alpha).get()
                    want = value
                    for seed in (1, 2):
                        want = np.maximum(alpha * (want @ drawn(4, 4, seed=seed)), 0)
                    assert np.array_equal(got, want)
                    scaled = [dev.copy(given)]
                    for _ in range(LEAST):
                        scaled.append(dev.copy(scaled[-1]))
                        dev.blas.scal(scaled[-1].reshape(-1), alpha=alpha)
                    signs = np.signbit(await scaled[-1].get())
                    steps = value
                    for _ in range(LEAST):
                        steps = alpha * steps
                    assert np.array_equal(signs, np.signbit(steps))
        assert (await dev.stats()).recorded


STEPS = st.lists(
    st.tuples(st.sampled_from(["product", "add", "copy", "fill", "drop"]), st.integers(0, 7), st.integers(0, 7)),
    min_size=LEAST,
    max_size=10,
)


def run(dev: Any, steps: list[tuple[str, int, int]], slots: list[Any]) -> list[Any]:
    """The steps on refs; a result takes a slot's place, or is appended."""
    for kind, i, j in steps:
        a, b = slots[i % len(slots)], slots[j % len(slots)]
        if kind == "product":
            slots.append(dev.blas.gemm(a, b))
        elif kind == "add" and a is not b:
            dev.elementwise.map("clip(x + y, -9, 9)", x=a, y=b, out=b)
        elif kind == "copy":
            slots[j % len(slots)] = dev.copy(a.T)
        elif kind == "fill":
            dev.fill(b[:1], i - 3)
        elif len(slots) > 2:
            slots.pop(j % len(slots))
    return slots


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, seed=st.integers(0, 9))
def test_chains_do_what_their_ops_do(steps: list[tuple[str, int, int]], seed: int) -> None:
    """Arrays from outside that are written, arrays that are dropped and freed in between, views, whatever comes."""

    async def results(auto: bool) -> list[Array]:
        got: list[Array] = []
        async with cb.device("cpu", auto_record=auto) as dev:
            kept = [dev.put(drawn(3, 3, seed=seed + k)) for k in range(2)]
            await dev.drain()
            for _ in range(WORTH + 3):
                got += [await ref.get() for ref in run(dev, steps, kept.copy())]
        return got

    for a, b in zip(asyncio.run(results(True)), asyncio.run(results(False)), strict=True):
        assert np.array_equal(a, b, equal_nan=True)


TEXT = 'extern "C" __global__ void checked(const double *x, double *y, int n) {}'


@cb.kernel("in x: f64[n], out y: f64[n], n: i32", cuda=TEXT)
def checked(x: Array, y: Array) -> None:
    if x[0] < 0:
        raise ValueError("negative")
    y[...] = x + 1


async def test_a_chain_fails_as_one() -> None:
    async with cb.device("cpu", auto_record=True) as dev:

        def chain(x: Any) -> list[Any]:
            return [x, *(x := checked(x) for _ in range(LEAST + 1))][1:]

        for times in range(WORTH + 4):
            bad = times == WORTH + 2
            x = await dev.put(np.full(3, -1.0 if bad else 1.0))
            refs = chain(x)
            if not bad:
                assert (await refs[-1].get())[0] == LEAST + 2
                await dev.drain()
                continue
            for ref in refs:
                with pytest.raises(cb.LibraryError, match="negative") as failed:
                    await ref
                assert "step 1 of 5 of a recording: nvrtc.launch" in "".join(failed.value.__notes__)
        assert (await dev.stats()).recorded == LEAST * 4


async def test_what_the_host_cannot_record_is_called_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def unfit(step: RecordedStep, operands: Any) -> UnsupportedOp:
        return UnsupportedOp("not here")

    monkeypatch.setattr(RecordedStep, "unfit", unfit)
    async with cb.device("cpu", isolation="thread", auto_record=True) as dev:
        x, ws = dev.put(drawn(4, 4)), [dev.put(drawn(4, 4, seed=1))] * 3
        want = await layers(dev, x, ws).get()
        for _ in range(WORTH + 3):
            assert np.array_equal(await layers(dev, x, ws).get(), want)
        assert (await dev.stats()).recorded == 0


async def test_a_cancelled_op_is_in_no_chain() -> None:
    async with cb.device("cpu", auto_record=True) as dev:
        x = await dev.put(np.ones((2, 2)))
        for _ in range(WORTH + 2):
            refs = [dev.copy(x) for _ in range(LEAST)]
            await dev.drain()
        before = (await dev.stats()).recorded
        assert before
        refs = [dev.copy(x) for _ in range(LEAST)]
        assert refs[1].cancel()
        assert (await refs[-1].get()).tolist() == [[1, 1], [1, 1]]
        assert (await dev.stats()).recorded == before


async def test_chains_go_on_in_the_next_context() -> None:
    async with cb.device("cpu", isolation="process", auto_record=True, standby=None) as dev:
        for generation in range(2):
            x, ws = dev.put(drawn(4, 4)), [dev.put(drawn(4, 4, seed=1))] * 3
            await dev.drain()
            before = (await dev.stats()).recorded
            for _ in range(WORTH + 2):
                await layers(dev, x, ws).get()
                await dev.drain()
            assert (await dev.stats()).recorded - before == 5 * (WORTH + 2 if generation else 2)
            if not generation:
                refs = [layers(dev, x, ws) for _ in range(2)]
                seen, pid = dev.generation, dev.health().host_pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                async with asyncio.timeout(WAIT):
                    await dev.watch_generation().changed(seen)
                for ref in refs:
                    with pytest.raises(cb.ContextLost):
                        await dev.copy(ref)


async def test_what_a_chain_reads_may_be_dropped_while_it_is_recorded() -> None:
    """It is made ready before the run that frees what it has read."""
    async with cb.device("cpu", auto_record=True) as dev:
        ws = [dev.put(drawn(4, 4, seed=1))] * 3
        for _ in range(WORTH + 2):
            await layers(dev, await dev.put(drawn(4, 4)), ws).get()
            await dev.drain()
        assert (await dev.stats()).recorded == 5 * 2


async def test_it_is_off_unless_it_is_asked_for() -> None:
    async with cb.device("cpu") as dev:
        x = await dev.put(np.ones(3))
        for _ in range(WORTH + 2):
            await [dev.copy(x) for _ in range(LEAST)][-1]
        stats = await dev.stats()
        assert stats.recorded == 0
        assert "graph" not in stats.plans


def test_calls_of_another_thread_are_sent_together_and_in_time() -> None:
    """When one of them is awaited, or a moment later."""
    with cb.sync.device("cpu", auto_record=True) as dev:
        x, ws = dev.put(drawn(4, 4)), [dev.put(drawn(4, 4, seed=1))] * 3
        dev.drain()
        want = drawn(4, 4)
        for _ in range(3):
            want = np.maximum(want @ drawn(4, 4, seed=1), 0)
        for _ in range(WORTH + 2):
            assert np.array_equal(layers(dev, x, ws).get(), want)
            dev.drain()
        sent = threading.Event()
        kept = dev.copy(x)
        kept.when_done(sent.set)
        assert sent.wait(WAIT), "though nothing awaits it"


@pytest.mark.parametrize("keep", [0, 1, 3])
async def test_chains_find_their_memory_again(keep: int) -> None:
    """Graphs hold addresses: the same few sets come again and again, whatever the application keeps for a while."""
    async with cb.device("cpu", auto_record=True) as dev:
        ws, kept = [dev.put(drawn(4, 4, seed=1))] * 3, []
        await dev.drain()
        for _ in range(60):
            kept.append(layers(dev, await dev.put(drawn(4, 4)), ws))
            await kept[-1].get()
            del kept[: len(kept) - keep]
            await dev.drain()
        (chain,) = dev._port.chains._chains.values()
        stats = await dev._recording_stats(chain.handle.id)
        assert stats.updated == 0
        assert stats.launches >= 40
