"""State machines: mailboxes and whole trees against a model."""

import asyncio
from collections import deque
from typing import Any

from actor_lab import Do, Fail, Lab, Note, barrier
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from callboard.actors import (
    ActorRef,
    ActorStopped,
    ActorSystem,
    Directive,
    Mailbox,
    MailboxFull,
    ManualClock,
    OneForOne,
    Props,
    Terminated,
)

BOUNDED = settings(max_examples=40, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck))


class LaneMachine(RuleBasedStateMachine):
    """A bounded lane and those who wait for room, against two deques."""

    @initialize(capacity=st.integers(1, 4), policy=st.sampled_from(["fail", "drop_new", "drop_old"]))
    def make(self, capacity: int, policy: Any) -> None:
        self.capacity, self.policy = capacity, policy
        self.rejected: list[Any] = []
        self.lane = Mailbox(capacity, policy).lane("/x", lambda item, reason: self.rejected.append(item))
        self.model: deque[int] = deque()
        self.waiting: deque[tuple[int, Any]] = deque()
        self.lost: list[int] = []
        self.admitted: list[int] = []
        self.expected: list[int] = []
        self.next = 0

    def item(self) -> int:
        self.next += 1
        return self.next

    @rule()
    def push(self) -> None:
        item = self.item()
        refused = False
        try:
            self.lane.push(item)
        except MailboxFull:
            refused = True
        full = len(self.model) >= self.capacity
        assert refused == (full and self.policy == "fail")
        if not full:
            self.model.append(item)
        elif self.policy == "drop_new":
            self.lost.append(item)
        elif self.policy == "drop_old":
            self.lost.append(self.model.popleft())
            self.model.append(item)

    @rule()
    def offer(self) -> None:
        item = self.item()

        def admitted(ok: bool) -> None:
            assert ok
            self.admitted.append(item)

        at_once = self.lane.wait_for_room(item, admitted)
        assert at_once == (not self.waiting and len(self.model) < self.capacity)
        if at_once:
            self.model.append(item)
        else:
            self.waiting.append((item, admitted))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.waiting) - 1))
        _, callback = self.waiting[index]
        del self.waiting[index]
        assert self.lane.give_up(callback)
        assert not self.lane.give_up(callback)

    @rule(n=st.integers(1, 3))
    def put_back(self, n: int) -> None:
        items = [self.item() for _ in range(n)]
        self.lane.push_front(items)
        self.model.extendleft(reversed(items))

    @rule()
    def push_always(self) -> None:
        item = self.item()
        self.lane.push_always(item)
        self.model.append(item)

    @precondition(lambda self: self.model)
    @rule()
    def pop(self) -> None:
        assert self.lane.pop() == self.model.popleft()
        if self.waiting and len(self.model) < self.capacity:
            item, _ = self.waiting.popleft()
            self.model.append(item)
            self.expected.append(item)

    @invariant()
    def agrees_with_the_model(self) -> None:
        assert list(self.lane.items) == list(self.model)
        assert (self.rejected, self.admitted) == (self.lost, self.expected)


class Member(Lab):
    """A member of the tree; counts, and remembers whom it lost."""

    supervision = OneForOne({ValueError: Directive.RESTART, KeyError: Directive.STOP, LookupError: Directive.RESUME})

    def __init__(self, lost: list[int]) -> None:
        super().__init__()
        self.count = 0
        self.lost = lost

    @Note.handles
    def note(self, m: Note) -> None:
        self.count += 1

    @Terminated.handles
    def terminated(self, m: Terminated) -> None:
        self.lost.append(m.ref.uid)


class Model:
    """What a member should be like."""

    def __init__(self, ref: ActorRef[Member], parent: "Model | None", lost: list[int]) -> None:
        self.ref, self.parent, self.lost = ref, parent, lost
        self.alive = True
        self.count = 0
        self.children: list[Model] = []
        self.watching: set[int] = set()
        self.heard: list[int] = []

    def below(self) -> "list[Model]":
        return [self, *(m for child in self.children for m in child.below())]


