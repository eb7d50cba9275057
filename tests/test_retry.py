"""``retrying``: pauses with a random source and a sleep of the test's own, and when it gives up early."""

import asyncio
import contextlib
import ctypes
import sys
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import callboard as cb
from callboard.core.errors import Suspect

BOUND = 20
HERE = Suspect("blas", "blas.gemm", None, "app.py:7")
ELSEWHERE = Suspect("fft", "fft.fft", None, "app.py:9")
MINE = Suspect("blas", "blas.gemm", "r1", "app.py:7")
ANOTHERS = Suspect("blas", "blas.gemm", "r2", "app.py:7")


def during_a_setup(generation: int) -> cb.ContextPoisoned:
    error = lost(generation, HERE, [HERE])
    error.starting = ("model-1",)
    return error


def lost(generation: int, call: Suspect | None, suspects: Sequence[Suspect]) -> cb.ContextPoisoned:
    error = cb.ContextPoisoned(f"generation {generation} is lost", suspects)
    error.device, error.generation, error.call = "cpu:0", generation, call
    return error


def calls_until_it_ends(errors: Sequence[BaseException], attempts: int) -> tuple[int, BaseException | None]:
    """How often a function is called whose attempts fail with these errors, then succeed; and the error of the last."""
    calls = count()
    coming = iter(errors)

    @cb.retrying(cb.ContextLost, attempts=attempts, delay=0.0)
    async def request() -> None:
        next(calls)
        for error in coming:
            raise error

    found: BaseException | None = None
    try:
        asyncio.run(request())
    except cb.AccelError as e:
        found = e
    return next(calls), found


# -- pauses ------------------------------------------------------------------------------------------------------------


@given(
    delay=st.floats(0, 1e6),
    more=st.floats(0, 1e6),
    draws=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=12),
)
def test_pauses_are_drawn_below_a_bound_that_doubles(delay: float, more: float, draws: list[float]) -> None:
    slept: list[float] = []
    coming = iter(draws)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    @cb.retrying(
        ConnectionError,
        attempts=len(draws) + 1,
        delay=delay,
        max_delay=delay + more,
        sleep=sleep,
        random=lambda: next(coming),
    )
    async def request() -> None:
        raise ConnectionError

    with contextlib.suppress(ConnectionError):
        asyncio.run(request())
    bounds = [min(delay + more, delay * 2**n) for n in range(len(draws))]
    assert slept == [pause for pause in map(float.__mul__, draws, bounds) if pause]
    assert next(coming, None) is None
    assert all(0 < pause <= delay + more for pause in slept)


async def test_the_defaults_and_a_great_number_of_attempts() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    @cb.retrying(ConnectionError, attempts=1200, sleep=sleep, random=lambda: 0.5)
    async def request() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError) as caught:
        await request()
    assert slept[:8] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
    assert set(slept[7:]) == {5.0}
    assert len(slept) == 1199
    assert caught.value.__notes__ == ["attempt 1200 of 1200"]


async def test_a_success_and_another_error_end_it_without_a_pause() -> None:
    async def sleep(seconds: float) -> None:
        raise AssertionError("it was not to pause")

    @cb.retrying(cb.ContextLost, attempts=5, sleep=sleep)
    async def request(error: BaseException | None) -> int:
        if error is not None:
            raise error
        return 3

    assert await request(None) == 3
    with pytest.raises(cb.ShapeError):
        await request(cb.ShapeError("no"))


@pytest.mark.parametrize(
    "delays", [(-1.0, 1.0), (2.0, 1.0), (float("nan"), 1.0), (1.0, float("nan")), (1.0, float("inf"))]
)
def test_delays_out_of_range(delays: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="0 <= delay <= max_delay"):
        cb.retrying(cb.ContextLost, delay=delays[0], max_delay=delays[1])


