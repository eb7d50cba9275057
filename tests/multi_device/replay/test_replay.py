"""A replay repeats the recording; differences are named."""

import asyncio
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from replay_lab import (
    Add,
    Beat,
    Count,
    Fail,
    Hire,
    Hold,
    Log,
    Noise,
    Pass,
    Recording,
    Release,
    Total,
    When,
    builder,
)

import callboard as cb
from callboard.multi_device.placement import Candidate
from callboard.multi_device.replay.entries import Gap, Input, Output, Recalled, Run, Snapshot, encode

LIMIT = 30.0


async def until_total(counter: cb.ActorRef[Any], least: int) -> None:
    async with asyncio.timeout(LIMIT):
        while await counter.ask(Total()) < least:
            pass


async def busy(recording: Recording) -> None:
    """Some of everything."""
    counter, clock = recording.counter, recording.clock
    for n in range(3):
        counter.tell(Add(amount=n))
    assert 0 <= await counter.ask(Noise()) < 1
    clock.advance(2.5)
    await recording.settled()
    counter.tell(Hold())
    counter.tell(Add(amount=10))
    counter.tell(Add(amount=11))
    counter.tell(Release())
    await counter.ask(When())
    assert await counter.ask(Pass()) < 0
    await counter.ask(Count())
    counter.tell(Hire(name="helper"))
    await until_total(counter, 1007)  # its child has told it, and has stopped
    with pytest.raises(cb.ReplyError):
        await counter.ask(Fail(text="answer"))
    with pytest.raises(ValueError, match="failure"):
        await counter.ask(Fail(text="failure"))  # and is restarted
    counter.tell(Add(amount=5))
    clock.advance(1.0)
    await recording.settled()


async def test_all_that_actors_do_comes_out_the_same() -> None:
    async with cb.ReplayHarness() as harness:
        async with Recording(harness) as recording:
            await busy(recording)
        report = await harness.verify(builder(harness))
        assert report.same, report.first
        report.check()
        assert report.inputs == sum(isinstance(entry, Input) for _, entry in harness.entries())
        assert report.outputs == sum(isinstance(entry, Output) for _, entry in harness.entries())
        assert (report.skipped, report.environment) == ({}, [])
        kinds = {entry.kind for _, entry in harness.entries() if isinstance(entry, Input)}
        assert kinds == {"tell", "ask", "timer", "watch"}


@pytest.mark.parametrize(
    "bug, expected, got",
    [
        ("total", "reply 3 (int)", "reply 6 (int)"),
        ("silent", "sent ['0', array([0., 0.], dtype=float32)", "reply None (NoneType)"),
        ("dtype", "dtype=float32", "array([0., 0.])"),
        ("chatty", "reply None", "sent ['more', array([], dtype=float64)"),
    ],
)
async def test_the_first_divergence_is_named(bug: str, expected: str, got: str) -> None:
    async with cb.ReplayHarness() as harness:
        async with Recording(harness) as recording:
            for n in range(3):
                recording.counter.tell(Add(amount=n))
            await recording.settled()
        report = await harness.verify(builder(harness, bug))
        first = report.first
        assert first is not None
        assert first.actor == "/demo/counter"
        assert expected in first.expected
        assert got in first.got
        entry = dict(harness.entries())[first.sequence]
        assert isinstance(entry, Output)
        assert entry.number == first.number
        with pytest.raises(cb.ReplayDiverged, match=f"/demo/counter, input {first.number}"):
            report.check()


async def test_going_step_by_step() -> None:
    async with cb.ReplayHarness() as harness:
        async with Recording(harness) as recording:
            recording.counter.tell(Add(amount=4))
            await recording.settled()
        async with await harness.replay(builder(harness)) as replay:
            first = await replay.step()
            assert first is not None
            assert (first.actor, first.number, first.kind) == ("/demo/counter", 1, "ask")
            second = await replay.step()
            assert second is not None
            assert second.message == Add(amount=4)
            assert [text.split()[1] for text in second.outputs] == ["sent", "reply"]
            assert sorted([step.actor async for step in replay]) == ["/demo/counter", "/demo/log"]
            assert await replay.step() is None
            assert replay.report.same


async def test_from_a_snapshot() -> None:
    async with cb.ReplayHarness(snapshot_every=4) as harness:
        async with Recording(harness) as recording:
            for n in range(10):
                recording.counter.tell(Add(amount=n))
            recording.clock.advance(1.0)
            await recording.settled()
        whole = await harness.verify(builder(harness))
        assert whole.same
        report = await harness.verify(builder(harness), from_snapshot=True)
        assert report.same, report.first
        assert 0 < report.inputs < whole.inputs
        shots = [(n, entry) for n, entry in harness.entries() if isinstance(entry, Snapshot)]
        assert [entry.number for _, entry in shots] == [4, 8, 12]
        wrong = await harness.verify(builder(harness, "total"))
        assert wrong.first is not None
        assert (wrong.first.sequence, wrong.first.expected.split()[0]) == (shots[0][0], "state")
        late = await harness.verify(builder(harness, "total"), from_snapshot=True, until=shots[1][0] + 1)
        assert late.inputs < report.inputs