class TreeMachine(RuleBasedStateMachine):
    """Spawn, tell, ask, fail, kill, stop, watch in any order (SupervisorHierarchySpec: survive being stressed)."""

    members = Bundle("members")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.system = ActorSystem("tree", clock=ManualClock(), supervision=Member.supervision)
        self.runner.run(self.system.start())
        self.all: list[Model] = []

    def teardown(self) -> None:
        self.runner.run(self.system.stop())
        assert all(m.ref.is_stopped for m in self.all)
        assert asyncio.all_tasks(self.runner.get_loop()) == set()
        self.runner.close()

    def drive(self, call: Any) -> Any:
        async def step() -> Any:
            return await call()

        return self.runner.run(step())

    def died(self, model: Model) -> None:
        gone = [m for m in model.below() if m.alive]
        for m in gone:
            m.alive = False
        if model.parent is not None:
            model.parent.children.remove(model)
        uids = {m.ref.uid for m in gone}
        for other in self.all:
            if other.alive:
                other.heard.extend(sorted(other.watching & uids))
                other.watching -= uids
        model.children = []

    @rule(target=members)
    def spawn_top(self) -> Model:
        lost: list[int] = []

        async def call() -> ActorRef[Member]:
            return self.system.actor_of(Props(Member, lost))

        model = Model(self.drive(call), None, lost)
        self.all.append(model)
        return model

    @rule(target=members, parent=members)
    def spawn_child(self, parent: Model) -> Model:
        if not parent.alive:
            return parent
        lost: list[int] = []
        ref = self.drive(lambda: parent.ref.ask(Do(call=lambda a: a.actor_of(Props(Member, lost)))))
        model = Model(ref, parent, lost)
        parent.children.append(model)
        self.all.append(model)
        return model

    @rule(model=members, n=st.integers(1, 200))
    def tell(self, model: Model, n: int) -> None:
        async def call() -> None:
            for _ in range(n):
                model.ref.tell(Note(text="x"))

        self.drive(call)
        model.count += n if model.alive else 0

    @rule(model=members)
    def ask(self, model: Model) -> None:
        async def call() -> Any:
            return await model.ref.ask(Do(call=lambda a: a.count))

        try:
            assert self.drive(call) == model.count
            assert model.alive
        except ActorStopped:
            assert not model.alive

    @rule(model=members, error=st.sampled_from([ValueError, LookupError, KeyError]))
    def fail(self, model: Model, error: type[Exception]) -> None:
        async def call() -> None:
            try:
                await model.ref.ask(Fail(error=error("x")))
            except ActorStopped:
                assert not model.alive
            except error:
                assert model.alive
            if error is KeyError:
                await model.ref.stopped()
            elif model.alive:
                await barrier(model.ref)

        self.drive(call)
        if not model.alive or error is LookupError:
            return
        if error is KeyError:
            self.died(model)
            return
        # A restart: a new instance, and the children are stopped without a word to this parent.
        model.count = 0
        for child in list(model.children):
            model.watching.discard(child.ref.uid)
            self.died(child)

    @rule(model=consumes(members), how=st.sampled_from(["stop", "poison"]))
    def stop(self, model: Model, how: str) -> None:
        async def call() -> None:
            getattr(model.ref, how)()
            assert await model.ref.stopped() is None or not model.alive

        self.drive(call)
        if model.alive:
            self.died(model)

    @rule(watcher=members, watched=members)
    def watch(self, watcher: Model, watched: Model) -> None:
        if not watcher.alive or watcher is watched:
            return
        self.drive(lambda: watcher.ref.ask(Do(call=lambda a: a.watch(watched.ref))))
        if watched.alive:
            watcher.watching.add(watched.ref.uid)
        else:
            watcher.heard.append(watched.ref.uid)

    @rule(watcher=members, watched=members)
    def unwatch(self, watcher: Model, watched: Model) -> None:
        if watcher.alive:
            self.drive(lambda: watcher.ref.ask(Do(call=lambda a: a.unwatch(watched.ref))))
            watcher.watching.discard(watched.ref.uid)

    @invariant()
    def agrees_with_the_model(self) -> None:
        async def settle() -> None:
            # Twice: what the first round sets off (an obituary) is handled before the second is answered.
            for _ in range(2):
                for model in self.all:
                    if model.alive:
                        await barrier(model.ref)

        self.drive(settle)
        for model in self.all:
            assert model.ref.is_stopped == (not model.alive)
            if model.alive:
                assert sorted(model.lost) == sorted(model.heard)
        assert {ref.uid for ref in self.system.actors} == {m.ref.uid for m in self.all if m.alive and not m.parent}


TestLane = LaneMachine.TestCase
TestLane.settings = BOUNDED
TestTree = TreeMachine.TestCase
TestTree.settings = BOUNDED
