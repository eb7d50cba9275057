"""Formation of batches, with times that the test chooses."""

from dataclasses import replace
from typing import Any

import pytest
from batching_lab import grouped
from hypothesis import given
from hypothesis import strategies as st

from callboard.patterns.batching.policy import BatchPolicy
from callboard.patterns.batching.settings import BatchOptions, Dispatch, pow2_length
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.errors import ItemTooLarge, QueueFull

MS = 1e-3


def policy_of(**settings: Any) -> BatchPolicy:
    return BatchPolicy(grouped({"max_batch": 4, "max_wait": 0.010, "dispatch": Dispatch.IDLE, **settings}))


def add(policy: BatchPolicy, number: int, now: float = 0.0, **fields: Any) -> Entry:
    entry = Entry(number, f"item {number}", now, **fields)
    policy.add(entry, now)
    return entry


def numbers(batch: Any) -> list[int]:
    return [entry.number for entry in batch.entries]


def learn(policy: BatchPolicy, per_item: float, fixed: float) -> None:
    for n in (1, 2, 4, 8):
        policy.finished(n, per_item * n + fixed)


# -- size --------------------------------------------------------------------------------------------------------------


def test_an_empty_queue_has_no_batch() -> None:
    policy = policy_of()
    assert policy.take(0.0) is None
    assert policy.ready_at(0.0) is None


def test_a_batch_has_at_most_max_batch_and_takes_the_oldest() -> None:
    policy = policy_of()
    for number in range(6):
        add(policy, number)
    first = policy.take(1.0)
    assert first is not None
    assert numbers(first) == [0, 1, 2, 3]
    assert {(entry.state, entry.started) for entry in first.entries} == {(State.RUNNING, 1.0)}
    assert numbers(policy.take(1.0)) == [4, 5]
    assert policy.take(1.0) is None


def test_a_batch_ends_before_the_item_that_costs_too_much() -> None:
    policy = policy_of(max_batch_cost=10.0)
    for number, cost in enumerate([4, 5, 3, 10, 1]):
        add(policy, number, cost=cost)
    assert [numbers(policy.take(0.0)) for _ in range(4)] == [[0, 1], [2], [3], [4]]  # in order, though 4 would fit
    with pytest.raises(ItemTooLarge, match="max_batch_cost"):
        add(policy, 5, cost=11)


@pytest.mark.parametrize("waiting, sizes", [(3, [2, 1]), (4, [4]), (7, [4, 2, 1]), (1, [1])])
def test_without_padding_a_batch_is_cut_to_a_preferred_size(waiting: int, sizes: list[int]) -> None:
    policy = policy_of(max_batch=4, preferred=(1, 2, 4))
    for number in range(waiting):
        add(policy, number)
    batches = [numbers(policy.take(0.0)) for _ in sizes]
    assert [len(batch) for batch in batches] == sizes
    assert [number for batch in batches for number in batch] == list(range(waiting))


def test_below_the_smallest_preferred_size_a_batch_runs_as_it_is() -> None:
    policy = policy_of(preferred=(4,))
    add(policy, 0)
    assert numbers(policy.take(0.0)) == [0]


def test_with_padding_a_batch_is_filled_up() -> None:
    settings = BatchOptions(preferred=(1, 4, 8), pad=lambda items, size: items)
    assert [settings.size_for(n) for n in (1, 2, 4, 5, 8, 9)] == [1, 4, 4, 8, 8, 9]


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_batch": 0},
        {"max_wait": -1.0},
        {"max_wait": float("nan")},
        {"max_batch_cost": 0.0},
        {"max_concurrent_batches": 0},
        {"max_queue": 3},
        {"preferred": (4, 2)},
        {"preferred": (0, 2)},
        {"preferred": (8,)},
        {"dispatch": "later"},
        {"timeout_action": "drop"},
        {"overflow": "explode"},
        {"order": "size"},
        {"max_cost": 0},
        {"block_timeout": 0},
        {"ageing": -1.0},
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}|later|explode"):
        policy_of(**wrong)


# -- buckets and priorities --------------------------------------------------------------------------------------------


