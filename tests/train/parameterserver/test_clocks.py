"""``Clocks``: no two live workers are further apart than the slack, and the slowest one can always go on."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from callboard.train.parameterserver.clocks import Clocks
from callboard.train.parameterserver.consistency import Consistency

LEASE = 10.0
WORKERS = st.sampled_from("abcd")


class Interleavings(RuleBasedStateMachine):
    """Workers come, push where they may, fall silent, and return."""

    @initialize(slack=st.integers(0, 4))
    def begin(self, slack: int) -> None:
        self.slack = slack or 1
        self.clocks = Clocks(Consistency.Ssp(slack) if slack else Consistency.Bsp(), LEASE)
        self.now = 0.0
        self.heard: dict[str, float] = {}

    @rule(worker=WORKERS)
    def hear(self, worker: str) -> None:
        self.clocks.hear(worker, self.now)
        self.heard[worker] = self.now

    @rule(worker=WORKERS)
    def push(self, worker: str) -> None:
        if worker in self.heard and self.clocks.has_room(worker):
            before = self.clocks.clock[worker]
            self.clocks.count(worker)
            assert self.clocks.clock[worker] == before + 1

    @rule(seconds=st.sampled_from([1.0, 4.0, LEASE]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        lost = self.clocks.expire(self.now)
        assert all(self.heard[str(worker)] + LEASE <= self.now for worker in lost)
        assert all(self.heard[str(worker)] + LEASE > self.now for worker in self.clocks.live)

    @rule(worker=WORKERS)
    def leave(self, worker: str) -> None:
        self.clocks.drop(worker)

    @invariant()
    def the_gap_is_bounded(self) -> None:
        if hasattr(self, "clocks"):
            live = [self.clocks.clock[worker] for worker in self.clocks.live]
            assert max(live, default=0) - min(live, default=0) <= self.slack

    @invariant()
    def the_slowest_can_go_on(self) -> None:
        if hasattr(self, "clocks"):
            slowest = [one for one in self.clocks.live if self.clocks.clock[one] == self.clocks.slowest]
            assert all(map(self.clocks.has_room, slowest))


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_a_call_that_runs_keeps_its_worker_alive() -> None:
    clocks = Clocks(Consistency.Asp(), LEASE)
    clocks.enter("a", 0.0)
    clocks.hear("b", 5.0)
    assert clocks.next_expiry(6.0) == 9.0
    assert clocks.expire(100.0) == ["b"]
    clocks.leave("a", 100.0)
    assert clocks.next_expiry(101.0) == 9.0
    assert clocks.expire(110.0) == ["a"]
    assert clocks.next_expiry(110.0) is None
