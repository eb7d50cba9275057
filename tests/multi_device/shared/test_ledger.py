"""The table of a shared region as a state machine: leases, fences, handovers, losses, another holder."""

from collections import deque
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from callboard.multi_device.sharding.shared import Closing, Fences, Granted, Ledger
from callboard.multi_device.sharding.shared.member import SHARE

SHARDS = 4
LEASE = 8.0
NAMES = ["ada", "bob", "eve"]
name = st.sampled_from(NAMES)


class Application:
    """A member as it sees itself: what it owns, until when, and messages under way."""

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead
        self.connected = False
        self.valid = 0.0
        self.owned: dict[int, tuple[str, int]] = {}
        self.up: deque[tuple[str, Any]] = deque()
        self.down: deque[Granted | Closing] = deque()
        self.known = 0, 0
        """What survives of the holder's knowledge; that an application of those that knew it is left is assumed."""
        self.newest = 0
        """Generation of its newest context."""

    def disconnect(self) -> None:
        self.connected = False
        self.up.clear()
        self.down.clear()


class Shared(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.fences = Fences()
        self.ledger = Ledger(SHARDS, LEASE, self.fences)
        self.apps = {key: Application(ahead) for key, ahead in zip(NAMES, (0, 30_000, -30_000), strict=True)}
        self.last = [0] * SHARDS
        """Greatest fence or generation of each shard's owners so far."""

    @property
    def ms(self) -> int:
        return int(self.now * 1000)

    def tell(self, steps: list[Granted | Closing]) -> None:
        for step in steps:
            self.apps[step.member].down.append(step)

    @initialize()
    def begin(self) -> None:
        """All take part and own something: what follows finds more from there."""
        for who in NAMES:
            self.join(who, 1)
        self.settle()

    @rule(who=name, devices=st.integers(1, 2))
    def join(self, who: str, devices: int) -> None:
        app = self.apps[who]
        if app.connected:
            return
        app.connected = True
        app.valid = self.now + SHARE * LEASE
        self.fences.heard(self.ms + app.ahead, self.ms)
        self.fences.seen(*app.known)
        offered = {f"{who}{index}": 1.0 for index in range(devices)}
        self.tell(self.ledger.join(who, offered, app.owned, self.now, self.ms))

    @rule(who=name, devices=st.integers(0, 2))
    def offer(self, who: str, devices: int) -> None:
        if self.apps[who].connected:
            self.apps[who].up.append(("offer", {f"{who}{index}": 1.0 for index in range(devices)}))

    @rule(who=name)
    def renew(self, who: str) -> None:
        if self.apps[who].connected:
            self.apps[who].up.append(("renew", self.now))

    @rule(who=name, up=st.integers(0, 2), down=st.integers(1, 9))
    def deliver(self, who: str, up: int, down: int) -> None:
        for _ in range(up):
            self.reach_the_holder(who)
        for _ in range(down):
            self.reach_the_application(who)

    def reach_the_holder(self, who: str) -> None:
        app = self.apps[who]
        if not app.up:
            return
        kind, value = app.up.popleft()
        if kind == "renew":
            assert self.ledger.renew(who, self.now)
            app.valid = max(app.valid, value + SHARE * LEASE)
            app.known = self.fences.last, self.fences.ahead
        elif kind == "offer":
            self.tell(self.ledger.offer(who, value, self.now, self.ms))
        else:
            self.tell(self.ledger.released(who, *value, self.now, self.ms))

    def reach_the_application(self, who: str) -> None:
        app = self.apps[who]
        if not app.down:
            return
        step = app.down.popleft()
        if isinstance(step, Granted):
            assert step.fence > self.last[step.shard]
            self.last[step.shard] = step.fence
            app.owned[step.shard] = step.device, step.fence
        else:
            if app.owned.get(step.shard, ("", 0))[1] == step.fence:
                del app.owned[step.shard]
            app.up.append(("released", (step.shard, step.fence)))

    def open_a_context(self, app: Application) -> None:
        """The application's generations follow its own clock, and its fences."""
        fences = [fence for _, fence in app.owned.values()]
        app.newest = max([(self.ms + app.ahead) << 20, app.newest + 1, *(fence + 1 for fence in fences)])
        for shard in app.owned:
            self.last[shard] = max(self.last[shard], app.newest)

    @rule(who=name, dies=st.booleans())
    def cut(self, who: str, dies: bool) -> None:
        app = self.apps[who]
        if app.connected:
            self.ledger.cut(who)
            app.disconnect()
        if dies:
            app.owned.clear()

    @rule(who=name)
    def leave(self, who: str) -> None:
        app = self.apps[who]
        if app.connected and not app.up:
            app.owned.clear()
            self.tell(self.ledger.leave(who, self.now, self.ms))
            app.disconnect()

    @rule(seconds=st.sampled_from([0.0, 2.0, 5.0]))
    def wait(self, seconds: float) -> None:
        """Time passes, and each application opens a context."""
        self.now += seconds
        for who, app in self.apps.items():
            self.open_a_context(app)
            if self.now >= app.valid:
                app.owned.clear()
                if app.connected:
                    self.ledger.cut(who)
                    app.disconnect()

        self.look_for_expired_leases()

    def look_for_expired_leases(self) -> None:
        for who in self.ledger.expired(self.now):
            self.apps[who].disconnect()
            self.tell(self.ledger.leave(who, self.now, self.ms))
        self.tell(self.ledger.tick(self.now, self.ms))

    @rule(who=name)
    def come_back_and_get(self, who: str) -> None:
        self.join(who, 1)
        self.deliver(who, 2, 9)

    @rule()
    def another_holder(self) -> None:
        for app in self.apps.values():
            app.disconnect()
        self.fences = Fences()
        self.ledger = Ledger(SHARDS, LEASE, self.fences, opens=self.now + LEASE)

    def deliver_all(self) -> None:
        while any(app.up or app.down for app in self.apps.values()):
            for who in NAMES:
                self.reach_the_holder(who)
                self.reach_the_application(who)

    @rule()
    def settle(self) -> None:
        """When no message is under way and no lease expires, the table is what follows from the devices."""
        for who in NAMES:
            self.renew(who)
        self.look_for_expired_leases()
        self.deliver_all()
        if all(self.apps[who].connected for who in self.ledger.members) and self.now >= self.ledger.opens:
            self.look_for_expired_leases()
            self.deliver_all()
            assert self.ledger.settled
            owned = [shard for app in self.apps.values() for shard in app.owned]
            assert sorted(owned) == (list(range(SHARDS)) if self.ledger.has_devices else [])
            for who, app in self.apps.items():
                assert all(self.ledger.owns(who, shard, fence) for shard, (_, fence) in app.owned.items())

    @invariant()
    def a_shard_has_one_owner_at_a_time(self) -> None:
        owned = [shard for app in self.apps.values() for shard in app.owned if self.now < app.valid]
        assert len(owned) == len(set(owned))


Shared.TestCase.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)
test_a_shard_has_one_owner_whatever_is_lost = Shared.TestCase