def test_items_of_different_keys_never_share_a_batch() -> None:
    policy = policy_of()
    for number, key in enumerate("abacb"):
        add(policy, number, now=number * MS, key=key)
    assert [numbers(policy.take(1.0)) for _ in range(3)] == [[0, 2], [1, 4], [3]]


def test_a_full_bucket_goes_ahead_of_one_that_still_waits() -> None:
    policy = policy_of(dispatch=Dispatch.WINDOW, max_batch=2)
    add(policy, 0, key="a")
    add(policy, 1, key="b")
    assert policy.take(0.0) is None
    add(policy, 2, key="b")
    assert numbers(policy.take(0.0)) == [1, 2]
    assert policy.take(0.0) is None
    assert numbers(policy.take(0.010)) == [0]


def test_urgent_items_lead_the_batch_and_choose_the_bucket() -> None:
    policy = policy_of(ageing=None)
    for number, (key, priority) in enumerate([("a", 0), ("b", 0), ("b", 2), ("b", 1)]):
        add(policy, number, key=key, priority=priority)
    assert [numbers(policy.take(0.0)) for _ in range(2)] == [[2, 3, 1], [0]]


def test_a_stream_of_urgent_items_does_not_starve_the_rest() -> None:
    policy = policy_of(max_batch=1, ageing=0.1, max_queue=1000)
    add(policy, 0)
    served = []
    for step in range(30):
        now = step * 10 * MS
        add(policy, 2 * step + 1, now=now, priority=1)
        add(policy, 2 * step + 2, now=now, priority=1)  # twice what can be served
        served += numbers(policy.take(now))
    assert 0 < served.index(0) <= 20  # those of its first 0.1 s


# -- time --------------------------------------------------------------------------------------------------------------


def test_a_window_counts_from_the_oldest_and_a_full_batch_does_not_wait() -> None:
    policy = policy_of(dispatch=Dispatch.WINDOW)
    add(policy, 0, now=0.0)
    add(policy, 1, now=0.008)
    assert policy.ready_at(0.008) == 0.010
    assert policy.take(0.0099) is None
    assert numbers(policy.take(0.010)) == [0, 1]
    for number in range(2, 6):
        add(policy, number, now=0.02)
    assert policy.ready_at(0.02) == 0.02
    assert numbers(policy.take(0.02)) == [2, 3, 4, 5]


def test_flush_now_is_for_what_waits_and_not_for_what_comes() -> None:
    policy = policy_of(dispatch=Dispatch.WINDOW)
    add(policy, 0)
    policy.flush_now()
    assert numbers(policy.take(0.0)) == [0]
    add(policy, 1)
    assert policy.take(0.0) is None


def test_draining_waits_for_nothing() -> None:
    policy = policy_of(dispatch=Dispatch.WINDOW)
    add(policy, 0)
    policy.draining = True
    assert numbers(policy.take(0.0)) == [0]


def adaptive(gap: float, fixed: float, waiting: int) -> tuple[BatchPolicy, float]:
    """A policy that has measured this gap and fixed cost, with so many requests in the queue; and the time."""
    policy = policy_of(dispatch=Dispatch.ADAPTIVE, max_batch=16, max_wait=0.050)
    now = 0.0
    for number in range(200):
        add(policy, number, now=now)
        assert policy.take(now) is not None  # nothing is known of the function, so nothing waits
        now += gap
    learn(policy, 0.1 * MS, fixed)
    last = now
    for number in range(200, 200 + waiting):
        add(policy, number, now=now)
        last, now = now, now + gap
    return policy, last


@pytest.mark.parametrize(
    "gap, fixed, waiting, waits",
    [
        (2.0 * MS, 10.0 * MS, 1, True),  # the others end 2.1 ms later, and one ends 8 ms earlier
        (2.0 * MS, 10.0 * MS, 3, True),
        (2.0 * MS, 10.0 * MS, 4, False),  # 4 * 2.1 ms against 8 ms
        (6.0 * MS, 10.0 * MS, 1, False),
        (0.2 * MS, 1.8 * MS, 1, True),  # too short for a timer, but the next one is all but certain
        (0.5 * MS, 1.8 * MS, 1, False),
        (0.1 * MS, 0.0, 1, False),  # nothing is saved
    ],
)
def test_waiting_must_cost_less_than_it_saves(gap: float, fixed: float, waiting: int, waits: bool) -> None:
    policy, now = adaptive(gap, fixed, waiting)
    at = policy.ready_at(now)
    assert at is not None
    assert (at > now) is waits
    assert (policy.take(now) is None) is waits
    if waits:  # an arrival that does not come is not waited for any longer
        assert at == pytest.approx(now + (fixed - waiting * 0.1 * MS) / (waiting + 1))
        assert len(numbers(policy.take(at))) == waiting