# -- suspects ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mine, known", [(MINE, "request r1"), (HERE, "the call at app.py:7")])
def test_a_suspect_of_two_losses_in_a_row_is_not_tried_again(mine: Suspect, known: str) -> None:
    errors = [lost(n, mine, [ELSEWHERE, mine]) for n in range(9)]
    calls, error = calls_until_it_ends(errors, 9)
    assert calls == 2
    assert error is errors[1]
    assert error.__notes__ == [
        "attempt 2 of 9",
        f"not tried again: {known} was in flight at two losses of the context in a row, and may be what causes them",
    ]


@pytest.mark.parametrize(
    "errors",
    {
        "never a suspect": [lost(n, HERE, [ELSEWHERE]) for n in range(4)],
        "another request at the same place": [lost(n, MINE, [ANOTHERS]) for n in range(4)],
        "not in a row": [lost(n, HERE, [HERE] if n % 2 else [ELSEWHERE]) for n in range(4)],
        "one loss seen twice": [lost(1, HERE, [HERE]), lost(1, HERE, [HERE])],
        "a stale ref in between": [lost(1, HERE, [HERE]), cb.GpuRefStale("old", "context rebuilt")],
        "a key of its own each time": [lost(n, MINE._replace(request_key=f"r{n}"), [MINE]) for n in range(4)],
        "a setup was in progress": [during_a_setup(n) for n in range(4)],
        "no call, no key": [lost(n, None, [HERE]) for n in range(4)],
    }.items(),
    ids=lambda item: item[0],
)
def test_others_are_tried_again(errors: tuple[str, list[BaseException]]) -> None:
    assert calls_until_it_ends(errors[1], 9) == (len(errors[1]) + 1, None)


def test_a_stale_ref_between_two_losses_does_not_part_them() -> None:
    errors = [lost(1, HERE, [HERE]), cb.GpuRefStale("old", "context rebuilt"), lost(2, HERE, [HERE]), lost(3, HERE, [])]
    assert calls_until_it_ends(errors, 9) == (3, errors[2])


async def test_a_loss_that_came_by_no_op_counts_for_the_key_around_the_call() -> None:
    generations = count()

    @cb.retrying(cb.ContextLost, attempts=9, delay=0.0)
    async def request() -> None:
        raise lost(next(generations), None, [MINE])

    with cb.request_key("r1"), pytest.raises(cb.ContextPoisoned):
        await request()
    assert next(generations) == 2


# -- a device ----------------------------------------------------------------------------------------------------------


class Fragile(cb.ResidentActor):
    """Crashes the context host when it is told to."""

    def work(self, crash: bool) -> int:
        if crash:
            ctypes.string_at(0)
        return 1


@pytest.mark.fault
@pytest.mark.leaves_nothing
@pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only")
@pytest.mark.parametrize("key", ["request-17", None])
@pytest.mark.few(1)
async def test_a_poisonous_request_does_not_use_up_the_restart_budget(key: str | None) -> None:
    async with cb.device("cpu", isolation="process", standby=None, max_restarts=3) as dev:
        fragile = dev.actor_of(cb.Props(Fragile), name="fragile")

        @cb.retrying(cb.ContextLost, attempts=10, delay=0.0)
        async def request(crash: bool) -> Any:
            return await fragile.call(Fragile.work, crash)

        keyed: Callable[[], contextlib.AbstractContextManager[None]]
        keyed = (lambda: cb.request_key(key)) if key else contextlib.nullcontext
        async with asyncio.timeout(BOUND):
            with keyed(), pytest.raises(cb.ContextPoisoned) as caught:
                await request(True)
            assert caught.value.call in caught.value.suspects
            assert caught.value.call is not None
            assert caught.value.call.request_key == key
            assert caught.value.call.where.startswith(f"{__file__}:")
            named = f"request {key}" if key else f"the call at {caught.value.call.where}"
            notes = caught.value.__notes__
            assert "attempt 2 of 10" in notes
            assert any(note.startswith(f"not tried again: {named} was in flight at two losses") for note in notes)
            assert await request(False) == 1  # the device goes on
            np.testing.assert_array_equal(await dev.put(np.ones(3)).get(), np.ones(3))
        assert dev.health().restarts == 2
