"""Failures in a batch, and the requests they affect."""

import asyncio
import math
import pickle
from typing import Any

import numpy as np
import pytest
from batching_lab import Model, lab, outcome, turns
from hypothesis import given
from hypothesis import strategies as st

import callboard as cb
from callboard.actors import ManualClock
from callboard.actors.errors import HandlerCancelled
from callboard.patterns.batching.results import copies, rows_of
from callboard.patterns.batching.server import DynamicBatchingServer
from callboard.patterns.requests.errors import BadBatchResult, DeadlineExceeded, QueueFull, ServerStopped


class Odd(Exception):
    """Its constructor takes something else than its args."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


@pytest.mark.parametrize(
    "result, expected, got",
    [
        (["x"], 2, 1),
        (["x"] * 3, 2, 3),
        ([], 2, 0),
        (np.zeros((3, 4)), 2, 3),
        (np.float64(1), 2, None),
        (np.array(1), 2, None),
        (None, 2, None),
        ("ab", 2, None),
        (b"ab", 2, None),
        ({"a": 1, "b": 2}, 2, None),
        ({1, 2}, 2, None),
        ((each for each in "ab"), 2, None),
    ],
)
async def test_a_result_of_another_shape_is_the_error_of_the_batch(
    clock: ManualClock, result: Any, expected: int, got: int | None
) -> None:
    async def wrong(items: list[str]) -> Any:
        return result if items[0] == "a" else items

    async with lab(wrong, clock, max_batch=2) as server:
        futures = [server.submit_nowait(item) for item in "abcd"]
        errors = [await outcome(future) for future in futures[:2]]
        assert [(type(error), error.expected, error.got) for error in errors] == [(BadBatchResult, expected, got)] * 2
        assert [await future for future in futures[2:]] == ["c", "d"]


@pytest.mark.parametrize("result", [("x", "y"), ["x", "y"], np.array(["x", "y"])])
def test_sequences_are_taken_apart(result: Any) -> None:
    assert rows_of(result, 2) == ["x", "y"]


def test_an_array_gives_its_rows() -> None:
    rows = rows_of(np.arange(6).reshape(2, 3), 2)
    assert [row.tolist() for row in rows] == [[0, 1, 2], [3, 4, 5]]


def test_rows_of_a_table_are_found_by_their_place() -> None:
    """Pandas' ``[]`` looks for a label: that of another row after sorting, or of a column."""

    class Sorted:
        iloc = ("x", "y")

        def __len__(self) -> int:
            return 2

        def __getitem__(self, label: int) -> str:
            return self.iloc[1 - label]

    assert rows_of(Sorted(), 2) == ["x", "y"]


async def test_an_exception_in_the_result_is_that_of_its_item(clock: ManualClock) -> None:
    same = ValueError("twice")

    async def some(items: list[int]) -> list[Any]:
        return [item, KeyError("own"), same, same, StopIteration(4)]

    item = "value"
    async with lab(some, clock) as server:
        found = await asyncio.gather(*(server.submit(item) for _ in range(5)), return_exceptions=True)
    assert found[0] == "value"
    assert [type(error) for error in found[1:]] == [KeyError, ValueError, ValueError, RuntimeError]
    assert found[2] is not found[3]
    assert isinstance(found[4].__cause__, StopIteration)


async def test_an_exception_of_the_batch_reaches_each_as_its_own(clock: ManualClock) -> None:
    async def broken(items: list[str]) -> list[str]:
        error = RuntimeError("broken")
        error.add_note("note")
        raise error

    async with lab(broken, clock, on_error="fail") as server:
        errors = await asyncio.gather(*(server.submit(item) for item in "abc"), return_exceptions=True)
        assert [(type(error), str(error), error.__notes__) for error in errors] == [
            (RuntimeError, "broken", ["note"])
        ] * 3
        assert len({id(error) for error in errors}) == 3
        errors[0].add_note("mine")
        assert errors[1].__notes__ == ["note"]
        assert all(error.__traceback__ for error in errors)
        assert (server.stats().failed, server.stats().failed_batches, server.stats().batches) == (3, 1, 0)


def test_an_error_that_cannot_be_copied_is_shared() -> None:
    error = Odd(1, 2)
    assert copies(error, 2) == [error, error]
    assert copies(error, 0) == []


async def test_a_batch_that_failed_leaves_the_next_alone(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=2, on_error="fail") as server:
        futures = [server.submit_nowait(item) for item in "abcd"]
        await turns()
        await model.release(ValueError("no"))
        await model.release_all()
        found = [await outcome(future) for future in futures]
        assert [type(error) for error in found[:2]] == [ValueError] * 2
        assert found[2:] == ["<c>", "<d>"]