@pytest.mark.parametrize("clients", [1, 2, 8, 15])
def test_clients_in_a_closed_loop_are_never_waited_for(clients: int) -> None:
    """When all of them are in the queue, none can come: whatever the function costs, the batch goes."""
    policy = policy_of(dispatch=Dispatch.ADAPTIVE, max_batch=16, max_wait=1.0)
    learn(policy, 0.1 * MS, 5 * MS)
    now, number = 0.0, 0
    for _ in range(40):
        for _ in range(clients):
            add(policy, number, now=now)
            number += 1
        batch = policy.take(now)
        if number > 2 * clients:
            assert batch is not None
            assert len(batch.entries) == clients
        now += 0.1 * MS * clients + 5 * MS


@pytest.mark.parametrize("dispatch", [Dispatch.ADAPTIVE, Dispatch.WINDOW])
def test_none_waits_for_others_beyond_what_its_deadline_allows(dispatch: Dispatch) -> None:
    policy, now = adaptive(0.1 * MS, 20 * MS, 0)
    policy.settings = replace(policy.settings, form=BatchOptions(dispatch=dispatch))
    now += 0.1 * MS
    add(policy, 1000, now=now)
    assert policy.ready_at(now) == pytest.approx(now + (9.95 * MS if dispatch is Dispatch.ADAPTIVE else 50 * MS))
    add(policy, 1001, now=now, deadline=now + 47 * MS)
    at = policy.ready_at(now)
    assert at == pytest.approx(now + 47 * MS - 2 * 20.2 * MS - 2 * MS)  # 20.2 ms for two, and a timer may be late
    assert at is not None
    assert len(numbers(policy.take(at))) == 2


def test_one_slow_batch_makes_a_lone_client_wait_for_nothing() -> None:
    policy = policy_of(dispatch=Dispatch.ADAPTIVE, max_batch=16, max_wait=1.0)
    learn(policy, 0.05 * MS, 1 * MS)
    now = 0.0
    for number in range(100):
        add(policy, number, now=now)
        assert policy.take(now) is not None
        took = 500 * MS if number == 50 else 1.05 * MS  # a pause of the machine
        policy.finished(1, took)
        now += took


def test_before_anything_is_measured_nothing_waits() -> None:
    policy = policy_of(dispatch=Dispatch.ADAPTIVE)
    add(policy, 0)
    add(policy, 1)
    assert numbers(policy.take(0.0)) == [0, 1]


def test_max_wait_bounds_the_adaptive_wait() -> None:
    policy, now = adaptive(0.1 * MS, 500 * MS, 2)
    oldest = now - 0.1 * MS
    assert policy.ready_at(now) == pytest.approx(oldest + 0.050)
    policy.settings = replace(policy.settings, max_wait=0.0)
    assert len(numbers(policy.take(now))) == 2


# -- deadlines ---------------------------------------------------------------------------------------------------------


def test_an_expired_item_is_never_run() -> None:
    policy = policy_of()
    add(policy, 0, deadline=1.0)
    add(policy, 1, deadline=1.1)
    batch = policy.take(1.0)
    assert batch is not None
    assert numbers(batch) == [1]
    assert [entry.number for entry in batch.late] == [0]
    add(policy, 2, deadline=1.0)
    batch = policy.take(1.0)
    assert batch is not None
    assert (batch.entries, len(batch.late)) == ([], 1)


def test_what_cannot_be_done_in_time_gives_its_place_to_what_can() -> None:
    policy = policy_of(max_batch=2)
    learn(policy, 0.0, 0.100)
    for number, deadline in enumerate([0.05, 0.2, None]):
        add(policy, number, deadline=deadline)
    batch = policy.take(0.0)
    assert batch is not None
    assert numbers(batch) == [1, 2]
    assert [entry.number for entry in batch.late] == [0]


