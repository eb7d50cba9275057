"""A state machine: whatever is lost, each op ends once and in its own generation, and all are told in order."""

import asyncio
from typing import Any, NamedTuple
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.device.supervision.scripted import ScriptedHost, ScriptedStarter

import callboard as cb
import callboard.system
from callboard.actors import ManualClock
from callboard.device.protocol.messages import Ready
from callboard.device.supervision import standby as standby_module
from callboard.device.supervision.actor import DELAYS
from callboard.device.supervision.hosts import starting

WITHIN = 60.0


class Accepted(NamedTuple):
    """An op without an answer."""

    reply: Any
    generation: int


class GenerationMachine(RuleBasedStateMachine):
    """A device whose hosts do what the rules say, against a model of its life."""

    @initialize(
        kind=st.sampled_from(["hot", "warm", None]),
        budget=st.sampled_from([None, None, 2]),
        at_once=st.booleans(),
        many_cores=st.booleans(),
    )
    def open(self, kind: str | None, budget: int | None, at_once: bool, many_cores: bool) -> None:
        self.kind, self.budget, self.many_cores = kind, budget, many_cores
        self.cores = starting.CORES if many_cores else 1
        self.replaced = False  # a standby was started when the context was lost, before the next one is ready
        self.clock = ManualClock()
        self.faults: list[str] = []
        self.run(self._open())
        self.generation = self.dev.generation
        self.lineage = [self.generation]
        self.state = "starting"
        self.fruitless = 0
        self.losses: list[float] = []
        self.host: ScriptedHost | None = None
        self.spare: ScriptedHost | None = None
        self.spare_ready = False
        self.owes_ready = False  # the host took over before it had said that it is ready as a standby
        self.due: float | None = None  # when a host is started again
        self.old: list[ScriptedHost] = []  # lost, and perhaps still there
        self.ops: dict[int, Accepted] = {}
        self.sent: dict[int, list[int]] = {self.generation: []}  # accepted ops by generation, in order
        self.refs: list[cb.GpuRef] = []
        self.makes: dict[int, int] = {}
        self.told: list[tuple[Any, ...]] = []
        self.published: list[int] = []
        self.weights = self.dev.per_generation(self._make)
        self.uses: list[tuple[asyncio.Task[Any], int]] = []
        self.settle()
        if at_once:
            self.host_is_ready()

    async def _open(self) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.faults.append(str(context)))
        self.system = await cb.System("machine", clock=self.clock).start()
        self.dev = await self.system.device(
            "cpu", isolation="process", standby=self.kind, max_restarts=self.budget, within=WITHIN, wait=False
        )
        self.dev._actor.clock = self.clock.time
        self.events: list[Any] = []
        self.watched: list[int] = []
        self.readers = [asyncio.create_task(self._read()), asyncio.create_task(self._watch())]

    async def _read(self) -> None:
        async for event in self.dev.events():
            self.events.append(event)

    async def _watch(self) -> None:
        async for generation in self.dev.watch_generation():
            self.watched.append(generation)

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.starter = ScriptedStarter()
        self.patches = [
            mock.patch.object(callboard.system, "starter_for", return_value=self.starter),
            mock.patch.object(standby_module, "cores", side_effect=lambda: self.cores),
            mock.patch.object(standby_module, "STARTING", starting.Starting()),
            *(mock.patch.object(module, "SETTLE", 0.0) for module in (standby_module, starting)),
            mock.patch.object(standby_module, "DELAYS", (0.0,)),  # in real time otherwise, which a model cannot know
        ]
        for patch in self.patches:
            patch.start()

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def settle(self) -> None:
        """Let everything happen that needs nobody; find the hosts that were started."""
        self.run(_turns())
        if self.state in ("starting", "rebuilding") and self.host is None and self.due is None:
            self.host = self.started("active")
        if self.due is not None:
            assert all(h in self.old for h in self.starter.hosts if h.role == "active")
        wanted = self.state == "ready" or (self.state == "rebuilding" and self.replaced)
        if wanted and self.kind is not None and self.spare is None:
            self.spare = self.started("standby")
            self.spare_ready = False

    def started(self, role: str) -> ScriptedHost:
        """The host that has been started for a role, and that the model does not know yet."""
        known = [*self.old, self.host, self.spare]
        return next(h for h in self.starter.hosts if h.role == role and h not in known)

    def _make(self, dev: cb.Device) -> Any:
        self.makes[dev.generation] = self.makes.get(dev.generation, 0) + 1
        return self.accept(dev.empty((4,)))

    def accept(self, reply: Any) -> Any:
        self.ops[reply._op] = Accepted(reply, self.generation)
        self.sent[self.generation].append(reply._op)
        return reply

    # -- what users do -------------------------------------------------------------------------------------------------

    def called(self, call: Any, *refs: cb.GpuRef) -> Any:
        """Call an op; it is accepted, or refused for the reason that the model knows."""
        if self.state == "stopped":
            with pytest.raises(cb.DeviceStopped):
                call()
            return None
        stale = [ref for ref in refs if ref.generation != self.generation]
        if stale:
            with pytest.raises(cb.GpuRefStale, match="context rebuilt") as caught:
                call()
            assert caught.value.generation == stale[0].generation
            return None
        return self.accept(call())

    @rule()
    def make(self) -> None:
        ref = self.called(lambda: self.dev.empty((4,)))
        if ref is not None:
            assert ref.generation == self.generation
            self.refs.append(ref)

    @precondition(lambda self: self.refs)
    @rule(data=st.data())
    def derive(self, data: st.DataObject) -> None:
        ref = data.draw(st.sampled_from(self.refs[-6:]))
        made = self.called(lambda: self.dev.copy(ref), ref)
        if made is not None:
            self.refs.append(made)

    @precondition(lambda self: len(self.refs) > 1)
    @rule(data=st.data())
    def dot(self, data: st.DataObject) -> None:
        x, y = data.draw(st.sampled_from(self.refs[-6:])), data.draw(st.sampled_from(self.refs[-6:]))
        self.called(lambda: self.dev.blas.dot(x, y), x, y)

    @rule()
    def use_weights(self) -> None:
        use = self.loop.create_task(self.weights())
        self.settle()
        self.uses.append((use, self.generation))

    # -- what hosts do -------------------------------------------------------------------------------------------------

    def opened(self) -> None:
        """The active host has its context, and it is published."""
        assert self.host is not None
        self.state, self.fruitless = "ready", 0
        self.published.append(self.generation)
        if len(self.lineage) > 1:
            self.told.append(("Recovered", self.generation, self.took_over))

    @precondition(lambda self: self.state in ("starting", "rebuilding") and self.host is not None)
    @rule()
    def host_is_ready(self) -> None:
        self.host.ready()
        self.opened()
        self.settle()

    @precondition(lambda self: self.state == "rebuilding" and self.host is not None and self.owes_ready)
    @rule()
    def what_took_over_is_ready_as_a_standby(self) -> None:
        """It said so, once, before it was told to take over; it has no context of this generation yet."""
        self.owes_ready = False
        self.host.say(Ready(0, self.host.hot, {}, {}))
        self.settle()

    @precondition(lambda self: self.host is not None and self.state == "ready")
    @rule(count=st.integers(1, 5))
    def host_answers(self, count: int) -> None:
        numbers = {i: a for i, a in self.ops.items() if not isinstance(a.reply, cb.GpuRef)}
        values = {i: float(self.lineage.index(a.generation)) for i, a in numbers.items()}
        for op in self.host.answer(count, values):
            accepted = self.ops.pop(op)
            assert accepted.generation == self.generation
            assert accepted.reply.exception() is None
            if op in values:
                assert self.run(_awaited(accepted.reply)) == values[op]
        self.settle()

    def lose(self, host: ScriptedHost) -> None:
        """The model of a loss: everything accepted fails, and the next host is on its way, or nothing goes on."""
        now = self.clock.time()
        lost, failed = self.generation, list(self.ops.values())
        self.old.append(host)
        self.host = None
        self.run(_turns())
        self.told.append(("Lost", lost, len(failed)))
        self.losses = [t for t in self.losses if now - t < WITHIN]
        stops = self.budget is not None and len(self.losses) >= self.budget
        self.ops.clear()
        for accepted in failed:
            error = accepted.reply.exception()
            assert type(error) is (cb.DeviceStopped if stops else cb.ContextPoisoned), repr(error)
            assert error.generation == lost
            assert stops or 0 < len(error.suspects) <= len(failed)
        if stops:
            self.state = "stopped"
            self.told.append(("Stopped",))
            if self.spare is not None:
                assert self.spare.reaped.done()
            return
        self.losses.append(now)
        assert self.dev.generation > lost
        self.generation = self.dev.generation
        self.lineage.append(self.generation)
        self.sent[self.generation] = []
        self.fruitless = 0 if self.state == "ready" else self.fruitless + 1
        self.state = "rebuilding"
        self.replaced = self.many_cores and not self.fruitless
        if self.spare is not None:
            self.host, self.spare = self.spare, None
            hot = self.host.hot and self.spare_ready
            self.took_over = "hot" if hot else "warm"
            self.owes_ready = not self.spare_ready
            if hot:
                self.opened()
        else:
            self.took_over, self.owes_ready = "cold", False
            delay = DELAYS[min(self.fruitless, len(DELAYS) - 1)]
            self.due = now + delay if delay else None
        self.settle()

    @precondition(lambda self: self.host is not None)
    @rule(how=st.sampled_from(["dies", "reports", "cannot open"]))
    def the_host_is_lost(self, how: str) -> None:
        host = self.host
        match how:
            case "dies":
                host.end("killed", "by the machine")
            case "reports":
                host.report(cb.ContextPoisoned("by the machine"))
            case "cannot open":
                host.report(cb.DriverError("by the machine"))
        self.lose(host)

    @precondition(lambda self: any(not h.reaped.done() for h in self.old))
    @rule(data=st.data(), what=st.sampled_from(["ready", "report", "answer", "end"]))
    def a_lost_host_says_something(self, data: st.DataObject, what: str) -> None:
        """Nothing of it counts any more."""
        host = data.draw(st.sampled_from([h for h in self.old if not h.reaped.done()]))
        match what:
            case "ready":
                host.ready()
            case "report":
                host.report(cb.ContextPoisoned("once more"))
            case "answer":
                host.answer(3, {})
            case "end":
                host.end("exited")
        self.settle()

    @precondition(lambda self: self.spare is not None and self.state != "stopped")
    @rule()
    def the_standby_is_ready(self) -> None:
        if not self.spare_ready:
            self.spare.ready()
            self.spare_ready = True
            self.settle()

    @precondition(lambda self: self.spare is not None and self.state != "stopped")
    @rule(how=st.sampled_from(["end", "report"]))
    def the_standby_dies(self, how: str) -> None:
        """It costs nobody anything: another is started."""
        spare, self.spare = self.spare, None
        self.old.append(spare)
        if how == "end":
            spare.end("killed")
        else:
            spare.report(cb.ContextPoisoned("of a standby"))
        self.run(_turns())
        self.spare = self.started("standby")
        self.spare_ready = False

    @rule(seconds=st.sampled_from([0.01, 1.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.run(_advanced(self.clock, seconds))
        if self.due is not None and self.clock.time() >= self.due:
            self.due = None
        self.settle()

    # -- what always holds ---------------------------------------------------------------------------------------------

    @invariant()
    def each_op_waits_in_its_generation(self) -> None:
        if not hasattr(self, "weights"):
            return
        assert all(not a.reply.done() and a.generation == self.generation for a in self.ops.values())
        assert self.dev.health().state == self.state
        if self.state == "stopped":
            return
        assert self.dev.generation == self.generation
        assert self.lineage == sorted(set(self.lineage))
        for ref in self.refs:
            assert ref.is_stale == (ref.generation != self.generation)

    @invariant()
    def hosts_are_sent_the_ops_of_their_generation_in_order(self) -> None:
        for host in self.starter.hosts if hasattr(self, "weights") else ():
            assert host.wrong == []
            assert host.calls == self.sent.get(host.generation, [])[: len(host.calls)]
        if hasattr(self, "weights") and self.state == "ready":
            self.run(_turns())
            assert self.host is not None
            assert self.host.calls == self.sent[self.generation]

    @invariant()
    def all_is_told_in_order(self) -> None:
        if not hasattr(self, "weights"):
            return
        told = [_plain(event) for event in self.events]
        assert told == self.told, (told, self.told)
        assert self.watched == self.published
        assert self.dev.watch_generation().value == (self.published[-1] if self.published else 0)
        assert self.faults == []

    @invariant()
    def what_is_kept_per_generation_is_made_once_in_each(self) -> None:
        for use, generation in self.uses if hasattr(self, "weights") else ():
            if use.done() and use.exception() is None:
                assert use.result().generation == generation
            elif use.done():
                assert isinstance(use.exception(), cb.ContextPoisoned | cb.DeviceStopped)
        assert all(count == 1 for count in getattr(self, "makes", {}).values()) or self.state == "stopped"

    def teardown(self) -> None:
        if hasattr(self, "dev"):
            self.run(self.dev.close())
            self.run(asyncio.gather(*self.readers))
            for use, _ in self.uses:
                use.cancel()
            for accepted in self.ops.values():
                assert isinstance(accepted.reply.exception(), cb.DeviceStopped)
            assert all(host.reaped.done() for host in self.starter.hosts if host not in self.old)
            self.run(self.system.stop())
            self.run(_turns())
        for patch in self.patches:
            patch.stop()
        self.loop.close()


async def _turns() -> None:
    for _ in range(25):
        await asyncio.sleep(0)


async def _awaited(reply: Any) -> Any:
    return await reply


async def _advanced(clock: ManualClock, seconds: float) -> None:
    clock.advance(seconds)
    await _turns()


def _plain(event: Any) -> tuple[Any, ...]:
    match event:
        case cb.Lost():
            return ("Lost", event.generation, event.failed)
        case cb.Recovered():
            return ("Recovered", event.generation, event.standby)
    return ("Stopped",)


GenerationMachine.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestGenerations = GenerationMachine.TestCase
