"""Ops of devices, calls of resident actors, choices and losses in a journal, and what a replay says of them."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

import callboard as cb
from callboard.device.client.line.port import OpPort
from callboard.multi_device.replay import entries as kinds
from callboard.multi_device.replay.entries import Content, DeviceLost, DeviceOp, DeviceOpened, DeviceResult

Program = Callable[[cb.System], Awaitable[Any]]
ONES = np.ones((2, 2), "f4")


class Model(cb.ResidentActor):
    factor = 2.0

    def scale(self, x: Any, by: float) -> Any:
        return x * by * Model.factor


class Counting(cb.ResidentActor):
    def items(self, n: int) -> Iterator[int]:
        yield from range(n)

    def fail(self) -> None:
        raise ValueError("no")


async def chain(system: cb.System, alpha: float = 1.0, device: str = "cpu") -> Any:
    """put, gemm, gemm, exp, get."""
    gpu = await system.device(device, isolation="thread" if device == "cpu" else None)
    a = gpu.put(ONES)
    b = gpu.blas.gemm(a, a)
    c = gpu.blas.gemm(b, a, alpha=alpha)
    return await gpu.xp.exp(c).get()


async def record(program: Program, **options: Any) -> cb.MemoryJournal:
    journal = cb.MemoryJournal()
    async with cb.ReplayHarness("record", journal, **options) as harness:
        async with cb.System("work", recorder=harness) as system:
            await program(system)
    return journal


async def replay(journal: cb.MemoryJournal, program: Program, **options: Any) -> cb.ReplayReport:
    async with cb.ReplayHarness("replay", journal, **options) as harness:
        async with cb.System("work", recorder=harness) as system:
            await program(system)
        return harness.report


def rewritten(journal: cb.MemoryJournal, change: Callable[[Any], Any]) -> cb.MemoryJournal:
    """A journal whose entries have been changed, as those of another device would differ."""
    journal.open("callboard")
    entries = [kinds.decode(record) for _, record in journal.read(1, 10_000)]
    journal.close()
    other = cb.MemoryJournal()
    other.open("callboard")
    other.append(1, [kinds.encode(change(entry)) for entry in entries])
    other.close()
    return other


def as_on(backend: str) -> Callable[[Any], Any]:
    return lambda e: msgspec.structs.replace(e, backend=backend, name=backend) if isinstance(e, DeviceOpened) else e


def of(journal: cb.MemoryJournal, cls: type[Any]) -> list[Any]:
    journal.open("callboard")
    found = [entry for _, record in journal.read(1, 10_000) if isinstance(entry := kinds.decode(record), cls)]
    journal.close()
    return found


async def test_ops_are_entries_with_their_arguments_and_the_same_program_is_the_same() -> None:
    journal = await record(chain)
    ops = of(journal, DeviceOp)
    names = ["memory.put", "blas.gemm", "blas.gemm", "elementwise.map", "memory.get"]
    assert [(op.number, op.op) for op in ops] == list(enumerate(names, 1))
    assert ops[2].arguments["a"] == "op 2.out f32[2, 2]"
    assert ops[2].arguments["alpha"] == 1.0
    assert [(r.number, r.name) for r in of(journal, DeviceResult)] == [(n, "out") for n in (2, 3, 4)] + [(5, "value")]
    assert len(of(journal, Content)) == len({c.digest for c in of(journal, Content)}) == 4
    report = await replay(journal, chain)
    report.check()
    assert (report.device_ops, report.device_results, report.unread, report.by_hash) == (5, 4, 0, [])


async def test_another_argument_is_named_with_its_op() -> None:
    report = await replay(await record(chain), lambda system: chain(system, alpha=3.0))
    first = report.first
    assert first is not None
    assert (first.actor, first.number, first.op) == ("devices/1", 3, "blas.gemm")
    assert (first.expected, first.got) == ("argument alpha: 1.0", "3.0")
    assert str(first).startswith("devices/1, op 3 blas.gemm (record")
    with pytest.raises(cb.ReplayDiverged, match=r"op 3 blas\.gemm"):
        report.check()


async def test_another_op_a_missing_one_and_one_too_many_are_named() -> None:
    async def other(system: cb.System) -> None:
        gpu = await system.device("cpu", isolation="thread")
        a = gpu.put(ONES)
        await gpu.blas.axpy(a, gpu.blas.gemm(a, a)).get()

    journal = await record(chain)
    first = (await replay(journal, other)).first
    assert first is not None
    assert (first.number, first.expected, first.got) == (3, "blas.gemm", "blas.axpy")

    async def short(system: cb.System) -> None:
        gpu = await system.device("cpu", isolation="thread")
        gpu.put(ONES)

    first = (await replay(journal, short)).first
    assert first is not None
    assert (first.number, first.op, first.got) == (2, "blas.gemm", "the device is closed")
    first = (await replay(await record(short), chain)).first
    assert first is not None
    assert (first.number, first.expected) == (2, "no further op")


def off_by(error: float, at: int) -> Callable[[Any], Any]:
    """Change the recorded elements of result ``at``, as an error of the device would, and their hash."""
    shifted: dict[str, str] = {}

    def change(entry: Any) -> Any:
        if isinstance(entry, Content) and len(shifted) < 1 and np.frombuffer(entry.data, "f4")[0] == at:
            shifted[entry.digest] = "0" * 32
            data = (np.frombuffer(entry.data, "f4") * np.float32(1 + error)).tobytes()
            return msgspec.structs.replace(entry, digest="0" * 32, data=data)
        if isinstance(entry, DeviceResult) and entry.value.get("hash") in shifted:
            return msgspec.structs.replace(entry, value={**entry.value, "hash": shifted[entry.value["hash"]]})
        return as_on("cuda")(entry)

    return change


async def test_a_result_beyond_the_tolerance_of_its_dtype_is_named_where_it_first_differs() -> None:
    journal = await record(chain)  # results are 2, 4 and exp(4)
    near = await replay(rewritten(journal, off_by(2e-5, at=4)), chain)
    near.check()
    assert near.environment == ["devices/1 was cuda and is cpu:0"]
    far = await replay(rewritten(journal, off_by(1e-2, at=4)), chain)
    assert far.first is not None
    assert (far.first.number, far.first.op) == (3, "blas.gemm")
    assert "result out: f32[2, 2]" in far.first.expected
    assert "max error 0.04" in far.first.got
    assert "tolerance 0.0001" in far.first.got
    (await replay(rewritten(journal, off_by(1e-2, at=4)), chain, tolerances={"f32": 0.1})).check()
    with pytest.raises(ValueError, match="tolerances: f32 is -1"):
        cb.ReplayHarness(tolerances={"f32": -1.0})


async def test_numbers_made_of_results_are_compared_with_a_tolerance_on_another_backend_only() -> None:
    journal = await record(chain)
    nearly: Program = lambda system: chain(system, alpha=1.0 + 1e-6)
    same = await replay(journal, nearly)
    assert same.first is not None
    assert same.first.expected == "argument alpha: 1.0"
    (await replay(rewritten(journal, as_on("cuda")), nearly)).check()


async def test_arrays_above_the_cap_are_hashes_and_the_report_says_so() -> None:
    def put(value: float) -> Program:
        async def program(system: cb.System) -> None:
            gpu = await system.device("cpu", isolation="thread")
            await gpu.put(np.full(100, value, "f4")).get()

        return program

    journal = await record(put(1.0), max_array_bytes=64)
    assert not of(journal, Content)
    assert of(journal, DeviceOp)[0].arguments["array"]["shape"] == [100]
    same = await replay(journal, put(1.0), max_array_bytes=64)
    same.check()
    assert [text.split(" with")[0] for text in same.by_hash] == [
        "devices/1, op 1 memory.put, argument array f32[100]",
        "devices/1, op 2 memory.get, result value f32[100]",
    ]
    other = await replay(journal, put(2.0), max_array_bytes=64)
    assert other.first is not None
    assert (other.first.number, "above max_array_bytes" in other.first.got) == (1, True)
    unproven = await replay(rewritten(journal, as_on("cuda")), put(2.0), max_array_bytes=64)
    assert (unproven.first, unproven.same, len(unproven.unproven)) == (None, False, 2)
    with pytest.raises(cb.ReplayDiverged, match="raise max_array_bytes"):
        unproven.check()


async def test_results_above_result_bytes_are_recorded_when_they_are_read() -> None:
    journal = await record(chain, result_bytes=0)
    assert [r.number for r in of(journal, DeviceResult)] == [5]
    report = await replay(journal, chain)
    report.check()
    assert report.unread == 3


async def test_an_array_that_the_closing_came_before_is_unread_and_no_error() -> None:
    async def program(system: cb.System, spec: str = "faulty+cpu?hang_at=1") -> None:
        gpu = await system.device(spec, isolation="process", close_timeout=0.1)
        gpu.put(ONES) @ gpu.put(ONES)  # not awaited

    journal = await record(program)
    assert (len(of(journal, DeviceOp)), of(journal, DeviceResult)) == (3, [])
    report = await replay(journal, lambda system: program(system, "cpu"))
    report.check()
    assert report.device_ops == 3


async def test_calls_of_resident_actors_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(system: cb.System) -> None:
        gpu = await system.device("cpu", isolation="thread")
        model = gpu.actor_of(cb.Props(Model), "model")
        array = gpu.put(ONES)
        await model.call(Model.scale, ONES, 2.0)
        await model.call(Model.scale, np.zeros(100_000), by=0.5)  # beside the message
        del array

    journal = await record(program)
    calls = [op for op in of(journal, DeviceOp) if op.op == "model.scale"]
    assert [sorted(call.arguments) for call in calls] == [["args[0]", "args[1]"], ["args[0]", "by"]]
    (await replay(journal, program)).check()
    monkeypatch.setattr(Model, "factor", 3.0)
    first = (await replay(journal, program)).first
    assert first is not None
    assert (first.op, first.number, "result result" in first.expected) == ("model.scale", 2, True)


async def test_a_loss_is_an_entry_and_is_told_by_the_report() -> None:
    async def program(system: cb.System, lost: bool = False) -> None:
        gpu = await system.device("cpu", isolation="process" if lost else "thread", standby=None)
        a = gpu.put(ONES)
        await a
        if lost:
            gpu._actor.host.kill("a test")  # type: ignore[union-attr]
            with pytest.raises(cb.ContextLost):
                await gpu.blas.gemm(a, a)
            await gpu.ready()
        await gpu.put(ONES).get()

    journal = await record(lambda system: program(system, lost=True))
    (loss,) = of(journal, DeviceLost)
    assert "killed: a test" in loss.error
    assert any(result.lost for result in of(journal, DeviceResult))
    report = await replay(journal, program)
    assert report.losses[0].startswith("devices/1 (cpu:0) after op")
    assert report.first is not None
    assert report.first.expected == "blas.gemm"


async def test_choices_of_a_placement_are_compared() -> None:
    async def program(system: cb.System, picks: int = 2) -> None:
        gpu = await system.device("cpu", isolation="thread")
        async with cb.PlacementActor([gpu]) as placement:
            for _ in range(picks):
                with placement.pick():
                    pass

    journal = await record(program)
    assert [choice.actor for choice in of(journal, kinds.DeviceChosen)] == ["devices/1"] * 2
    (await replay(journal, program)).check()
    first = (await replay(journal, lambda system: program(system, 3))).first
    assert first is not None
    assert str(first).startswith("devices/1, choice 3 placement")


class Sum(cb.Request["Adder", float]):
    x: np.ndarray[Any, Any]


class Adder(cb.Actor):
    def __init__(self, gpu: cb.Device, alpha: float) -> None:
        self.gpu, self.alpha = gpu, alpha

    @Sum.handles
    async def sum(self, m: Sum) -> float:
        a = self.gpu.put(m.x)
        return float((await self.gpu.blas.gemm(a, a, alpha=self.alpha).get()).sum())


async def build(system: cb.System, alpha: float = 1.0) -> cb.ActorRef[Adder]:
    return system.actor_of(cb.Props(Adder, await system.device("cpu", isolation="thread"), alpha), "adder")


async def test_verify_names_the_op_behind_an_actors_reply() -> None:
    async with cb.ReplayHarness() as harness:
        async with cb.System("work", recorder=harness) as system:
            adder = await build(system)
            assert await adder.ask(Sum(x=ONES)) == 8.0
            await adder.ask(Sum(x=ONES * 2))
        report = await harness.verify(build)
        report.check()
        assert (report.inputs, report.outputs, report.device_ops) == (2, 2, 6)
        report = await harness.verify(lambda system: build(system, 2.0))
        assert report.first is not None
        assert (report.first.number, report.first.op) == (2, "blas.gemm")


async def test_entries_right_after_the_end_has_the_last() -> None:
    async with cb.ReplayHarness(linger=30.0) as harness:
        async with cb.System("work", recorder=harness) as system:
            adder = await build(system)
            await adder.ask(Sum(x=ONES))
        last = [entry for _, entry in harness.entries()][-1]
        assert (last.actor, last.kind) == ("/work/adder", "reply")  # type: ignore[union-attr]
        assert harness.stats.pending == 0


async def test_what_is_not_recorded_has_an_ordinary_port() -> None:
    async with cb.ReplayHarness("off") as off, cb.ReplayHarness(actors=["/work/*"]) as actors:
        for harness in (None, off, actors):
            async with cb.System("work", recorder=harness) as system:
                gpu = await system.device("cpu", isolation="thread")
                assert type(gpu._port) is OpPort
                assert gpu._port.recorded is None
        assert not [e for _, e in actors.entries() if isinstance(e, DeviceOp)]


async def test_redact_takes_host_arrays_out_of_the_journal() -> None:
    hidden = lambda value: np.zeros(1) if isinstance(value, np.ndarray) else value
    journal = await record(chain, redact=hidden)
    assert {content.data for content in of(journal, Content)} == {np.zeros(1).tobytes()}
    (await replay(journal, chain, redact=hidden)).check()


async def test_a_journal_that_failed_refuses_ops_before_they_are_sent() -> None:
    class Filling(cb.MemoryJournal):
        full = False

        def append(self, first: int, records: Any) -> None:
            if self.full:
                raise OSError("no space left on the device")
            super().append(first, records)

    journal = Filling()
    harness = await cb.ReplayHarness("record", journal).start()
    async with cb.System("work", recorder=harness) as system:
        gpu = await system.device("cpu", isolation="thread")
        await harness.committed()
        journal.full = True
        gpu.zeros(1)
        with pytest.raises(cb.JournalFailed):
            await harness.committed()
        await gpu.drain()
        sent = gpu._port.unanswered.settled
        with pytest.raises(cb.JournalFailed, match="no space left"):
            gpu.put(ONES)
        assert (gpu.in_flight, gpu._port.unanswered.settled) == (0, sent)
    with pytest.raises(cb.JournalFailed):
        await harness.stop()


async def test_the_actors_pattern_also_names_devices() -> None:
    async def first_only(system: cb.System) -> None:
        await (await system.device("cpu", isolation="thread")).put(ONES).get()

    assert len(of(await record(first_only, actors=["devices/1"]), DeviceOp)) == 2
    assert not of(await record(first_only, actors=["devices/2"]), DeviceOp)


async def test_replays_of_a_recording_are_told_by_its_ops() -> None:
    async def program(system: cb.System, alpha: float = 1.0) -> None:
        gpu = await system.device("cpu", isolation="thread")
        a, out = gpu.put(ONES), gpu.zeros((2, 2))
        with gpu.record() as recording:
            gpu.blas.gemm(a, a, out=out, alpha=alpha)
        recording.replay()
        recording.replay(2)
        await out.get()

    journal = await record(program)
    replays = [op for op in of(journal, DeviceOp) if op.op == "graph.replay"]
    assert replays[0].arguments["recording"][0]["op"] == "blas.gemm"
    assert "replayed before" in replays[1].arguments["recording"]
    (await replay(journal, program)).check()
    first = (await replay(journal, lambda system: program(system, 2.0))).first
    assert first is not None
    assert (first.op, first.expected) == ("graph.replay", "argument recording[0].numbers[0]: 1.0")


async def test_copies_between_devices_and_collectives_are_the_same_in_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")

    async def program(system: cb.System, value: float = 1.0) -> None:
        one, other = [await system.device(f"cpu:{n}", isolation="thread") for n in range(2)]
        array = one.put(ONES * value)
        await array.to(other).get()
        async with cb.world([one, other]) as world:
            summed = await world.all_reduce([array, other.put(ONES)])
            await summed[0].get()
            await summed[1]

    journal = await record(program)
    ops = {op.op: op for op in of(journal, DeviceOp) if op.actor == "devices/2"}
    assert list(ops) == ["memory.copy_from", "memory.get", "memory.put", "collective.run"]
    assert ops["memory.copy_from"].arguments == {"src": "devices/1 op 1.out f32[2, 2]"}
    (await replay(journal, program)).check()
    report = await replay(journal, lambda system: program(system, 2.0))
    assert [(d.actor, d.op) for d in report.divergences[:2]] == [
        ("devices/1", "memory.put"),
        ("devices/2", "memory.copy_from"),
    ]


async def test_a_stream_is_told_by_its_opening_and_a_failed_call_by_its_error() -> None:
    async def program(system: cb.System) -> None:
        gpu = await system.device("cpu", isolation="thread")
        model = gpu.actor_of(cb.Props(Counting), "counting")
        assert [item async for item in model.stream(Counting.items, 3)] == [0, 1, 2]
        with pytest.raises(ValueError, match="no"):
            await model.call(Counting.fail)

    journal = await record(program)
    calls = [(op.op, op.arguments) for op in of(journal, DeviceOp)]
    assert calls == [("counting.items", {"args[0]": 3}), ("counting.fail", {})]
    (error,) = [r.value for r in of(journal, DeviceResult) if r.value is not None]
    assert error == {"error": "builtins:ValueError", "text": "no"}
    (await replay(journal, program)).check()


@pytest.mark.gpu
async def test_a_run_on_a_gpu_replays_on_the_cpu() -> None:
    journal = await record(lambda system: chain(system, device="cuda"))
    report = await replay(journal, chain)
    report.check()
    assert (report.device_ops, report.device_results, report.unread) == (5, 4, 0)
    first = (await replay(journal, lambda system: chain(system, alpha=2.0))).first
    assert first is not None
    assert (first.number, first.op) == (3, "blas.gemm")


async def test_entries_are_read_in_the_hook_that_is_told_of_a_failure() -> None:
    class Failing(cb.MemoryJournal):
        def append(self, first: int, records: Any) -> None:
            if first > 1:
                raise OSError("gone")
            super().append(first, records)

    seen: list[int] = []
    told: Callable[[Any], None] = lambda failure: seen.append(len(list(harness.entries())) if failure else 0)
    harness = cb.ReplayHarness("record", Failing(), on_failure="degrade", told=told, retry=60.0)
    async with harness:
        await harness.committed()
        harness.recall("value", lambda: 1)
        await harness.committed()
    assert seen == [1]


async def test_a_device_that_is_not_opened_is_a_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")

    async def several(system: cb.System, n: int = 2) -> None:
        for i in range(n):
            await (await system.device(f"cpu:{i}", isolation="thread")).put(ONES)

    journal = await record(several)
    report = await replay(journal, lambda system: several(system, 1))
    assert str(report.first) == "devices/2, input 0 (record 5): recorded cpu:1 is opened; now it is not opened"
    report = await replay(journal, lambda system: several(system, 0))
    assert [each.actor for each in report.divergences] == ["devices/1", "devices/2"]
    assert report.device_ops == 0
    assert (await replay(journal, lambda system: several(system, 1), actors=["devices/1"])).same

    async with cb.ReplayHarness("replay", journal) as harness:  # the report may be read before the program
        assert not harness.report.same
        async with cb.System("work", recorder=harness) as system:
            await (await system.device("cpu:0", isolation="thread")).put(ONES)
            assert harness.report.same  # the second may still be opened
            await (await system.device("cpu:1", isolation="thread")).put(ONES)
        assert harness.report.same
        assert not harness.report.skipped


@pytest.mark.parametrize("journal", ["shop.db", cb.MemoryJournal])
def test_what_is_no_journal_is_refused(journal: Any) -> None:
    with pytest.raises(TypeError, match=r"journal is .*; pass a journal"):
        cb.ReplayHarness("record", journal)
