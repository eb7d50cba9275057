"""Which buckets of texts share a batch, and what that brings on devices whose batches have different fixed costs."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from batching_lab import Model, grouped, lab, turns
from hypothesis import given
from hypothesis import strategies as st

import callboard as cb
from callboard.actors import ManualClock
from callboard.patterns.batching.joining import MOST, Joining, partition
from callboard.patterns.batching.policy import BatchPolicy
from callboard.patterns.batching.settings import Dispatch
from callboard.patterns.requests.entries import Entry

Sizes = list[tuple[int, float, float]]


def seconds_of(groups: Any, sizes: Sizes, per_unit: float, max_batch: int, max_cost: float | None) -> float:
    total = 0.0
    for start, end in groups:
        count = sum(n for n, _, _ in sizes[start:end])
        highest = max(cost for _, cost, _ in sizes[start:end])
        most = max_batch if max_cost is None else max(1, min(max_batch, int(max_cost / highest)))
        total += math.ceil(count / most) + per_unit * count * sizes[end - 1][2]
    return total


@given(
    buckets=st.dictionaries(st.integers(1, 64), st.integers(1, 9), min_size=1, max_size=7),
    per_unit=st.sampled_from([1e-9, 1e-3, 0.01, 0.05, 1.0]),
    max_batch=st.sampled_from([1, 4, 8, 100]),
    max_cost=st.sampled_from([None, 8.0, 100.0]),
)
def test_no_other_partition_takes_less_time(
    buckets: dict[int, int], per_unit: float, max_batch: int, max_cost: float | None
) -> None:
    sizes: Sizes = [(n, float(length), float(length)) for length, n in sorted(buckets.items())]
    found = partition(sizes, per_unit, max_batch, max_cost)
    assert [at for start, end in found for at in range(start, end)] == list(range(len(sizes)))  # each once, in order
    cuts = (c for n in range(len(sizes)) for c in itertools.combinations(range(1, len(sizes)), n))
    every = [list(itertools.pairwise((0, *cut, len(sizes)))) for cut in cuts]
    least = min(seconds_of(each, sizes, per_unit, max_batch, max_cost) for each in every)
    assert seconds_of(found, sizes, per_unit, max_batch, max_cost) == pytest.approx(least)


def learned(per_unit: float, fixed: float) -> Joining:
    joining = Joining()
    for n, longest in itertools.product((1, 4, 16), (16, 64, 256)):
        joining.finished(n, longest, per_unit * n * longest + fixed)
    return joining


def policy_with(per_unit: float, fixed: float, **settings: Any) -> BatchPolicy:
    given = {"max_batch": 64, "max_wait": 0.01, "dispatch": Dispatch.IDLE, "join_buckets": True, **settings}
    policy = BatchPolicy(grouped({"max_queue": 4096, **given}))
    policy._joining = learned(per_unit, fixed)
    return policy


def keys_of_batches(policy: BatchPolicy, keys: list[float], **fields: Any) -> list[list[Any]]:
    for number, key in enumerate(keys):
        policy.add(Entry(number, None, number * 1e-3, cost=key, key=key, **fields), number * 1e-3)
    found = []
    while (batch := policy.take(1.0)) is not None:
        found.append([entry.key for entry in batch.entries])
    return found


KEYS = [16.0, 256.0, 32.0, 16.0, 240.0]


def test_where_a_batch_costs_nothing_by_itself_lengths_do_not_mix() -> None:
    assert keys_of_batches(policy_with(1e-6, 1e-9), KEYS) == [[16, 16], [256], [32], [240]]


def test_where_padding_costs_nothing_all_run_at_once_in_the_order_of_submission() -> None:
    assert keys_of_batches(policy_with(1e-12, 1e-3), KEYS) == [KEYS]


def test_in_between_neighbours_join() -> None:
    assert keys_of_batches(policy_with(1e-6, 1e-4), KEYS) == [[16, 32, 16], [256, 240]]


def test_before_anything_is_measured_lengths_do_not_mix() -> None:
    policy = policy_with(1e-6, 1e-4)
    policy._joining = Joining()
    assert keys_of_batches(policy, KEYS) == [[16, 16], [256], [32], [240]]


def test_each_item_counts_as_much_as_the_costliest_of_its_batch() -> None:
    assert keys_of_batches(policy_with(1e-12, 1e-3, max_batch_cost=300.0), KEYS) == [[16, 32, 16], [256], [240]]
    assert keys_of_batches(policy_with(1e-12, 1e-3, max_batch_cost=512.0), KEYS) == [[16, 32, 16], [256, 240]]
    policy = policy_with(1e-12, 1e-3, max_batch_cost=100.0)
    for number, cost in enumerate([10.0, 50.0, 10.0]):
        policy.add(Entry(number, None, 0.0, cost=cost, key=64.0), 0.0)
    batches = [policy.take(1.0), policy.take(1.0)]
    assert [[entry.cost for entry in batch.entries] for batch in batches if batch] == [[10, 50], [10]]


def test_many_lengths_are_joined_around_the_most_urgent() -> None:
    keys = [float(n) for n in range(1, 4 * MOST)]
    first, *others = keys_of_batches(policy_with(1e-12, 1e-3, max_batch=1000), keys)
    assert first == keys[:MOST]
    assert sorted(itertools.chain(first, *others)) == keys


@given(
    keys=st.lists(st.sampled_from([16.0, 32.0, 64.0, 256.0]), max_size=40),
    fixed=st.sampled_from([1e-9, 1e-4, 1e-3, 1.0]),
    max_batch=st.sampled_from([1, 3, 16]),
    priorities=st.lists(st.integers(0, 2), min_size=40, max_size=40),
)
def test_every_entry_runs_once_and_each_batch_begins_with_the_most_urgent_one(
    keys: list[float], fixed: float, max_batch: int, priorities: list[int]
) -> None:
    policy = policy_with(1e-6, fixed, max_batch=max_batch, ageing=None)
    waiting: dict[int, Entry] = {}
    for number, key in enumerate(keys):
        waiting[number] = Entry(number, None, 0.0, priority=priorities[number], key=key)
        policy.add(waiting[number], 0.0)
    while (batch := policy.take(1.0)) is not None:
        order = [(-entry.priority, entry.number) for entry in batch.entries]
        assert order == sorted(order)
        assert order[0] == min((-entry.priority, entry.number) for entry in waiting.values())
        assert len(batch.entries) <= max_batch
        for entry in batch.entries:
            del waiting[entry.number]
    assert not waiting


def closed_loop(policy: BatchPolicy, lengths: list[int], per_unit: float, fixed: float, step: int | None) -> float:
    """Requests per second of 64 clients, where a batch takes ``per_unit * n * longest + fixed``."""
    now, at, left = 0.0, 0, len(lengths)

    def submit(n: int) -> None:
        nonlocal at
        for _ in range(min(n, len(lengths) - at)):
            length = lengths[at]
            key = None if step is None else float(-(-length // step) * step)
            policy.add(Entry(at, length, now, cost=length, key=key), now)
            at += 1

    submit(64)
    while left:
        batch = policy.take(now)
        assert batch is not None
        took = per_unit * len(batch.entries) * max(entry.item for entry in batch.entries) + fixed
        now += took
        policy.finished(len(batch.entries), took, batch.entries)
        left -= len(batch.entries)
        submit(len(batch.entries))
    return len(lengths) / now


@pytest.mark.parametrize("fixed", [1e-4, 1e-3, 1e-2], ids=["small fixed cost", "some", "large"])
@pytest.mark.parametrize("per_unit", [0.2e-6, 1e-6, 20e-6], ids=["fast", "medium", "slow"])
def test_joined_buckets_beat_batches_by_arrival_and_by_length(fixed: float, per_unit: float) -> None:
    rng = np.random.default_rng(1)
    lengths = np.clip(np.exp(rng.normal(np.log(24), 0.9, 3000)), 3, 256).astype(int).tolist()
    common: dict[str, Any] = {"max_wait": 0.01, "dispatch": Dispatch.IDLE, "max_queue": 4096, "max_batch": 64}
    found = {}
    for name, join, step in [("arrival", False, None), ("length", False, 16), ("joined", True, 16)]:
        policy = BatchPolicy(grouped({**common, "join_buckets": join}))
        closed_loop(policy, lengths[:640], per_unit, fixed, step)  # in which it learns
        found[name] = closed_loop(policy, lengths, per_unit, fixed, step)
    assert found["joined"] >= 0.99 * max(found["arrival"], found["length"]), found


# -- the server --------------------------------------------------------------------------------------------------------


async def test_the_server_learns_to_join(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, bucket=len, batches=cb.BatchOptions(join_buckets=True, dispatch="idle")) as server:
        for sizes in ((1,), (1, 1), (9,), (9, 9)):  # each takes 1 s and next to nothing for its padding
            futures = [server.submit_nowait("x" * size) for size in sizes]
            await turns()
            clock.advance(1.0 + 1e-6 * len(sizes) * sizes[0])
            await model.release()
            assert all(future.done() for future in futures)
        model.batches.clear()
        running = server.submit_nowait("x")
        await turns()
        others = [server.submit_nowait("x" * size) for size in (3, 9, 5)]
        await model.release()
        await model.release_all()
        assert model.batches == [["x"], ["xxx", "x" * 9, "x" * 5]]
        assert all(future.done() for future in (running, *others))


@pytest.mark.parametrize("key", ["a", None, True, 0, -1.0, math.nan, math.inf])
async def test_a_key_that_is_no_length_fails_its_request_alone(clock: ManualClock, key: Any) -> None:
    model = Model()
    async with lab(
        model, clock, bucket=lambda item: key if item == "bad" else 1, batches=cb.BatchOptions(join_buckets=True)
    ) as server:
        good = server.submit_nowait("good")
        with pytest.raises((TypeError, ValueError), match="join_buckets"):
            server.submit_nowait("bad")
        await turns()
        await model.release()
        assert good.result() == "<good>"


def test_lengths_must_come_from_somewhere() -> None:
    with pytest.raises(ValueError, match="needs bucket"):
        cb.DynamicBatchingServer(lambda items: items, batches=cb.BatchOptions(join_buckets=True))