async def test_what_if_a_message_had_been_another() -> None:
    async with cb.ReplayHarness() as harness:
        async with Recording(harness) as recording:
            recording.counter.tell(Add(amount=4))
            await recording.counter.ask(Count())
        await harness.committed()
        sequence = next(n for n, e in harness.entries() if isinstance(e, Input) and e.type.endswith(":Add"))
        report = await harness.what_if(builder(harness), {sequence: Add(amount=40)})
        told = [(each.actor, each.got) for each in report.divergences]
        assert [actor for actor, _ in told] == ["/demo/counter", "/demo/counter"]
        assert "'40'" in told[0][1]
        assert told[1][1] == "reply 41 (int)"  # and the log had the new line
        assert (await harness.verify(builder(harness))).same


async def test_seeds_choices_and_times_outside_of_actors(tmp_path: Any) -> None:
    able = [Candidate(f"uuid-{n}", "cpu") for n in range(3)]
    others = [Candidate(f"elsewhere-{n}", "cpu") for n in range(3)]
    turns = iter([able[2], able[0]])

    def policy(hints: Any, found: Any) -> Any:
        return next(turns)

    journal = cb.FileJournal(tmp_path)
    async with cb.ReplayHarness("record", journal) as harness:
        choose = harness.chooser(policy)
        recorded = harness.seed(), harness.now(), harness.rng().random(3), [choose(None, able) for _ in range(2)]  # type: ignore[arg-type]
    for there in (able, others):
        async with cb.ReplayHarness("replay", journal) as harness:
            choose = harness.chooser(policy)
            seed, now, drawn = harness.seed(), harness.now(), harness.rng().random(3)
            assert (seed, now) == recorded[:2]
            np.testing.assert_array_equal(drawn, recorded[2])
            assert [choose(None, there) for _ in range(2)] == [there[2], there[0]]  # type: ignore[arg-type]
            with pytest.raises(cb.ReplayDiverged, match="asks for 'seed' more often"):
                harness.seed()
    off = cb.ReplayHarness("off")
    assert off.seed() != off.seed()


@pytest.mark.parametrize("is_async", [True, False])
async def test_batches_of_a_server(is_async: bool) -> None:
    weights = 2.0

    def run(items: list[Any]) -> list[Any]:
        return [item * weights for item in items]

    async def run_async(items: list[Any]) -> list[Any]:
        return run(items)

    function: Any = run_async if is_async else run
    async with cb.ReplayHarness() as harness:
        server = cb.DynamicBatchingServer(harness.batches(function, "model"), max_batch=4)
        async with server:
            found = await asyncio.gather(*(server.submit(np.float32([n, n])) for n in range(10)))
        assert [float(each[0]) for each in found] == [2.0 * n for n in range(10)]
        report = await harness.verify(batches={"model": function})
        assert report.same
        assert report.inputs == server.stats().batches
        weights = 3.0
        report = await harness.verify(batches={"model": function})
        assert report.first is not None
        assert report.first.actor == "batches/model"
        assert (await harness.verify()).skipped == {"batches/model": server.stats().batches}


class Plain(cb.Request["Taker", str]):
    value: Any


class Taker(cb.Actor):
    @Plain.handles
    def take(self, m: Plain) -> str:
        return type(m.value).__name__


def taker(system: cb.ActorSystem) -> cb.ActorRef[Taker]:
    return system.actor_of(cb.Props(Taker), "taker")


async def test_a_message_that_cannot_be_recorded_is_refused() -> None:
    async with cb.ReplayHarness() as harness, cb.ActorSystem("demo", recorder=harness) as system:
        ref = taker(system)
        with pytest.raises(cb.NotRecordable, match="a _thread:lock has no form in a journal"):
            await ref.ask(Plain(value=__import__("threading").Lock()))
        assert await ref.ask(Plain(value=1)) == "int"  # and nobody was restarted


async def test_a_message_that_was_refused_is_no_input_of_a_replay() -> None:
    async with cb.ReplayHarness() as harness:
        async with cb.ActorSystem("demo", recorder=harness) as system:
            ref = taker(system)
            assert await ref.ask(Plain(value=1)) == "int"
            with pytest.raises(cb.NotRecordable):
                await ref.ask(Plain(value=object()))
            assert await ref.ask(Plain(value=2.5)) == "float"
        report = await harness.verify(taker, patience=5.0)
    assert (report.same, report.inputs, report.outputs) == (True, 2, 2)