def test_answers_of_an_earlier_owner_do_not_count() -> None:
    ledger = Ledger(1, LEASE, Fences())
    (first,) = ledger.join("ada", {"a": 1.0}, {}, 0.0, 0)
    assert isinstance(first, Granted)
    assert ledger.owns("ada", 0, first.fence)
    ledger.cut("ada")
    assert ledger.join("bob", {"b": 1.0}, {}, 4.0, 0) == []
    assert ledger.expired(7.9) == []
    assert ledger.expired(8.0) == ["ada"]
    (second,) = ledger.leave("ada", 8.0, 0)
    assert (second.member, second.device) == ("bob", "b")
    assert second.fence > first.fence
    assert not ledger.owns("ada", 0, first.fence)
    (refused,) = ledger.join("ada", {}, {0: ("a", first.fence)}, 9.0, 0)
    assert refused == Closing("ada", 0, first.fence)


def test_another_holder_grants_nothing_that_may_be_owned() -> None:
    """Until leases of the earlier holder have expired, a shard is granted to its claimant only."""
    fences = Fences()
    (first,) = Ledger(1, LEASE, Fences()).join("ada", {"a": 1.0}, {}, 0.0, 0)
    assert isinstance(first, Granted)
    ledger = Ledger(1, LEASE, fences, opens=2.0 + LEASE)
    assert ledger.join("bob", {"b": 1.0}, {}, 2.0, 0) == []
    assert not ledger.settled
    assert ledger.join("ada", {"a": 1.0}, {0: ("a", first.fence)}, 3.0, 0) == []
    assert ledger.owns("ada", 0, first.fence)
    ledger.renew("bob", 9.0)
    (second,) = ledger.leave("ada", 9.0, 0) + ledger.tick(9.0, 0) + ledger.tick(10.0, 0)
    assert isinstance(second, Granted)
    assert second.member == "bob"
    assert second.fence > first.fence


def test_fences_exceed_the_generations_of_an_owner_whose_clock_is_ahead() -> None:
    fences = Fences()
    fences.heard(5_000, 1_000)
    first = fences.next(1_000, LEASE)
    assert first > (5_000 + int(LEASE * 1000) - 1) << 20  # a message may be a lease old
    assert fences.next(1_000, LEASE) > first + 1000  # contexts that its owner has opened since


def test_a_shard_is_released_under_its_present_fence_only() -> None:
    ledger = Ledger(1, LEASE, Fences())
    (first,) = ledger.join("ada", {"a": 1.0}, {}, 0.0, 0)
    ledger.leave("ada", 0.0, 0)
    (second,) = ledger.join("ada", {"a": 1.0}, {}, 0.0, 0)
    assert ledger.released("ada", 0, first.fence, 0.0, 0) == []
    assert ledger.owns("ada", 0, second.fence)
    assert ledger.join("bob", {"b": 2.0}, {}, 0.0, 0) == []
    (closing,) = ledger.offer("ada", {}, 0.0, 0)
    assert closing == Closing("ada", 0, second.fence)
    (third,) = ledger.released("ada", 0, second.fence, 0.0, 0)
    assert third.member == "bob"
