"""``Quarantine`` over a context whose operations the test answers or loses."""

import asyncio
import logging
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quarantine_lab import Lab, settle, start

import callboard as cb
from callboard.actors.clock import ManualClock

BAD = "bad"


async def convicted(quarantine: cb.Quarantine[Lab], lab: Lab, spare: Lab | None = None) -> cb.Quarantined:
    """Run the bad request until it is held."""
    [task] = start(quarantine, BAD)
    await settle()
    for place in (lab, lab, spare or lab):
        assert place.keys == [BAD]
        await place.lose()
    error = task.exception()
    assert isinstance(error, cb.Quarantined)
    return error


@given(
    neighbours=st.integers(0, 6),
    killers=st.integers(1, 3),
    copies=st.integers(1, 2),
    spare=st.booleans(),
    late=st.integers(0, 4),
    seed=st.integers(0, 2**32),
)
def test_a_request_of_death_costs_three_contexts_and_its_neighbours_one_retry(
    neighbours: int, killers: int, copies: int, spare: bool, late: int, seed: int
) -> None:
    async def story() -> None:
        draw = random.Random(seed)
        lab, other = Lab(), Lab("spare")
        quarantine = cb.Quarantine(lab, spare=other if spare else None, clock=ManualClock())
        arrivals = [f"n{n}" for n in range(neighbours)] + [f"{BAD}{n}" for n in range(killers)] * copies
        draw.shuffle(arrivals)
        tasks = start(quarantine, *arrivals)
        await settle()
        cancelled = failed = 0
        for step in range(1000):
            if all(task.done() for task in tasks) and step >= late:
                break
            if step < late:  # others come at any time
                tasks += start(quarantine, f"late{step}")
                await settle()
            choices = [(place, key) for place in (lab, other) for key in place.keys]
            assert choices  # no state in which all wait
            place, key = draw.choice(choices)
            if key.startswith(BAD):
                await place.lose()
            elif draw.random() < 0.1:
                await place.answer(key, ValueError(key))
            else:
                await place.answer(key)
            if draw.random() < 0.1:
                victims = [task for task in tasks if not task.done() and not task.get_name().startswith(BAD)]
                if victims:
                    draw.choice(victims).cancel()
                    cancelled += 1
                    await settle()
        assert all(task.done() for task in tasks)
        assert 3 <= lab.generation + other.generation <= 3 * killers
        assert not spare or other.generation == killers
        for task in tasks:
            error = None if task.cancelled() else task.exception()
            assert isinstance(error, cb.Quarantined) is task.get_name().startswith(BAD)
            assert task.cancelled() or error or task.result() == task.get_name()
            failed += isinstance(error, ValueError)
        runs = Counter(lab.began + other.began)
        most = max([runs[key] for key in runs if not key.startswith(BAD)], default=0)
        assert most <= (2 if killers == 1 else 3)
        stats = quarantine.stats()
        assert (stats.waiting, stats.running) == (0, stats.abandoned)
        assert (stats.cancelled, stats.failed, stats.quarantined) == (cancelled, failed, killers * copies)
        assert stats.submitted == len(tasks) == stats.completed + cancelled + failed + stats.quarantined
        assert set(stats.held) == {f"{BAD}{n}" for n in range(killers)}

    asyncio.run(story())


async def test_two_losses_and_then_alone() -> None:
    lab = Lab()
    quarantine = cb.Quarantine(lab, clock=ManualClock())
    tasks = start(quarantine, "a", BAD, "b")
    await settle()
    assert lab.keys == ["a", BAD, "b"]
    await lab.lose()
    assert lab.keys == ["a"]  # suspects run one after the other
    tasks += start(quarantine, "new")
    await settle()
    assert lab.keys == ["a", "new"]  # and others beside them
    await lab.answer("a")
    assert lab.keys == ["new", BAD]
    await lab.lose()
    assert quarantine.stats().suspects == 3  # bad, b and new
    tasks += start(quarantine, "newer")
    await settle()
    assert lab.keys == ["b"]  # it was let in before; bad waits for it
    assert quarantine.stats().waiting == 3
    await lab.answer("b")
    assert lab.keys == [BAD]
    await lab.lose()
    assert set(lab.keys) == {"new", "newer"}
    await lab.answer("newer")
    await lab.answer("new")
    assert [task.result() for task in tasks if task is not tasks[1]] == ["a", "b", "new", "newer"]
    error = tasks[1].exception()
    assert isinstance(error, cb.Quarantined)
    assert error.generations == (("lab", 0), ("lab", 1), ("lab", 2))
    assert isinstance(error.__cause__, cb.ContextPoisoned)


