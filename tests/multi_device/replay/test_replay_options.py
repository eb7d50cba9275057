"""Options of a harness that are wrong, and snapshots that fail."""

from typing import Any

import pytest

import callboard as cb


class Add(cb.Request["Sum", int]):
    amount: int


class Sum(cb.Actor):
    """Adds; its snapshots fail."""

    def __init__(self, state: Any) -> None:
        self.total = 0
        self.state = state

    @Add.handles
    def add(self, m: Add) -> int:
        self.total += m.amount
        return self.total

    def snapshot(self) -> Any:
        if self.state is None:
            raise ArithmeticError("no state")
        return self.state

    def restore(self, state: Any) -> None:
        raise AssertionError("there is no snapshot")


@pytest.mark.parametrize("state", [None, object()])
async def test_degraded_a_snapshot_that_fails_is_left_out(state: Any, caplog: pytest.LogCaptureFixture) -> None:
    def build(system: cb.ActorSystem) -> cb.ActorRef[Sum]:
        return system.actor_of(cb.Props(Sum, state), "sum")

    async with cb.ReplayHarness(on_failure="degrade", snapshot_every=2) as harness:
        async with cb.ActorSystem("demo", recorder=harness) as system:
            actor = build(system)
            assert [await actor.ask(Add(amount=1)) for _ in range(6)] == [1, 2, 3, 4, 5, 6]
        assert (await harness.verify(build, from_snapshot=True)).inputs == 6
    assert "/demo/sum: no snapshot after input 2" in caplog.text


def test_patterns_are_a_list() -> None:
    with pytest.raises(TypeError, match=r"actors is '/shop/\*'; pass a list of patterns, \['/shop/\*'\]"):
        cb.ReplayHarness(actors="/shop/*")


def test_an_identity_in_memory_is_not_empty() -> None:
    with pytest.raises(ValueError, match="the identity is empty"):
        cb.MemoryJournal().open("")


class Kept(Sum):
    def snapshot(self) -> Any:
        return self.total

    def restore(self, state: Any) -> None:
        self.total = state


@pytest.mark.parametrize("limit", [None, 7])
async def test_a_run_whose_beginning_was_discarded_is_replayed_from_a_snapshot(limit: int | None) -> None:
    def build(system: cb.ActorSystem) -> cb.ActorRef[Kept]:
        return system.actor_of(cb.Props(Kept, None), "sum")

    async with cb.ReplayHarness(journal=cb.MemoryJournal(limit), snapshot_every=2) as harness:
        async with cb.ActorSystem("demo", recorder=harness) as system:
            actor = build(system)
            assert [await actor.ask(Add(amount=1)) for _ in range(6)] == [1, 2, 3, 4, 5, 6]
        await harness.committed()
        if limit is None:
            harness.discard(4)
        report = await harness.verify(build)
        assert report.first is not None
        assert "of it are not in this run of the journal (discarded?); replay from a snapshot" in report.first.got
        report = await harness.verify(build, from_snapshot=True)
        assert (report.same, report.inputs) == (True, 2)
