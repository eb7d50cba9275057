"""Steps that raise because of one sequence: it fails alone, the others go on, and further steps are bounded."""

import asyncio
from typing import Any

import pytest
from batching_lab import outcome, turns
from hypothesis import given, settings
from hypothesis import strategies as st
from speculative_lab import TableModel, plain
from step_lab import Steps, stepping

import callboard as cb
from callboard.patterns.batching.continuous.isolating import StepIsolation

LENGTH = 5
"""Parts of a sequence."""


class Bad:
    """A step function that raises where a bad sequence is about to give a part.

    Args:
        bad: The part at which it raises, by the item.
        pieces: Steps without a part in which a sequence that begins reads what it has.
    """

    def __init__(self, bad: dict[int, int], pieces: int = 0) -> None:
        self.bad = bad
        self.pieces = pieces

    def __call__(self, slots: list[cb.Slot[int, int]]) -> list[Any]:
        found: list[Any] = []
        for slot in slots:
            assert slot.fresh == (slot.state is None), "a state that a failed step has left"
            slot.state = (slot.state or 0) + 1
            n = len(slot.parts)
            if slot.state <= self.pieces:
                found.append(cb.NOTHING)
            elif n >= self.bad.get(slot.item, LENGTH + 1):
                raise ValueError(f"item {slot.item}")
            else:
                found.append(cb.DONE if n == LENGTH else n)
        return found


async def parts_of(server: Any, item: int, streamed: bool) -> Any:
    try:
        return [part async for part in server.stream(item, buffer=2)] if streamed else await server.submit(item)
    except ValueError as e:
        return e


@settings(max_examples=50)
@given(
    n=st.integers(2, 9),
    bad=st.dictionaries(st.integers(0, 8), st.integers(0, LENGTH), min_size=1, max_size=3),
    pieces=st.integers(0, 3),
    late=st.integers(0, 3),
    options=st.sampled_from([{}, {"max_admitted_cost": 2}, {"max_batch": 3}, {"max_batch_cost": 20, "part_cost": 1}]),
)
def test_only_those_fail_that_cannot_be_done(n: int, bad: dict[int, int], pieces: int, late: int, options: Any) -> None:
    step = Bad(bad, pieces)

    async def story() -> None:
        async with cb.ContinuousBatchingServer(step, executor="loop", **options) as server:
            tasks = [asyncio.create_task(parts_of(server, item, item % 2 == 1)) for item in range(n)]
            await turns(3)
            tasks += [asyncio.create_task(parts_of(server, 100 + each, each == 1)) for each in range(late)]
            found = [await task for task in tasks]
            stats = server.stats()
        for item, each in enumerate(found[:n]):
            assert str(each) == f"item {item}" if item in bad else each == list(range(LENGTH)), (item, each)
        assert found[n:] == [list(range(LENGTH))] * late
        assert stats.failed_steps <= (1 + pieces) * len(bad) * (8 + 2 * (n + late).bit_length())

    asyncio.run(asyncio.wait_for(story(), 20))


@settings(max_examples=30)
@given(n=st.integers(2, 6), bad=st.dictionaries(st.integers(0, 5), st.integers(1, 6), min_size=1, max_size=3))
def test_only_those_texts_fail_that_cannot_be_done(n: int, bad: dict[int, int]) -> None:
    target = TableModel()

    async def forward(states: Any, tokens: Any, rows: Any) -> Any:
        for state, new in zip(states, tokens, strict=True):
            text = [*state.tokens, *new]
            if len(text) >= bad.get(text[0], 99):
                raise IndexError(f"token {text[0]}")
        return await target.forward(states, tokens, rows)

    async def story() -> None:
        async with cb.SpeculativeDecoder(cb.Model(forward, target.begin), cb.NGramDraft()) as server:
            texts = [cb.Decode([item], max_new_tokens=6) for item in range(n)]
            found = [await outcome(task) for task in [asyncio.create_task(server.submit(text)) for text in texts]]
        for item, each in enumerate(found):
            if item in bad:
                assert (type(each), str(each)) == (IndexError, f"token {item}")
            else:
                assert each.tokens == plain(target, [item], 6)

    asyncio.run(asyncio.wait_for(story(), 20))
    assert target.opened == target.closed


async def test_a_stream_goes_on_behind_the_parts_that_it_has() -> None:
    steps = Steps()
    async with stepping(steps) as server:
        stream = server.stream(4)
        reading = asyncio.ensure_future(anext(stream))
        other = asyncio.create_task(server.submit(4))
        await turns()
        await steps.go()
        assert await reading == 0
        await steps.go(IndexError("token 7 of 5"))
        assert steps.seen[-1] == [0]  # alone
        assert steps.closed == [0, 1]
        steps.free = True
        await steps.go()
        assert [part async for part in stream] == [1, 2, 3]
        assert await other == [0, 1, 2, 3]
        assert (server.stats().repeated, server.stats().failed_steps) == (2, 1)
    assert not steps.open


async def test_a_function_that_fails_whatever_it_gets_is_called_four_times_more() -> None:
    steps = Steps()
    async with stepping(steps) as server:
        tasks = [asyncio.create_task(server.submit(3)) for _ in range(20)]
        await turns()
        for n in range(5):
            await steps.go(RuntimeError(f"step {n}"))
        errors = [str(await outcome(task)) for task in tasks]
        assert len(steps.seen) == 5
        assert sorted({*errors}) == [f"step {n}" for n in range(5)]
        assert errors.count("step 0") == 16
        assert server.stats().failed == 20
    assert not steps.open