async def test_a_loss_during_the_setup_of_an_actor_convicts_nobody() -> None:
    lab = Lab()
    quarantine = cb.Quarantine(lab, clock=ManualClock())
    [task] = start(quarantine, BAD)
    await settle()
    for _ in range(4):
        assert lab.keys == [BAD]
        await lab.lose(starting=("model-1",))
    await lab.answer(BAD)
    assert await task == BAD
    assert (quarantine.stats().held, quarantine.stats().suspects) == ({}, 0)


async def test_nothing_is_held_against_a_request_that_waited_for_the_context() -> None:
    lab = Lab()
    quarantine = cb.Quarantine(lab, clock=ManualClock())
    one, other = start(quarantine, "one", "other")
    await settle()
    for _ in range(3):
        await lab.lose(unsent=True)
        assert sorted(lab.keys) == ["one", "other"]  # together
    assert quarantine.stats().suspects == 0
    await lab.lose()
    assert quarantine.stats().suspects == 2
    await lab.answer("one")
    await lab.answer("other")
    assert [await one, await other] == ["one", "other"]


async def test_the_hold_refuses_without_a_call_and_ends_with_a_run_alone(caplog: pytest.LogCaptureFixture) -> None:
    clock, lab = ManualClock(), Lab()
    quarantine = cb.Quarantine(lab, hold=60.0, clock=clock)
    with caplog.at_level(logging.ERROR, logger="callboard.patterns.quarantine"):
        error = await convicted(quarantine, lab)
    assert ["'bad' was in flight at 3 losses" in record.getMessage() for record in caplog.records] == [True]
    assert (error.key, error.until, error.retry_after) == (BAD, clock.time() + 60, 60.0)
    assert not error.retryable
    clock.advance(59.0)
    with pytest.raises(cb.Quarantined, match="refused for 1 s") as caught:
        await quarantine.run(BAD, Lab.op)
    assert (caught.value.retry_after, lab.began) == (1.0, [BAD] * 3)
    assert quarantine.stats().held == {BAD: 1.0}
    clock.advance(1.0)
    assert quarantine.stats().held == {}
    neighbour, again, late = start(quarantine, "a", BAD, "b")
    await settle()
    assert lab.keys == ["a"]  # bad waits for it, and b for bad
    await lab.answer("a")
    assert lab.keys == [BAD]
    await lab.lose()
    assert isinstance(again.exception(), cb.Quarantined)
    assert lab.generation == 4
    await lab.answer("b")
    assert (neighbour.result(), late.result()) == ("a", "b")


async def test_a_success_clears_and_so_does_a_pardon() -> None:
    clock, lab = ManualClock(), Lab()
    quarantine = cb.Quarantine(lab, hold=60.0, clock=clock)
    await convicted(quarantine, lab)
    clock.advance(60.0)
    [cured] = start(quarantine, BAD)
    await settle()
    await lab.answer(BAD)
    assert cured.result() == BAD
    assert quarantine.stats().suspects == 0
    await convicted(quarantine, lab)  # three again
    assert quarantine.pardon(BAD)
    assert not quarantine.pardon(BAD)
    [free, other] = start(quarantine, BAD, "a")
    await settle()
    assert lab.keys == [BAD, "a"]
    await lab.answer(BAD)
    await lab.answer("a")
    assert (free.result(), other.result()) == (BAD, "a")


async def test_a_spare_takes_those_that_run_alone() -> None:
    lab, spare = Lab(), Lab("spare")
    quarantine = cb.Quarantine(lab, spare=spare, clock=ManualClock())
    bad, busy = start(quarantine, BAD, "a")
    await settle()
    await lab.lose()
    await lab.lose()
    assert (lab.keys, spare.keys) == (["a"], [BAD])  # side by side
    await spare.lose()
    error = bad.exception()
    assert isinstance(error, cb.Quarantined)
    assert error.generations == (("lab", 0), ("lab", 1), ("spare", 0))
    await lab.answer("a")
    assert busy.result() == "a"


async def test_what_was_cancelled_and_still_runs_is_a_suspect() -> None:
    lab = Lab()
    quarantine = cb.Quarantine(lab, clock=ManualClock())
    gone, other = start(quarantine, BAD, "a")
    await settle()
    gone.cancel()
    await settle()
    await lab.lose()  # the operation hung, and its caller had given up
    assert quarantine.stats().suspects == 2
    await lab.answer("a")
    assert other.result() == "a"
    [again] = start(quarantine, BAD)
    await settle()
    await lab.lose()
    await lab.lose()
    assert isinstance(again.exception(), cb.Quarantined)
    assert lab.generation == 3