def test_an_estimate_that_is_too_high_does_not_refuse_everything_for_ever() -> None:
    policy = policy_of()
    learn(policy, 0.0, 100.0)  # one bad moment
    idle = Entry(0, None, 0.0, deadline=0.1)
    assert not policy.hopeless(idle, 0.0)
    policy.add(idle, 0.0)
    assert numbers(policy.take(0.0)) == [0]


def test_a_request_behind_a_long_queue_is_hopeless_at_once() -> None:
    policy = policy_of(max_batch=2)
    for number in range(4):
        add(policy, number)
    assert not policy.hopeless(Entry(9, None, 0.0, deadline=0.001), 0.0)  # nothing measured yet
    learn(policy, 0.0, 0.100)
    assert policy.hopeless(Entry(9, None, 0.0, deadline=0.299), 0.0)
    assert not policy.hopeless(Entry(9, None, 0.0, deadline=0.301), 0.0)
    assert not policy.hopeless(Entry(9, None, 0.0), 0.0)


def test_a_full_queue_tells_when_a_batch_will_have_left_it() -> None:
    policy = policy_of(max_queue=4)
    learn(policy, 0.01, 0.02)
    for number in range(4):
        add(policy, number)
    with pytest.raises(QueueFull):
        add(policy, 4)
    assert policy.retry_after() == pytest.approx(0.06)


# -- any schedule ------------------------------------------------------------------------------------------------------

ARRIVALS = st.lists(
    st.tuples(
        st.floats(0, 0.02),  # gap
        st.integers(0, 2),  # priority
        st.sampled_from("ab"),  # key
        st.integers(1, 5),  # cost
        st.one_of(st.none(), st.floats(0.001, 0.1)),  # time left
    ),
    max_size=40,
)


@given(
    arrivals=ARRIVALS,
    dispatch=st.sampled_from(list(Dispatch)),
    busy=st.floats(0.001, 0.03),
    max_batch=st.integers(1, 5),
    preferred=st.sampled_from([(), (1,), (1, 2)]),
)
def test_every_entry_runs_once_or_is_late_and_none_waits_for_ever(
    arrivals: list[tuple[float, int, str, int, float | None]],
    dispatch: Dispatch,
    busy: float,
    max_batch: int,
    preferred: tuple[int, ...],
) -> None:
    """One executor, which is busy for a while after each batch."""
    policy = policy_of(
        max_batch=max_batch,
        dispatch=dispatch,
        max_batch_cost=8.0,
        preferred=preferred if max_batch > 1 else (),
        max_queue=1000,
    )
    now, free_at = 0.0, 0.0
    ran: list[Entry] = []
    late: list[Entry] = []
    entries: list[Entry] = []

    def run(until: float) -> None:
        nonlocal free_at
        while True:
            at = policy.ready_at(free_at)
            moment = max(free_at, at if at is not None else until, now)
            if at is None or moment > until:
                return
            batch = policy.take(moment)
            if batch is None:  # the moment came before what was expected; time goes on
                assert at > free_at
                return
            assert len(batch.entries) <= max_batch
            assert sum(entry.cost for entry in batch.entries) <= 8.0
            assert len({entry.key for entry in batch.entries}) <= 1
            assert all(entry.deadline is None or entry.deadline > moment for entry in batch.entries)
            ran.extend(batch.entries)
            late.extend(batch.late)
            if batch.entries:
                policy.finished(len(batch.entries), busy)
                free_at = moment + busy

    for number, (gap, priority, key, cost, left) in enumerate(arrivals):
        run(now + gap)
        now += gap
        deadline = None if left is None else now + left
        entries.append(add(policy, number, now=now, priority=priority, key=key, cost=cost, deadline=deadline))
    now = max(now, free_at)
    run(float("inf"))
    assert policy.line.count == 0
    assert sorted(entry.number for entry in ran + late) == list(range(len(entries)))
    assert all(entry.deadline is not None for entry in late)


@pytest.mark.parametrize("length, bucket", [(0, 1), (1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (1025, 2048)])
def test_pow2_length(length: int, bucket: int) -> None:
    assert pow2_length("x" * length) == bucket
