"""Calls of resident actors: arguments, results, arrays, messages, credits, refusals."""

import asyncio
import gc
import threading
from typing import Any

import numpy as np
import pytest
from tests.device.residents.lab import Add, Brief, Gate, Matrices, Note, Probe, SlowSetup, Unhandled, Unknown

import callboard as cb
from callboard.actors.errors import ActorStopped, NameInUse, UnhandledMessage

pytestmark = pytest.mark.leaves_nothing


BOUND = 20.0


async def settled(dev: cb.Device) -> int:
    """Bytes of host arrays that are staged, when what is on its way has arrived: none."""
    gc.collect()
    async with asyncio.timeout(BOUND):
        while staged := (await dev.stats()).staged_bytes:
            gc.collect()
    return staged


async def test_a_call_is_answered_and_the_actor_keeps_its_state(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe, 10), name="probe")
    assert await probe.call(Probe.add, 1) == 11
    assert await probe.call(Probe.add, n=2, twice=True) == 15
    assert await probe.ask(Add(n=5)) == 20
    probe.tell(Note(text="hello"))
    assert await probe.call(Probe.noted) == ["hello"]
    assert repr(probe) == "<ResidentRef probe (Probe)>"


async def test_calls_are_executed_in_order(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    replies = [probe.call(Probe.add, 1) for _ in range(200)]
    assert [await r for r in replies] == list(range(1, 201))


async def test_calls_before_setup_has_finished_wait_and_the_device_does_not(dev: cb.Device, gate: Gate) -> None:
    slow = dev.actor_of(cb.Props(SlowSetup, gate.path))
    early = slow.call(Probe.add, 1)
    other = dev.actor_of(cb.Props(Probe))
    assert await other.call(Probe.add, 1) == 1
    np.testing.assert_array_equal(await dev.put(np.ones(3)).get(), np.ones(3))
    assert not early.done()
    await gate.let_through()
    assert await early == 1


async def test_threads_may_call(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    assert sorted(
        await asyncio.gather(*(asyncio.to_thread(lambda: probe.call(Probe.add, 1).result(BOUND)) for _ in range(8)))
    ) == list(range(1, 9))


@pytest.mark.few(1)
@pytest.mark.parametrize("n", [3, 100_000, 12_500_000])
async def test_arrays_of_any_size_travel_both_ways(dev: cb.Device, n: int) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    array = np.random.default_rng(0).random(n)
    back: Any = await probe.call(Probe.echo, {"a": [array, (array[::2], "x")], "b": array[:1]})
    np.testing.assert_array_equal(back["a"][0], array)
    np.testing.assert_array_equal(back["a"][1][0], array[::2])
    back["a"][0][:] = 0  # it is the asker's own
    assert await probe.call(Probe.total_of, array) == pytest.approx(array.sum())
    assert await probe.ask(Add(n=0, array=np.ones(n, np.int64))) == n
    del back
    assert await settled(dev) == 0


async def test_an_array_that_the_actor_keeps_stays_as_it_was(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    for value in (1.0, 2.0, 3.0):
        await probe.call(Probe.keep, np.full(1_000_000, value))
    await probe.call(Probe.echo, np.full(1_000_000, 9.0))
    assert await probe.call(Probe.forget) == 6_000_000
    assert await settled(dev) == 0


async def test_an_array_may_be_changed_after_the_call(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    small, large = np.ones(10), np.ones(1_000_000)
    reply = probe.call(Probe.echo, [small, large])
    small[:], large[:] = 5, 5
    first, second = await reply
    assert first.sum() == 10
    assert second.sum() == 1_000_000


@pytest.mark.slow
async def test_large_bytes_and_texts_travel_beside_the_message(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    data, text = bytes(range(256)) * 500_000, "ä" * 1_000_000
    assert await probe.call(Probe.echo, [data, text]) == [data, text]


@pytest.mark.slow
async def test_long_results_without_arrays_do_not_swell_a_frame(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    words = [f"word {i}" for i in range(100_000)]
    replies = [probe.call(Probe.echo, words) for _ in range(3)] + [probe.call(Probe.echo, 5)]
    assert [await r for r in replies] == [words, words, words, 5]
    assert await settled(dev) == 0


async def test_arrays_of_texts_and_bytes_are_passed_and_returned(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    for each in (np.array(["ä\0", b"\xff"], object), np.array([["ü" * 40_000] * 3], object)):
        found = await probe.call(Probe.echo, each)
        assert (found.dtype, found.tolist()) == (each.dtype, each.tolist())
        assert (await probe.call(Probe.echo, {"k": [each]}))["k"][0].tolist() == each.tolist()
    assert await settled(dev) == 0


async def test_what_cannot_travel_is_refused_by_name_at_the_call(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe), name="probe")
    with pytest.raises(TypeError, match=r"probe.echo: value\[0\]\['k'\]: .*lab.Unknown cannot travel; pass numbers"):
        probe.call(Probe.echo, [{"k": Unknown()}])
    with pytest.raises(TypeError, match=r"probe.add: twice: .*Unknown"):
        probe.call(Probe.add, 1, twice=Unknown())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"probe.Add: message.array: .*Unknown"):
        probe.ask(Add(n=1, array=Unknown()))
    with pytest.raises(TypeError, match="does not fit 64 bits"):
        probe.call(Probe.add, 1 << 70)
    with pytest.raises(TypeError, match="array of Python objects"):
        probe.call(Probe.echo, np.array([None]))
    knot: list[Any] = []
    knot.append(knot)
    with pytest.raises(TypeError, match="contains itself"):
        probe.call(Probe.echo, knot)
    with pytest.raises(ValueError, match="bytes without arrays"):
        probe.call(Probe.echo, ["x" * 10_000] * 4_000)
    assert probe.in_flight == 0
    assert await probe.call(Probe.add, 1) == 1


async def test_arguments_that_do_not_fit_the_method_are_refused_at_the_call(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe), name="probe")
    with pytest.raises(TypeError, match=r"probe.add\(self, n.*: missing a required argument"):
        probe.call(Probe.add)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"probe.add\(self, n.*: too many positional arguments"):
        probe.call(Probe.add, 1, 2)  # type: ignore[call-arg, arg-type]
    with pytest.raises(TypeError, match=r"probe.add\(self, n.*: got an unexpected keyword argument 'by'"):
        probe.call(Probe.add, 1, by=1)  # type: ignore[call-arg]
    assert await probe.call(Probe.add, 1) == 1
    assert probe.restarts == 0


async def test_what_is_no_method_is_refused_at_the_call(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe), name="probe")
    with pytest.raises(TypeError, match="is not a method"):
        probe.call(lambda self: 1)
    with pytest.raises(TypeError, match="Probe has no method let_through"):
        probe.call(Gate.let_through)  # type: ignore[arg-type]
    with pytest.raises(UnhandledMessage, match=r"probe \(Probe\) has no handler for Unhandled"):
        probe.ask(Unhandled())
    with pytest.raises(TypeError, match="is not a ResidentActor"):
        dev.actor_of(cb.Props(Unknown))  # type: ignore[type-var]


async def test_what_cannot_be_sent_to_a_host_is_refused() -> None:
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        with pytest.raises(TypeError, match=r"Probe cannot be sent to the context host: .*open files, locks"):
            dev.actor_of(cb.Props(Probe, threading.Lock()))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"Probe: its code and arguments are 40,\d+,\d+ bytes.*prepare\(\)"):
            dev.actor_of(cb.Props(Probe, np.ones(5_000_000)))  # type: ignore[arg-type]


async def test_a_result_that_cannot_travel_is_an_answer(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    with pytest.raises(TypeError, match=r"result\['deep'\]\[1\]: .*Unknown cannot travel; return numbers"):
        await probe.call(Probe.unknown)
    assert await probe.call(Probe.state) == (0, 1, 1)


@pytest.mark.slow
async def test_credits_are_per_actor(dev: cb.Device, gate: Gate) -> None:
    brief, other = dev.actor_of(cb.Props(Brief)), dev.actor_of(cb.Props(Probe))
    replies = [brief.call(Probe.wait, gate.path)] + [brief.call(Probe.add, 1) for _ in range(3)]
    with pytest.raises(cb.MailboxFull, match=r"4 calls of brief-1 are without an answer \(max_in_flight\)"):
        brief.call(Probe.add, 1)
    assert await other.call(Probe.add, 1) == 1
    await gate.let_through()
    assert [await r for r in replies][1:] == [1, 2, 3]
    assert await brief.call(Probe.add, 1) == 4


async def test_a_time_limit_is_positive(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    with pytest.raises(ValueError, match="positive"):
        probe.with_timeout(0)


async def test_a_call_that_has_not_begun_can_be_withdrawn(dev: cb.Device, gate: Gate) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    await probe.call(Probe.add, 0)
    running = probe.call(Probe.wait, gate.path)
    await gate.reached()
    reply = probe.call(Probe.add, 1)
    assert reply.cancel()
    await gate.let_through()
    assert await running > 0
    with pytest.raises(cb.Withdrawn):
        await reply
    assert await probe.call(Probe.add, 1) == 1
    assert await settled(dev) == 0


async def test_names_are_unique_and_stopping_frees_them(dev: cb.Device, gate: Gate) -> None:
    probe = dev.actor_of(cb.Props(Probe), name="probe")
    with pytest.raises(NameInUse, match="'probe'"):
        dev.actor_of(cb.Props(Probe), name="probe")
    running = probe.call(Probe.wait, gate.path)
    waiting = probe.call(Probe.echo, np.ones(100_000))
    await gate.reached()
    probe.stop()
    assert probe.is_stopped
    with pytest.raises(ActorStopped, match="probe was stopped"):
        probe.call(Probe.add, 1)
    await gate.let_through()
    assert await running > 0
    with pytest.raises(ActorStopped):
        await waiting
    await probe.stop_and_wait()
    again = dev.actor_of(cb.Props(Probe), name="probe")
    assert await again.call(Probe.add, 1) == 1
    assert (await dev.stats()).live_streams <= 2
    assert await settled(dev) == 0


async def test_a_closed_device_fails_calls(isolation: str, gate: Gate) -> None:
    async with cb.device("cpu", isolation=isolation, standby=None, close_timeout=5.0) as dev:
        probe = dev.actor_of(cb.Props(Probe))
        running = probe.call(Probe.wait, gate.path)
        queued = probe.call(Probe.add, 1)
        await gate.reached()
        closing = asyncio.ensure_future(dev.close())
        for reply in (running, queued):
            with pytest.raises(cb.DeviceStopped):
                await reply
        await gate.let_through()  # closing waits for the turn that runs
        await closing
    with pytest.raises(cb.DeviceStopped):
        probe.call(Probe.add, 1)
    with pytest.raises(cb.DeviceStopped):
        dev.actor_of(cb.Props(Probe))


async def test_values_of_several_refs_are_arguments_and_results(dev: cb.Device) -> None:
    dense = np.array([[0, 2, 0], [1, 0, 3]], np.float32)
    matrix = await dev.sparse.from_dense(dev.put(dense))
    actor = dev.actor_of(cb.Props(Matrices))
    scaled = await actor.call(Matrices.scaled, matrix, 2.0)
    assert scaled.shape == (2, 3)
    np.testing.assert_array_equal(await dev.sparse.to_dense(scaled).get(), 2 * dense)
    assert await actor.call(Matrices.total, [matrix, scaled]) == 18.0


async def test_a_method_called_on_the_ref_names_call(dev: cb.Device) -> None:
    probe: Any = dev.actor_of(cb.Props(Probe))
    with pytest.raises(AttributeError, match=r"use `ref\.call\(Probe\.echo, \.\.\.\)`"):
        probe.echo(1)
    assert await probe.with_timeout(None).call(Probe.echo, 1) == 1
    with pytest.raises(AttributeError, match=r"use `ref\.call\(Probe\.echo, \.\.\.\)`"):
        probe.with_timeout(5.0).echo(1)


def test_two_handlers_of_one_message_are_refused() -> None:
    with pytest.raises(TypeError, match="first and second both handle Add"):

        class Both(cb.ResidentActor):
            @Add.handles
            def first(self, m: Add) -> int:
                return 1

            @Add.handles
            def second(self, m: Add) -> int:
                return 2