async def test_the_turn_of_a_suspect_whose_caller_leaves_lasts_until_its_operation_ends() -> None:
    lab = Lab()
    quarantine = cb.Quarantine(lab, clock=ManualClock())
    bad, other = start(quarantine, BAD, "a")
    await settle()
    await lab.lose()
    assert lab.keys == [BAD]
    bad.cancel()  # it hangs, and its caller gives up
    await settle()
    assert bad.cancelled()
    assert lab.keys == [BAD]  # the other suspect does not run beside it
    assert quarantine.stats().abandoned == 1
    await lab.lose()
    await lab.answer("a")
    assert other.result() == "a"
    [bad] = start(quarantine, BAD)
    await settle()
    [other] = start(quarantine, "a")
    bad.cancel()
    await settle()
    assert lab.keys == [BAD]  # alone
    await lab.lose()
    await lab.answer("a")
    assert other.result() == "a"
    assert list(quarantine.stats().held) == [BAD]
    assert lab.generation == 3


async def test_a_ref_made_stale_by_a_loss_is_a_retry_and_other_errors_are_not() -> None:
    lab = Lab()
    quarantine = cb.Quarantine(lab, clock=ManualClock())
    stale, freed, wrong = start(quarantine, "stale", "freed", "wrong")
    await settle()
    await lab.answer("stale", cb.GpuRefStale("old", "context rebuilt"))
    await lab.answer("freed", cb.GpuRefStale("gone", "freed"))
    await lab.answer("wrong", cb.ShapeError("no"))
    assert lab.keys == ["stale"]
    await lab.answer("stale")
    assert stale.result() == "stale"
    assert isinstance(freed.exception(), cb.GpuRefStale)
    assert isinstance(wrong.exception(), cb.ShapeError)
    assert quarantine.stats().suspects == 0


async def test_a_ref_that_stays_stale_ends_in_its_error() -> None:
    runs = 0

    async def call(lab: Lab) -> None:
        nonlocal runs
        runs += 1
        error = cb.GpuRefStale("old", "context rebuilt")
        error.generation = 1
        raise error

    quarantine = cb.Quarantine(Lab(), clock=ManualClock())
    with pytest.raises(cb.GpuRefStale):
        await quarantine.run("r1", call)
    assert runs == 3
    assert quarantine.stats().held == {}


async def test_waiting_is_bounded_in_time_and_number_and_may_be_cancelled() -> None:
    clock, lab = ManualClock(), Lab()
    quarantine = cb.Quarantine(lab, wait=5.0, max_waiting=2, clock=clock)
    [alone] = start(quarantine, BAD)
    await settle()
    await lab.lose()
    await lab.lose()
    late, leaver, refused = start(quarantine, "late", "leaver", "refused")
    await settle()
    assert isinstance(refused.exception(), cb.QueueFull)
    leaver.cancel()
    await settle()
    assert leaver.cancelled()
    clock.advance(5.0)
    await settle()
    error = late.exception()
    assert isinstance(error, cb.DeadlineExceeded)
    assert (error.stage, error.waited) == ("queue", 5.0)
    assert lab.keys == [BAD]
    alone.cancel()
    await settle()
    assert alone.cancelled()
    stats = quarantine.stats()
    assert (stats.running, stats.abandoned, stats.waiting, stats.failed, stats.cancelled) == (1, 1, 0, 2, 2)
    await lab.answer(BAD)
    assert (quarantine.stats().running, quarantine.stats().abandoned) == (0, 0)
    [free] = start(quarantine, "free")
    await settle()
    await lab.answer("free")
    assert free.result() == "free"


async def test_a_second_copy_that_waits_is_refused_with_the_first() -> None:
    lab = Lab()
    quarantine = cb.Quarantine(lab, clock=ManualClock())
    copies = start(quarantine, BAD, BAD, BAD)
    await settle()
    for _ in range(3):
        await lab.lose()
    assert [type(task.exception()) for task in copies] == [cb.Quarantined] * 3
    assert lab.generation == 3


async def test_arguments_out_of_range() -> None:
    numbers: list[dict[str, Any]] = [{"wait": 0}, {"hold": 0}, {"max_waiting": 0}, {"max_keys": 0}]
    for each in numbers:
        with pytest.raises(ValueError, match=next(iter(each))):
            cb.Quarantine(Lab(), **each)
    quarantine = cb.Quarantine(Lab())
    key: str = 7  # type: ignore[assignment]
    with pytest.raises(TypeError, match="key is 7"):
        await quarantine.run(key, Lab.op)
