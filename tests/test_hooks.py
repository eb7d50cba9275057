"""Hooks of users: what they return is checked where it enters, and what they raise ends what they were asked for.

Each of them is a row of :mod:`tests.hooks`, with wrong values and an exception. Nothing hangs, nothing is dropped, and
the error names the hook and the value, or has the exception among its causes. Hooks that are only told something are
below: what they return is ignored, what they raise is logged, and others are told all the same.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.hooks import ROWS, Counter, Number, Row, same, version

import callboard as cb
from callboard.device.config import HostConfig
from callboard.device.host.context.streams import streams_for

BOUND = 20.0
"""Seconds for what must come; a hang takes longer."""

WRONG = [pytest.param(row, value, id=f"{row.where}: {row.name}: {value!r}"[:60]) for row in ROWS for value in row.wrong]
EACH = [pytest.param(row, id=f"{row.where}: {row.name}") for row in ROWS]


class Mine(Exception):
    """Of the test's hook."""


async def ended(row: Row, hook: Any) -> BaseException:
    """The error in which what the hook was needed for ends."""
    scenario = asyncio.ensure_future(row.scenario(hook))
    done, _ = await asyncio.wait([scenario], timeout=BOUND)
    assert done, "it hangs"
    error = scenario.exception()
    assert error is not None, f"it ended well, in {scenario.result()!r}"
    return error


def chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


@pytest.mark.parametrize("row, value", WRONG)
async def test_a_wrong_value_is_named_with_its_hook(row: Row, value: Any) -> None:
    error = await ended(row, lambda *arguments, **options: value)
    told = " ".join(str(each) for each in chain(error))
    assert row.name in told
    named = [repr(value)[:60], type(value).__name__, "results for"]
    named += [str(list(np.shape(value))), "of shape"] * row.array
    assert any(each in told for each in named), told


@pytest.mark.parametrize("row", EACH)
async def test_what_a_hook_raises_is_the_error_or_its_cause(row: Row) -> None:
    mine = Mine("of the hook")

    def hook(*arguments: Any, **options: Any) -> Any:
        raise mine

    error = await ended(row, hook)
    assert any(isinstance(each, Mine) for each in chain(error)) or "Mine" in str(error), repr(error)


# -- hooks that are only told something --------------------------------------------------------------------------------


def of(told: list[Any], value: Any) -> Any:
    """A hook that returns a value, or raises it."""

    def hook(*arguments: Any) -> Any:
        told.append(arguments)
        if isinstance(value, Exception):
            raise value
        return value

    return hook


VALUES = pytest.mark.parametrize("value", [5, Mine("of the hook")], ids=["returns", "raises"])