@pytest.mark.parametrize("error", [TimeoutError("late"), cb.MailboxFull("full"), cb.DeviceStopped("gone"), [1]])
async def test_an_error_that_no_sequence_causes_ends_them_all(error: Any) -> None:
    steps = Steps()
    async with stepping(steps) as server:
        tasks = [asyncio.create_task(server.submit(3)) for _ in range(3)]
        await turns()
        await steps.go(error)
        kind = cb.BadBatchResult if isinstance(error, list) else type(error)
        assert [type(await outcome(task)) for task in tasks] == [kind] * 3
        assert len(steps.seen) == 1


@pytest.mark.parametrize("error", [ValueError("no"), cb.ContextPoisoned("lost")])
async def test_steps_that_may_not_run_again(error: Exception) -> None:
    steps = Steps()
    async with stepping(steps, idempotent=False) as server:
        tasks = [asyncio.create_task(server.submit(3)) for _ in range(3)]
        await turns()
        await steps.go(error)
        assert [type(await outcome(task)) for task in tasks] == [type(error)] * 3
        assert len(steps.seen) == 1
        steps.free = True
        assert await server.submit(2) == [0, 1]
    target = TableModel()

    async def forward(*_: Any) -> Any:
        raise error

    async with cb.SpeculativeDecoder(cb.Model(forward, target.begin), idempotent=False) as decoder:
        works = [asyncio.create_task(decoder.submit(cb.Decode([n]))) for n in range(3)]
        assert [type(await outcome(work)) for work in works] == [type(error)] * 3


async def test_a_sequence_is_not_blamed_for_one_that_was_cancelled() -> None:
    steps = Steps()
    async with stepping(steps) as server:
        kept, gone = (asyncio.create_task(server.submit(3)) for _ in range(2))
        await turns()
        gone.cancel()
        await steps.go(ValueError("because of the other"))
        steps.free = True
        await steps.go()
        assert await kept == [0, 1, 2]
    assert not steps.open


async def test_others_take_steps_between_those_of_a_failed_step() -> None:
    steps = Steps()
    async with stepping(steps) as server:
        tasks = [asyncio.create_task(server.submit(6)) for _ in range(4)]
        await turns()
        await steps.go(ValueError("no"))
        tasks.append(asyncio.create_task(server.submit(6)))
        await turns()
        for _ in range(4):
            await steps.go()
        assert steps.seen == [[0, 1, 2, 3], [0], [0, 4], [1], [0, 1, 4], [2]]
        steps.free = True
        await steps.go()
        assert await asyncio.gather(*tasks) == [list(range(6))] * 5


@given(
    n=st.integers(2, 40),
    bad=st.sets(st.integers(0, 39), max_size=3),
    data=st.data(),
)
def test_groups_end_whichever_sequences_are_ready(n: int, bad: set[int], data: st.DataObject) -> None:
    isolation, ended, calls = StepIsolation(), set[int](), 0
    isolation.failed(range(n), ValueError("all"), alone=False)
    while any(isolation.holds(number) for number in range(n)):
        left = [number for number in range(n) if number not in ended]
        ready = data.draw(st.sampled_from([left, left[::2] or left, left[1::2] or left, left[-1:]]))
        group = isolation.choose(ready)
        if not group:
            continue  # those that are ready are known to be good
        calls += 1
        assert calls <= n + 4 + 2 * len(bad) * n.bit_length()
        if bad.intersection(group):
            ended.update(isolation.failed(group, ValueError(str(group)), alone=len(group) == 1))
        else:
            isolation.passed(group)
    assert ended == {number for number in bad if number < n}
    isolation.passed([number for number in range(n) if number not in ended])  # patience with some of them was over
    assert not isolation.active


class Recognisers:
    """Adds up the items of sequences, and raises for a negative one before it changes any state."""

    def __init__(self) -> None:
        self.totals: dict[int, int] = {}
        self.calls = 0

    async def __call__(self, items: list[int], slots: list[cb.SequenceSlot]) -> list[int]:
        self.calls += 1
        await asyncio.sleep(0)
        for item, slot in zip(items, slots, strict=True):
            assert slot.start == (slot.state is None)
            slot.state = "seen"
            if item < 0:
                raise ValueError(f"item {item}")
        for item, slot in zip(items, slots, strict=True):
            self.totals[slot.number] = item + (0 if slot.start else self.totals[slot.number])
        return [self.totals[slot.number] for slot in slots]


@pytest.mark.parametrize("idempotent", [False, True])
async def test_first_requests_of_sequences_fail_alone(idempotent: bool) -> None:
    recognisers = Recognisers()
    async with cb.SequenceBatchingServer[int, int](recognisers, idempotent=idempotent) as server:
        assert await server.submit(5, sequence="old", start=True) == 5
        items = {"old": 1, "a": 1, "b": -2, "c": 3, "d": 4}
        works = [
            asyncio.create_task(server.submit(item, sequence=name, start=name != "old")) for name, item in items.items()
        ]
        old, a, b, c, d = [await outcome(work) for work in works]
        assert (a, c, d) == (1, 3, 4)
        assert str(b) == "item -2"
        assert await server.submit(1, sequence="c") == 4  # its state is that of its last run
        assert (await outcome(server.submit(1, sequence="b"))).reason == "failed"
        if idempotent:
            assert old == 6
            assert await server.submit(1, sequence="old") == 7
        else:  # its state cannot be trusted
            assert str(old) == "item -2"
            assert (await outcome(server.submit(1, sequence="old"))).reason == "failed"
        assert server.stats().lost == 1 + (not idempotent)
