"""The ledger: an op's verdict comes after those of the ops whose results it reads, whatever order streams finish in."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.core.errors import LibraryError
from callboard.device.context.pending import FAILED, OK, Pending
from callboard.device.context.trace import KernelTrace
from callboard.device.context.tracks import Track
from callboard.device.context.verdicts import Ledger

OPS = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.integers(1, 6), max_size=3), st.sampled_from(["fine", "fine", "fails"])),
    min_size=1,
    max_size=40,
)


def fail(number: int) -> Any:
    def check() -> None:
        raise LibraryError(f"op {number}", "x", number)

    return check


@settings(max_examples=200)
@given(OPS, st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), max_size=30), st.booleans())
def test_verdicts_follow_producers(program: list[Any], finishes: list[tuple[int, int]], traced: bool) -> None:
    ledger = Ledger()
    ledger.trace = KernelTrace() if traced else None
    tracks = [Track(None) for _ in range(3)]  # type: ignore[arg-type]
    ops: dict[int, Pending] = {}
    sources: dict[int, list[int]] = {}
    for number, (at, back, outcome) in enumerate(program, 1):
        track = tracks[at]
        track.issued += 1
        read = sorted({number - b for b in back if number - b > 0})
        op = Pending(number, track.issued, None, [ops[r] for r in read])
        if outcome == "fails":
            op.check = fail(number)
        ops[number], sources[number] = op, read
        track.ops.append(op)
    order: list[int] = []
    roots: dict[int, int] = {}

    def take() -> None:
        message = ledger.take()
        if message is not None:
            batch = [*message.done, *(f.id for f in message.failed)]
            for failure in message.failed:
                roots[failure.id] = failure.cause or failure.id
                assert failure.message == f"op {roots[failure.id]}"
            order.extend(batch)
            for number in batch:  # in one message or an earlier one
                assert all(r in order for r in sources[number])

    for at, more in [*finishes, (0, 99), (1, 99), (2, 99)]:
        tracks[at].completed = min(tracks[at].issued, tracks[at].completed + more)
        ledger.settle(tracks)
        take()
    assert sorted(order) == list(range(1, len(program) + 1))
    assert ledger.settle(tracks) is False
    assert ledger.take() is None
    for number, (_, _, outcome) in enumerate(program, 1):
        inherits = any(ops[r].state == FAILED for r in sources[number])
        assert ops[number].state == (FAILED if outcome == "fails" or inherits else OK)
        if inherits:  # what it says itself it says of numbers that nobody wrote
            assert roots[number] in {roots[r] for r in sources[number] if ops[r].state == FAILED}
        elif outcome == "fails":
            assert roots[number] == number


def test_an_op_keeps_its_producers_no_longer_than_it_needs_them() -> None:
    ledger, track = Ledger(), Track(None)  # type: ignore[arg-type]
    first = Pending(1, 1, None, ())
    second = Pending(2, 2, None, [first])
    track.ops.extend([first, second])
    track.completed = 2
    assert not ledger.settle([track])
    assert not second.sources
    assert not track.ops
