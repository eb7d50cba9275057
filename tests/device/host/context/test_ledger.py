"""The ledger: an op's completion comes after those of the ops whose results it reads, whatever order streams finish
in.
"""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.core.errors import LibraryError
from callboard.device.host.context.ledger import Ledger
from callboard.device.host.context.pending import FAILED, OK, Pending
from callboard.device.host.context.timelines import Timeline
from callboard.device.host.context.trace import KernelTrace
from callboard.device.protocol.wire import MAX_FRAME, encode_frame
from callboard.testing.faulty import Failed

OPS = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.integers(1, 6), max_size=3), st.sampled_from(["fine", "fine", "fails"])),
    min_size=1,
    max_size=40,
)


def fail(number: int) -> Failed:
    return Failed(LibraryError(f"op {number}", "x", number))


@settings(max_examples=200)
@given(OPS, st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), max_size=30), st.booleans())
def test_completions_follow_producers(program: list[Any], finishes: list[tuple[int, int]], traced: bool) -> None:
    ledger = Ledger()
    ledger.trace = KernelTrace() if traced else None
    timelines = [Timeline(None) for _ in range(3)]  # type: ignore[arg-type]
    ops: dict[int, Pending] = {}
    sources: dict[int, list[int]] = {}
    for number, (at, back, outcome) in enumerate(program, 1):
        timeline = timelines[at]
        timeline.issued += 1
        read = sorted({number - b for b in back if number - b > 0})
        op = Pending(number, timeline.issued, None, [ops[r] for r in read])
        if outcome == "fails":
            op.status = fail(number)
        ops[number], sources[number] = op, read
        timeline.ops.append(op)
        if ledger.trace is not None and number % 2:
            ledger.trace.enqueued(number, "x", at, 0.0)
    order: list[int] = []
    roots: dict[int, int] = {}

    def take() -> None:
        for message in ledger.take():
            batch = [*message.done, *(number for number, _ in message.failed)]
            roots.update(message.failed)
            assert {f.id: f.message for f in message.causes} == {r: f"op {r}" for _, r in message.failed}
            order.extend(batch)
            for number in batch:  # in one message or an earlier one
                assert all(r in order for r in sources[number])

    for at, more in [*finishes, (0, 99), (1, 99), (2, 99)]:
        timelines[at].completed = min(timelines[at].issued, timelines[at].completed + more)
        ledger.settle(timelines)
        take()
    assert sorted(order) == list(range(1, len(program) + 1))
    assert ledger.settle(timelines) is False
    assert not ledger.take()
    if ledger.trace is not None:
        assert sorted(record[0] for record in ledger.trace.take()) == list(range(1, len(program) + 1, 2))
    for number, (_, _, outcome) in enumerate(program, 1):
        inherits = any(ops[r].state == FAILED for r in sources[number])
        assert ops[number].state == (FAILED if outcome == "fails" or inherits else OK)
        if inherits:  # what it says itself it says of numbers that nobody wrote
            assert roots[number] in {roots[r] for r in sources[number] if ops[r].state == FAILED}
        elif outcome == "fails":
            assert roots[number] == number


def test_an_op_keeps_its_producers_no_longer_than_it_needs_them() -> None:
    ledger, timeline = Ledger(), Timeline(None)  # type: ignore[arg-type]
    first = Pending(1, 1, None, ())
    second = Pending(2, 2, None, [first])
    timeline.ops.extend([first, second])
    timeline.completed = 2
    assert not ledger.settle([timeline])
    assert not second.sources
    assert not timeline.ops


def test_ops_behind_a_failed_one_share_its_failure_and_cost_a_few_bytes_each() -> None:
    ledger, ops = Ledger(), [Pending(1, 0, None, ())]
    ledger.refuse(ops[0], LibraryError("x" * 10_000))
    for number in range(2, 20_001):
        ops.append(Pending(number, 0, None, ()))
        ledger.inherit(ops[-1], ops[-2])
    assert all(op.failure is ops[0].failure for op in ops)
    messages = ledger.take()
    assert [op for m in messages for op, _ in m.failed] == list(range(1, 20_001))
    for message in messages:  # each says all that it refers to
        assert [f.id for f in message.causes] == [1]
        assert len(encode_frame(message)) < 11_000 + 24 * len(message.failed)
    assert len(messages) <= 5


def test_many_completions_and_large_ones_are_split_below_the_longest_frame() -> None:
    ledger = Ledger()
    large = b"x" * (1 << 20)
    ledger._done += range(10_000)
    ledger._values += [(number, large) for number in range(10_000, 10_070)]
    for number in range(20_000, 20_070):
        ledger.refuse(Pending(number, 0, None, ()), LibraryError("y" * (1 << 20)))
    messages = ledger.take()
    assert [op for m in messages for op in m.done] == list(range(10_000))
    assert [op for m in messages for op, _ in m.values] == list(range(10_000, 10_070))
    assert [op for m in messages for op, _ in m.failed] == list(range(20_000, 20_070))
    assert max(len(encode_frame(m)) for m in messages) < MAX_FRAME // 8
    assert not ledger.take()