@VALUES
async def test_a_subscriber_of_dead_letters(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []
    others: list[Any] = []
    async with cb.System() as system:
        system.dead_letters.subscribe(of(told, value))
        system.dead_letters.subscribe(others.append)
        system.dead_letters.publish("a message", "a target", "a reason")
    assert len(told) == len(others) == 1
    assert ("subscriber failed" in caplog.text) is isinstance(value, Mine)


@VALUES
async def test_a_callback_of_termination(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []
    others: list[Any] = []
    async with cb.System() as system:
        system.on_termination(lambda: others.append(1))
        system.on_termination(of(told, value))
    assert len(told) == len(others) == 1
    assert ("termination callback failed" in caplog.text) is isinstance(value, Mine)


@pytest.mark.parametrize("value", [5, "x", Mine("of the hook")], ids=str)
async def test_a_task_of_the_shutdown(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with cb.System() as system:
        system.shutdown.add_task("devices", "mine", of([], value))
    assert "shutdown task mine" in caplog.text
    assert "Mine" in caplog.text or repr(value) in caplog.text


@VALUES
async def test_a_trace_and_a_memory_hook(value: Any) -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    told: list[Any] = []
    memory: list[Any] = []
    traced = asyncio.Event()
    async with asyncio.timeout(BOUND), cb.device("cpu") as device:
        await device.trace(of(told, value))
        await device.trace(lambda _: traced.set())
        await device.watch_memory(of(memory, value), step=1)
        assert (await device.put(np.ones(3)).get()).sum() == 3
        await traced.wait()
    assert told
    failures = {context["message"] for context in reported}
    assert ("callboard: a trace hook has failed" in failures) is isinstance(value, Mine)
    assert ("callboard: a memory hook has failed" in failures) is (isinstance(value, Mine) and bool(memory))


@VALUES
async def test_the_alarm_of_a_drift(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []
    stages = [cb.CascadeStage(same, threshold=0.5, confidence=float), cb.CascadeStage(same, confidence=float)]
    async with cb.InferenceCascade(stages, drift=cb.Drift(window=10, alarm=of(told, value))) as cascade:
        for item in [1] * 10 + [0] * 10:
            await cascade.submit(item)
        assert cascade.stats().drifted
    assert told
    assert ("alarm of a drift failed" in caplog.text) is isinstance(value, Mine)


@pytest.mark.parametrize("value", [None, "no", np.ones(2, bool), Mine("of the hook")], ids=str)
async def test_a_comparison_of_shadow_runs(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    """No caller awaits it: the run is not counted, and the log says why."""
    compared = asyncio.Event()

    def agree(early: Any, late: Any) -> Any:
        compared.set()
        return of([], value)(early, late)

    stages = [cb.CascadeStage(same, threshold=0.5, confidence=float), cb.CascadeStage(same, confidence=float)]
    async with asyncio.timeout(BOUND), cb.InferenceCascade(stages, shadow=1.0, agree=agree) as cascade:
        await cascade.submit(1)
        await compared.wait()
        assert cascade.stats().shadowed == 0
    assert "`agree` or `confidence` failed" in caplog.text


@pytest.mark.parametrize("value", [None, "x", np.ones(2), Mine("of the hook")], ids=str)
async def test_whether_a_failure_is_the_replicas(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The request ends in its own error, which has a note."""

    def fail(item: Any) -> Any:
        raise LookupError(item)

    async with cb.ModelReplicaPool([fail], fault=of([], value), idempotent=True) as pool:
        with pytest.raises(LookupError) as caught:
            await pool.submit(1)
    assert any("`fault`" in note for note in caught.value.__notes__)
    assert "`fault` failed" in caplog.text


@pytest.mark.parametrize("value", [None, 5, ["a"], [99], Mine("of the hook")], ids=str)
async def test_a_draft_that_fails_is_not_used(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    def logits(sequences: list[list[int]], rows: list[int]) -> list[Any]:
        return [np.eye(5)[[(text[-1] + 1) % 5] * count] for text, count in zip(sequences, rows, strict=True)]

    async with cb.SpeculativeDecoder(cb.Cacheless(logits), of([], value)) as decoder:
        assert (await decoder.submit(cb.Decode([1], max_new_tokens=4))).new_tokens == [2, 3, 4, 0]
    assert "a draft failed" in caplog.text


@VALUES
async def test_unloading_a_version(value: Any) -> None:
    async with cb.ModelHotSwapServer(version("a", unload=of([], value))) as server:
        report = await server.swap(version("b"))
    assert [str(error) for _, error in report.unload_errors] == ["of the hook"] * isinstance(value, Mine)


@VALUES
async def test_being_told_of_a_journals_failure(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(cb.MemoryJournal):
        def append(self, first: int, records: Any) -> None:
            raise OSError("full")

    told: list[Any] = []
    harness = cb.ReplayHarness("record", Failing(), told=of(told, value), on_failure="degrade")
    async with harness, cb.System(recorder=harness) as system:
        assert await system.actor_of(cb.Props(Counter), "counter").ask(Number(n=3)) == 3
        await harness.committed()
    assert told
    assert ("hook `told`" in caplog.text) is isinstance(value, Mine)


@pytest.mark.parametrize("value", [SystemExit(3), Mine("of the journal")], ids=str)
async def test_a_journal_that_raises_anything_ends_no_recorder_in_silence(value: BaseException) -> None:
    class Failing(cb.MemoryJournal):
        def append(self, first: int, records: Any) -> None:
            raise value

    with pytest.raises(cb.JournalFailed) as caught:
        async with asyncio.timeout(BOUND), cb.ReplayHarness("record", Failing()) as harness:
            await harness.committed()
    assert caught.value.__cause__ is value


@pytest.mark.parametrize("value", [None, 1, "done"])
def test_a_stream_that_does_not_say_whether_it_is_idle_is_refused(value: Any) -> None:
    """Work on it would never be done, or would be done at once."""

    class Stream:
        def query(self) -> Any:
            return value

    class Device:
        def stream(self, priority: int) -> Any:
            return Stream()

    device: Any = Device()
    with pytest.raises(TypeError, match=r"Stream\.query returned .*; it must return True or False"):
        streams_for(device, HostConfig()).acquire("blas")