async def test_an_override_of_what_is_no_input_is_refused() -> None:
    async with cb.ReplayHarness() as harness:
        async with cb.ActorSystem("demo", recorder=harness) as system:
            assert await taker(system).ask(Plain(value=1)) == "int"
        with pytest.raises(
            ValueError, match="override has record 99, which is no input of the run; its inputs are from"
        ):
            await harness.what_if(taker, {99: Plain(value=2)})


def test_a_journal_in_place_of_the_mode_is_told_where_it_belongs() -> None:
    for mode in (cb.MemoryJournal(), "records"):
        with pytest.raises(ValueError, match=r"say 'off' or .*; a journal is given as journal="):
            cb.ReplayHarness(mode)  # type: ignore[arg-type]


async def test_degraded_its_class_is_recorded_and_a_replay_stops_there(caplog: pytest.LogCaptureFixture) -> None:
    async with cb.ReplayHarness(on_failure="degrade") as harness:
        async with cb.ActorSystem("demo", recorder=harness) as system:
            assert await taker(system).ask(Plain(value=object())) == "object"
        assert "its class is recorded only" in caplog.text
        with pytest.raises(cb.NotRecordable):
            await harness.verify(taker)


class Broken(cb.MemoryJournal):
    """Fails from when it is told to, and not before it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = False
        self.go = threading.Event()

    def append(self, first: int, records: Any) -> None:
        if self.broken:
            assert self.go.wait(LIMIT)
            raise OSError("disk")
        super().append(first, records)


async def test_a_failed_journal_refuses_messages_and_restarts_nobody() -> None:
    journal = Broken()
    harness = cb.ReplayHarness.with_journal("record", journal)
    await harness.start()
    async with cb.ActorSystem("demo", recorder=harness) as system:
        ref = taker(system)
        assert await ref.ask(Plain(value=1)) == "int"
        await harness.committed()
        journal.broken = True
        await ref.ask(Plain(value=2))  # queued before the failure is known
        journal.go.set()
        with pytest.raises(cb.JournalFailed, match="disk"):
            await harness.committed()
        with pytest.raises(cb.JournalFailed, match="OSError: disk"):
            await ref.ask(Plain(value=3))
        assert harness.stats.failure
    with pytest.raises(cb.JournalFailed):
        await harness.stop()


async def test_a_replay_ends_at_a_gap() -> None:
    journal = cb.MemoryJournal()
    async with cb.ReplayHarness("record", journal) as harness:
        async with cb.ActorSystem("demo", recorder=harness) as system:
            await taker(system).ask(Plain(value=1))
        await harness.committed()
        journal.append(journal.last() + 1, [encode(Gap(3, "disk full"))])
        report = await harness.verify(taker)
        assert not report.same
        assert report.inputs == 1
        with pytest.raises(cb.ReplayDiverged, match=r"3 records are missing here \(disk full\)"):
            report.check()


async def test_runs_filters_and_redaction(tmp_path: Any) -> None:
    journal = cb.FileJournal(tmp_path)

    def redact(value: Any) -> Any:
        return Plain(value="***") if isinstance(value, Plain) else value

    for n in range(2):
        async with cb.ReplayHarness("record", journal, "shop", redact=redact if n else None) as harness:
            async with cb.ActorSystem("demo", recorder=harness) as system:
                await taker(system).ask(Plain(value="secret"))
    async with cb.ReplayHarness("replay", journal, "shop", redact=redact) as harness:
        assert sum(isinstance(entry, Run) for _, entry in harness.entries()) == 2
        first, second = (entry for _, entry in harness.entries(actor="*/taker") if isinstance(entry, Input))
        assert b"secret" in first.message
        assert b"secret" not in second.message
        assert (await harness.verify(taker, run=0)).same
        assert (await harness.verify(taker, run=1)).same
        with pytest.raises(ValueError, match="the journal has 2"):
            await harness.verify(taker, run=2)
        assert [n for n, _ in harness.entries(3, 2)] == [3, 4]


async def test_which_actors_are_recorded() -> None:
    async with cb.ReplayHarness(actors=["*/log"]) as harness:
        async with Recording(harness) as recording:
            await recording.counter.ask(Count())
        await harness.committed()
        assert {e.actor for _, e in harness.entries() if isinstance(e, Input)} == {"/demo/log"}
        assert (await harness.verify(lambda system: system.actor_of(cb.Props(Log), "log"))).same


async def test_actors_that_are_not_built_are_told() -> None:
    async with cb.ReplayHarness() as harness:
        async with Recording(harness) as recording:
            await recording.counter.ask(Count())
        report = await harness.verify(lambda system: system.actor_of(cb.Props(Log), "log"))
        assert report.same
        assert report.skipped == {"/demo/counter": 2}
        assert report.inputs == 1


async def test_a_message_with_a_reference_to_an_actor_that_is_not_built_is_told() -> None:
    async with cb.ReplayHarness() as harness:
        async with Recording(harness) as recording:
            recording.counter.tell(Add(amount=1))
            await recording.counter.ask(Count())
        with pytest.raises(cb.NotRecordable, match="a reference to /demo/counter, and the replay has no such actor"):
            await harness.verify(lambda system: system.actor_of(cb.Props(Log), "log"))


async def test_a_full_mailbox_is_full_again() -> None:
    def build(system: cb.ActorSystem) -> cb.ActorRef[Sender]:
        slow = system.actor_of(cb.Props(Taker).with_mailbox(cb.Mailbox(1)), "taker")
        return system.actor_of(cb.Props(Sender, slow), "sender")

    async with cb.ReplayHarness() as harness:
        async with cb.ActorSystem("demo", recorder=harness) as system:
            assert await build(system).ask(Burst()) == 4
        report = await harness.verify(build)
        assert report.same, report.first


class Burst(cb.Request["Sender", int]): ...


class Sender(cb.Actor):
    def __init__(self, to: cb.ActorRef[Taker]) -> None:
        self.to = to

    @Burst.handles
    def burst(self, m: Burst) -> int:
        refused = 0
        for n in range(5):
            try:
                self.to.tell(Plain(value=n))
            except cb.MailboxFull:
                refused += 1
        return refused


async def test_a_harness_has_to_be_started_before_the_system() -> None:
    with pytest.raises(RuntimeError, match="enter it before the system"):
        async with cb.ActorSystem("demo", recorder=cb.ReplayHarness()) as system:
            taker(system)


@pytest.mark.parametrize("on_device", [False, True])
async def test_device_actors_are_not_recorded_and_work(on_device: bool) -> None:
    async with cb.ReplayHarness() as harness, cb.System("demo", recorder=harness) as system:
        gpu = await system.device("cpu", isolation="thread")
        actor = system.actor_of(cb.Props(Scaler, gpu), "scaler")
        values = np.arange(3.0)
        np.testing.assert_array_equal(await actor.ask(Scale(values=values)), 2 * values)
        report = await harness.verify(lambda system: system.actor_of(cb.Props(Scaler, gpu, 2.0 + on_device), "scaler"))
        assert report.same is not on_device
        assert {e.actor for _, e in harness.entries() if isinstance(e, Input)} == {"/demo/scaler"}


class Scale(cb.Request["Scaler", Any]):
    values: np.ndarray[Any, Any]


class Scaler(cb.Actor):
    def __init__(self, gpu: cb.Device, factor: float = 2.0) -> None:
        self.gpu = gpu
        self.factor = factor

    @Scale.handles
    async def scale(self, m: Scale) -> Any:
        return await (self.gpu.put(m.values) * self.factor).get()


ACTIONS = st.lists(
    st.one_of(
        st.integers(-5, 5).map(lambda n: Add(amount=n)),
        st.sampled_from([Hold(), Release(), Noise(), When(), Count(), Pass(), Total(), Beat()]),
        st.sampled_from(["answer", "failure"]).map(lambda text: Fail(text=text)),
        st.integers(0, 3).map(lambda n: Hire(name=f"child-{n}")),
        st.floats(0.1, 2.5),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@example(actions=[Hold(), Hire(name="child-0"), Fail(text="failure")], gaps=[], every=1)  # restarts behind a child
@given(actions=ACTIONS, gaps=st.lists(st.integers(0, 3), max_size=25), every=st.sampled_from([None, 1, 3]))
def test_any_history_comes_out_the_same(actions: list[Any], gaps: list[int], every: int | None) -> None:
    """Messages, time and failures in any order, with the loop at any point in between."""

    async def run() -> None:
        async with cb.ReplayHarness(snapshot_every=every) as harness:
            async with Recording(harness) as recording:
                waiting = []
                for n, action in enumerate(actions):
                    if isinstance(action, float):
                        recording.clock.advance(action)
                    elif isinstance(action, cb.Request):
                        waiting.append(recording.counter.ask(action, timeout=None))
                    else:
                        recording.counter.tell(action)
                    for _ in range(gaps[n] if n < len(gaps) else 0):
                        await asyncio.sleep(0)
                async with asyncio.timeout(LIMIT):
                    await asyncio.wait([*waiting, recording.counter.ask(Total(), timeout=None)])
                await asyncio.gather(*waiting, return_exceptions=True)
            report = await harness.verify(builder(harness))
            assert report.same, report.first
            recalled = [entry for _, entry in harness.entries() if isinstance(entry, Recalled)]
            assert len(recalled) == sum({Noise: 2, When: 2}.get(type(action), 0) for action in actions)  # type: ignore[call-overload]

    asyncio.run(run())