async def test_a_batch_whose_callers_have_all_left_may_fail_as_well(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock) as server:
        left = server.submit_nowait("a")
        await turns()
        left.cancel()
        await model.release(ValueError("no"))
        later = server.submit_nowait("b")
        await turns()
        await model.release_all()
        assert await later == "<b>"


async def test_a_function_that_is_cancelled_from_within_fails_its_batch(clock: ManualClock) -> None:
    async def cancels(items: list[str]) -> list[str]:
        inner = asyncio.get_running_loop().create_future()
        inner.cancel()
        await inner
        return items

    async with lab(cancels, clock) as server:
        assert isinstance(await outcome(server.submit_nowait("a")), HandlerCancelled)
        assert isinstance(await outcome(server.submit_nowait("b")), HandlerCancelled)  # it goes on


async def test_a_hook_that_cannot_pad_fails_its_batch(clock: ManualClock) -> None:
    def pad(items: list[str], size: int) -> list[str]:
        raise OverflowError(f"{size}")

    async with lab(Model(), clock, batches=cb.BatchOptions(pad=pad)) as server:
        assert isinstance(await outcome(server.submit_nowait("a")), OverflowError)


def test_ctrl_c_on_the_loop_ends_the_requests_too() -> None:
    """It ends the loop, as asyncio has it, but no caller waits for ever."""
    ends: list[Any] = []

    def fatal(items: list[str]) -> list[str]:
        raise KeyboardInterrupt

    async def main() -> None:
        server = await DynamicBatchingServer(fatal, executor="loop").start()
        future = server.submit_nowait("a")
        future.add_done_callback(lambda done: ends.append(done.exception()))
        await turns()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert [type(end) for end in ends] == [ServerStopped]


# -- by default --------------------------------------------------------------------------------------------------------


def isolated(n: int, bad: set[int], error: type[Exception] = ValueError, **options: Any) -> tuple[list[Any], list[int]]:
    """The ends of n requests of one batch, some of which raise; and the sizes of the batches that ran."""
    runs: list[int] = []

    async def model(items: list[int]) -> list[int]:
        runs.append(len(items))
        wrong = [item for item in items if item in bad]
        if wrong:
            raise error(f"bad: {wrong}")
        return [item * 10 for item in items]

    async def main() -> list[Any]:
        async with lab(model, ManualClock(), max_batch=64, **options) as server:
            return await asyncio.gather(*(server.submit(item) for item in range(n)), return_exceptions=True)

    return asyncio.run(main()), runs


@pytest.mark.parametrize("bad", [0, 1, 9, 18, 30, 31])
def test_one_bad_item_fails_alone(bad: int) -> None:
    found, runs = isolated(32, {bad})
    assert [str(each) for each in found if isinstance(each, ValueError)] == [f"bad: [{bad}]"]
    assert [each for each in found if not isinstance(each, ValueError)] == [10 * n for n in range(32) if n != bad]
    assert len(runs) - 1 <= 2 * 5


@pytest.mark.parametrize(
    "bad", [{3, 4, 29}, {*range(0, 32, 2)}, {*range(1, 32, 2)}, {*range(8, 32)}, {*range(3, 32, 4)}]
)
def test_several_bad_items_fail_alone(bad: set[int]) -> None:
    found, runs = isolated(32, bad)
    assert {n for n, each in enumerate(found) if isinstance(each, ValueError)} == bad
    assert len(runs) - 1 <= 2 * len(bad) * 5


@pytest.mark.parametrize("n", [2, 3, 5, 32, 64])
def test_a_function_that_always_fails_is_hardly_called_more(n: int) -> None:
    found, runs = isolated(n, set(range(n)))
    assert {type(each) for each in found} == {ValueError}
    assert runs == [n, *[1] * min(n, 4)]


@pytest.mark.parametrize(
    "options, error",
    [
        ({"idempotent": False}, ValueError),
        ({"on_error": "fail"}, ValueError),
        ({}, TimeoutError),
        ({}, cb.ServerStopped),
        ({}, cb.ActorStopped),
    ],
)
def test_what_runs_no_item_again(options: Any, error: type[Exception]) -> None:
    found, runs = isolated(8, {3}, error, **options)
    assert ([type(each) for each in found], runs) == ([error] * 8, [8])


async def test_who_leaves_meanwhile_is_no_sign_that_all_fail(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=8) as server:
        futures = [server.submit_nowait(item) for item in "abcdefgh"]
        await turns()
        for n in (1, 6, 7):  # the probes after the first
            futures[n].cancel()
        await model.release(ValueError("batch"))
        assert model.batches[1:] == [["a"]]
        for n in (2, 3):
            futures[n].cancel()
        await model.release(ValueError("a"))
        await model.release_all()
        assert [str(await outcome(futures[n])) for n in (0, 4, 5)] == ["a", "<e>", "<f>"]


async def test_a_loss_while_a_bad_item_is_looked_for_queues_those_that_ran_again(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=4) as server:
        futures = [server.submit_nowait(item) for item in "abcd"]
        await turns()
        await model.release(ValueError("batch"))
        await model.release(cb.ContextPoisoned("lost"))
        await model.release_all()
        assert [await future for future in futures] == ["<a>", "<b>", "<c>", "<d>"]


# -- halves ------------------------------------------------------------------------------------------------------------


@given(n=st.integers(1, 33), poison=st.sets(st.integers(0, 32), max_size=3))
def test_bisection_finds_the_items_that_cannot_be_done(n: int, poison: set[int]) -> None:
    poison = {item for item in poison if item < n}
    runs: list[list[int]] = []

    async def model(items: list[int]) -> list[int]:
        runs.append(items)
        if poison.intersection(items):
            raise ValueError(f"poison in {items}")
        return [item * 10 for item in items]

    async def main() -> list[Any]:
        async with lab(model, ManualClock(), max_batch=64, idempotent=True, on_error="bisect") as server:
            return await asyncio.gather(*(server.submit(item) for item in range(n)), return_exceptions=True)

    found = asyncio.run(main())
    assert {item for item, each in enumerate(found) if isinstance(each, ValueError)} == poison
    assert [each for each in found if not isinstance(each, ValueError)] == [10 * i for i in range(n) if i not in poison]
    if len(poison) == 1:
        assert len(runs) - 1 <= 2 * math.ceil(math.log2(n))


async def test_bisection_keeps_to_preferred_sizes_and_skips_who_has_left(clock: ManualClock) -> None:
    model = Model()

    def pad(items: list[str], size: int) -> list[str]:
        return items + [""] * (size - len(items))

    async with lab(
        model,
        clock,
        max_batch=8,
        batches=cb.BatchOptions(preferred=(4, 8), pad=pad),
        idempotent=True,
        on_error="bisect",
    ) as server:
        futures = [server.submit_nowait(item) for item in "abcdef"]
        await turns()
        futures[4].cancel()
        await model.release(ValueError("no"))
        assert model.batches == [[*"abcdef", "", ""], [*"abc", ""]]
        await model.release_all()
        assert model.batches[2:] == [["d", "f", "", ""]]
        assert [await outcome(futures[n]) for n in (0, 1, 2, 3, 5)] == [f"<{item}>" for item in "abcdf"]


async def test_without_leave_no_item_runs_twice(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, idempotent=False) as server:
        futures = [server.submit_nowait(item) for item in "ab"]
        await turns()
        await model.release(ValueError("no"))
        assert [type(await outcome(future)) for future in futures] == [ValueError] * 2
        lost = server.submit_nowait("c")
        await turns()
        await model.release(cb.ContextPoisoned("lost"))
        assert isinstance(await outcome(lost), cb.ContextPoisoned)
        assert model.batches == [["a", "b"], ["c"]]


# -- a lost context ----------------------------------------------------------------------------------------------------


async def test_requests_of_a_lost_batch_run_again_one_by_one_and_first(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=2, on_error="bisect", max_queue=2) as server:
        lost = [server.submit_nowait(item) for item in "ab"]
        await turns()
        waiting = [server.submit_nowait(item) for item in "cd"]
        await model.release(cb.ContextPoisoned("the first"))
        assert server.stats().repeated == 2
        await model.release_all()
        assert model.batches[0] == ["a", "b"]
        assert all(("a" in batch) + ("b" in batch) <= 1 for batch in model.batches[1:])
        assert [await future for future in (*lost, *waiting)] == ["<a>", "<b>", "<c>", "<d>"]


async def test_who_leaves_meanwhile_does_not_run_again(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock) as server:
        futures = [server.submit_nowait(item) for item in "abc"]
        late = server.submit_nowait("d", timeout=1.0)
        await turns()
        futures[0].cancel()
        clock.advance(1.0)
        await model.release(cb.GpuRefStale("lost", "context rebuilt"))
        await turns()
        assert model.batches[1] == ["b"]
        assert isinstance(await outcome(late), DeadlineExceeded)
        await model.release_all()
        assert [await outcome(future) for future in futures[1:]] == ["<b>", "<c>"]


async def test_a_stopped_device_is_not_tried_again(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, idempotent=True, on_error="bisect") as server:
        futures = [server.submit_nowait(item) for item in "ab"]
        await turns()
        await model.release(cb.DeviceStopped("over"))
        assert [type(await outcome(future)) for future in futures] == [cb.DeviceStopped] * 2
        assert len(model.batches) == 1


@pytest.mark.parametrize(
    "error",
    [
        QueueFull("full", limit=4, depth=4, retry_after=0.5),
        DeadlineExceeded("late", stage="run", waited=1.5),
        BadBatchResult("wrong", expected=2, got=3),
    ],
)
def test_errors_travel_with_their_attributes(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
