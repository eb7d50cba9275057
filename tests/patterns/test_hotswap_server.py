"""The hot-swap server: effects of a swap on requests, failed swaps, and returning versions."""

import asyncio
import logging
import threading
from typing import Any

import numpy as np
import pytest
from batching_lab import outcome, turns
from swap_lab import Held, bounded, lab

import callboard as cb
from callboard.actors import ManualClock


async def test_later_requests_run_on_the_new_version_and_running_ones_end_on_the_old() -> None:
    one, two = Held("1", hold=True), Held("2")
    async with lab(one) as server:
        first = server.submit_nowait("a")
        queued = server.submit_nowait("b")
        await turns()
        assert one.seen == ["a"]
        swap = asyncio.create_task(server.swap(two.version()))
        await turns()
        assert await bounded(server.submit("c")) == cb.HotSwapReply(("2", "c"), "2")
        assert (await bounded(queued)).version == "2"
        assert not swap.done()
        assert not first.done()
        assert [each.state for each in server.versions()] == [cb.VersionState.DRAINING, cb.VersionState.ACTIVE]
        assert one.unloaded == 0
        await one.release()
        assert await bounded(first) == cb.HotSwapReply(("1", "a"), "1")
        report = await bounded(swap)
        assert (report.version, report.previous, report.generation) == ("2", "1", 2)
        assert (report.unloaded, report.unload_errors) == (("1",), ())
        assert one.unloaded == 1
    assert (two.loaded, two.unloaded) == (1, 1)


async def test_requests_wait_for_the_first_version() -> None:
    gate: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def load() -> Any:
        return await gate

    server = cb.ModelHotSwapServer[str, str](cb.ModelVersion("1", load))
    starting = asyncio.create_task(server.start())
    await turns()
    request = server.submit_nowait("a")
    await turns()
    assert server.stats().queued == 1
    gate.set_result(str.upper)
    await bounded(starting)
    assert (await bounded(request)).response == "A"
    await server.stop()


async def test_the_report_has_the_seconds_of_each_step() -> None:
    clock = ManualClock()
    one, two = Held("1", hold=True), Held("2")

    async def load() -> Any:
        clock.advance(1.0)
        return await two.load()

    async def model(item: Any) -> Any:
        clock.advance(2.0 if item == "warm" else 4.0)
        return item

    async def unload(model: Any) -> None:
        clock.advance(16.0)

    async def load_one() -> Any:
        return one.model

    one.loaded = 1
    server = cb.ModelHotSwapServer[str, str](cb.ModelVersion("1", load_one, unload=unload), clock=clock)
    async with server:
        request = server.submit_nowait("a")
        await turns()
        two.model = model  # type: ignore[method-assign]
        golden = [("gold", "text")]
        swap = asyncio.create_task(server.swap(cb.ModelVersion("2", load, warmup=["warm", "warm"], golden=golden)))
        await turns()
        clock.advance(8.0)
        await one.release()
        await bounded(request)
        report = await bounded(swap)
        assert (report.load_seconds, report.warm_seconds, report.check_seconds) == (1.0, 4.0, 4.0)
        assert (report.flip_seconds, report.drain_seconds, report.unload_seconds) == (0.0, 8.0, 16.0)


@pytest.mark.parametrize("concurrent", [1, 4])
async def test_callers_see_no_failure_and_never_an_older_version(concurrent: int) -> None:
    def version(n: int) -> cb.ModelVersion:
        async def model(item: int) -> int:
            await turns(1 + (item + n) % 5)
            return n

        return cb.ModelVersion(str(n), lambda: model, warmup=[0, 1])

    async def caller(n: int) -> list[int]:
        seen = []
        while not ended:
            reply = await server.submit(n)
            assert reply.response == int(reply.version)
            seen.append(reply.response)
        return seen

    ended = False
    async with cb.ModelHotSwapServer[int, int](version(0), max_concurrent=concurrent) as server:
        callers = [asyncio.create_task(caller(n)) for n in range(8)]
        for n in range(1, 20):
            await bounded(server.swap(version(n)))
        ended = True
        for seen in await bounded(asyncio.gather(*callers)):
            assert seen == sorted(seen)
            assert seen[-1] == 19
        stats = server.stats()
        assert stats.submitted == stats.completed
        assert stats.swaps == 19


# -- swaps that fail ---------------------------------------------------------------------------------------------------


def refused(item: Any, expected: Any) -> bool:
    return False


@pytest.mark.parametrize(
    "phase, settings, text",
    [
        ("load", {}, "no file"),
        ("warm", {"warmup": ["x"]}, "no kernel"),
        ("check", {"golden": [("x", ("2", "x"))], "check": refused}, "golden item 0: check refused"),
        ("check", {"golden": [("x", ("2", "x", "y"))]}, "3 items are expected"),
        ("check", {"golden": [("x", np.zeros(3))]}, "shape"),
    ],
)
async def test_a_failure_before_the_flip_leaves_the_old_version(phase: Any, settings: Any, text: str) -> None:
    one, two = Held("1"), Held("2")

    async def load() -> Any:
        if phase == "load":
            raise FileNotFoundError("no file")
        await two.load()
        return model

    async def model(item: Any) -> Any:
        if phase == "warm":
            raise RuntimeError("no kernel")
        return "2", item

    async def unload(model: Any) -> None:
        two.unloaded += 1

    async with lab(one) as server:
        with pytest.raises(cb.SwapFailed, match=text) as caught:
            await bounded(server.swap(cb.ModelVersion("2", load, unload=unload, **settings)))
        assert (caught.value.phase, caught.value.version) == (phase, "2")
        assert caught.value.__cause__ is not None
        assert two.loaded == two.unloaded == (phase != "load")
        assert (await server.submit("a")).version == "1"
        stats = server.stats()
        assert (stats.active, stats.generation, stats.swaps, stats.failed_swaps) == ("1", 1, 0, 1)
        assert stats.versions["2"].state is cb.VersionState.FAILED
        await bounded(server.swap(Held("2").version()))  # the name is free again
        assert (await server.submit("a")).version == "2"


async def test_nan_in_a_golden_response_is_refused() -> None:
    def load() -> Any:
        return lambda item: item * np.float32("nan")

    golden = [(np.ones(2, "f4"), np.ones(2, "f4"))]
    async with lab(Held("1")) as server:
        with pytest.raises(cb.SwapFailed, match="NaN or infinite") as caught:
            await bounded(server.swap(cb.ModelVersion("2", load, golden=golden)))
        assert caught.value.phase == "check"


async def test_a_model_that_cannot_be_called_is_unloaded() -> None:
    unloaded: list[Any] = []
    async with lab(Held("1")) as server:
        with pytest.raises(cb.SwapFailed, match="cannot be called"):
            await bounded(server.swap(cb.ModelVersion("2", lambda: 42, unload=unloaded.append)))
    assert unloaded == [42]


async def test_a_first_version_that_fails_stops_the_server() -> None:
    def load() -> Any:
        raise FileNotFoundError("no file")

    server = cb.ModelHotSwapServer[str, str](cb.ModelVersion("1", load))
    with pytest.raises(cb.SwapFailed, match="no file"):
        await bounded(server.start())
    with pytest.raises(cb.ServerStopped):
        await server.submit("a")
    with pytest.raises(cb.ServerStopped):
        await server.swap(Held("2").version())


async def test_an_unload_that_fails_is_reported() -> None:
    one = Held("1")
    one.unload_error = OSError("busy")
    async with lab(one) as server:
        report = await bounded(server.swap(Held("2").version()))
        assert report.unload_errors == (("1", one.unload_error),)
        assert server.stats().versions["1"].state is cb.VersionState.UNLOADED


# -- several swaps -----------------------------------------------------------------------------------------------------


async def test_swaps_wait_for_their_turn() -> None:
    one = Held("1", hold=True)
    async with lab(one) as server:
        request = server.submit_nowait("a")
        await turns()
        two, three = Held("2"), Held("3")
        swaps = [asyncio.create_task(server.swap(each.version())) for each in (two, three)]
        await turns()
        assert (two.loaded, three.loaded) == (1, 0)
        await one.release()
        reports = await bounded(asyncio.gather(*swaps))
        assert [report.previous for report in reports] == ["1", "2"]
        assert (await request).version == "1"
        assert (one.unloaded, two.unloaded) == (1, 1)


async def test_a_swap_beside_another_one_is_refused_where_asked_for() -> None:
    one = Held("1", hold=True)
    async with lab(one, concurrent_swaps="refuse") as server:
        request = server.submit_nowait("a")
        await turns()
        swap = asyncio.create_task(server.swap(Held("2").version()))
        await turns()
        with pytest.raises(cb.SwapInProgress):
            await server.swap(Held("3").version())
        await one.release()
        await bounded(swap)
        await bounded(request)
        assert (await bounded(server.swap(Held("3").version()))).generation == 3


async def test_a_name_that_is_loaded_is_refused() -> None:
    async with lab(Held("1")) as server:
        with pytest.raises(ValueError, match="version '1' is active"):
            await server.swap(Held("1").version())


async def test_rollback_loads_again_what_was_unloaded() -> None:
    one, two, three = Held("1"), Held("2"), Held("3")
    async with lab(one) as server:
        with pytest.raises(cb.UnknownVersion, match="no earlier"):
            await server.rollback()
        await server.swap(two.version())
        await server.swap(three.version())
        assert (await bounded(server.rollback())).version == "2"
        assert (await bounded(server.rollback())).version == "1"
        assert (await server.submit("a")).version == "1"
        assert (one.loaded, two.loaded, three.loaded) == (2, 2, 1)
        with pytest.raises(cb.UnknownVersion):
            await server.rollback()
        with pytest.raises(cb.UnknownVersion, match="'9'"):
            await server.activate("9")
        assert (await server.activate("1")).previous == "1"
        assert (await bounded(server.activate("3"))).version == "3"
        assert server.stats().swaps == 5
    assert all(each.loaded == each.unloaded for each in (one, two, three))


async def test_kept_versions_come_back_without_loading() -> None:
    one, two = Held("1"), Held("2")
    async with lab(one, keep=1) as server:
        report = await bounded(server.swap(two.version()))
        assert report.unloaded == ()
        assert server.stats().versions["1"].state is cb.VersionState.STANDBY
        report = await bounded(server.rollback())
        assert (report.load_seconds, one.loaded, two.unloaded) == (0.0, 1, 0)
        assert (await server.submit("a")).version == "1"


# -- cancelled and stopped ---------------------------------------------------------------------------------------------


async def test_a_swap_cancelled_before_the_flip_is_undone() -> None:
    two = Held("2", hold=True)
    async with lab(Held("1")) as server:
        swap = asyncio.create_task(server.swap(two.version(warmup=["warm"])))
        await turns()
        assert two.seen == ["warm"]
        swap.cancel()
        assert isinstance(await bounded(outcome(swap)), asyncio.CancelledError)
        assert two.unloaded == 1
        assert (await server.submit("a")).version == "1"


async def test_a_swap_cancelled_after_the_flip_goes_on() -> None:
    one = Held("1", hold=True)
    async with lab(one) as server:
        request = server.submit_nowait("a")
        await turns()
        swap = asyncio.create_task(server.swap(Held("2").version()))
        await turns()
        swap.cancel()
        assert isinstance(await bounded(outcome(swap)), asyncio.CancelledError)
        assert one.unloaded == 0
        await one.release()
        assert (await bounded(request)).version == "1"
        assert one.unloaded == 1
        assert server.stats().active == "2"


async def test_a_load_on_a_thread_that_was_cancelled_is_unloaded() -> None:
    begun, go, unloaded = threading.Event(), threading.Event(), []

    def load() -> Any:
        begun.set()
        assert go.wait(30)
        return str.upper

    async with lab(Held("1")) as server:
        swap = asyncio.create_task(server.swap(cb.ModelVersion("2", load, unload=unloaded.append)))
        assert await asyncio.to_thread(begun.wait, 30)
        swap.cancel()
        await turns()
        assert not swap.done()
        go.set()
        assert isinstance(await bounded(outcome(swap)), asyncio.CancelledError)
        assert unloaded == [str.upper]


async def test_stop_ends_requests_and_swaps_and_unloads_all() -> None:
    one, two, three = Held("1", hold=True), Held("2", hold=True), Held("3")
    async with lab(one) as server:
        requests = [server.submit_nowait("a"), server.submit_nowait("b")]
        await turns()
        swaps = [
            asyncio.create_task(server.swap(two.version(warmup=["w"]))),
            asyncio.create_task(server.swap(three.version())),
        ]
        await turns()
        await bounded(server.stop())
        found = await bounded(asyncio.gather(*map(outcome, (*requests, *swaps))))
        assert [type(each) for each in found] == [cb.ServerStopped] * 4
        assert (one.unloaded, two.unloaded, three.loaded) == (1, 1, 0)
        assert server.stats().stopped == 2


async def test_stop_logs_what_unload_raised(caplog: pytest.LogCaptureFixture) -> None:
    one = Held("1")
    one.unload_error = OSError("busy")
    with caplog.at_level(logging.WARNING):
        async with lab(one):
            pass
    assert "unloading version 1 failed: OSError('busy')" in caplog.text


# -- models ------------------------------------------------------------------------------------------------------------


async def test_a_server_as_a_model() -> None:
    batches: list[list[str]] = []

    def version(name: str) -> cb.ModelVersion:
        async def run(items: list[str]) -> list[str]:
            batches.append(items)
            return [name + item for item in items]

        return cb.ModelVersion(name, lambda: cb.DynamicBatchingServer(run, max_batch=8))

    async with cb.ModelHotSwapServer[str, str](version("1")) as server:
        found = await bounded(asyncio.gather(*(server.submit(item) for item in "abcd")))
        assert [each.response for each in found] == ["1a", "1b", "1c", "1d"]
        assert len(batches) < 4  # the queue is that of the model, which batches
        await bounded(server.swap(version("2")))
        assert (await server.submit("a")).response == "2a"


async def test_cancelling_reaches_a_server_that_is_the_model() -> None:
    gate: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def run(items: list[str]) -> Any:
        await gate
        return items

    inner = cb.DynamicBatchingServer[str, str](run, max_batch=1)
    async with cb.ModelHotSwapServer[str, str](cb.ModelVersion("1", lambda: inner)) as server:
        first, second = server.submit_nowait("a"), server.submit_nowait("b")
        await turns()
        assert inner.stats().queued == 1
        second.cancel()
        await turns()
        assert (inner.stats().queued, inner.stats().cancelled) == (0, 1)
        gate.set_result(None)
        assert (await bounded(first)).response == "a"
        await turns()
        assert server.stats().versions["1"].running == 0


async def test_a_request_fails_with_the_error_of_its_model_and_no_other() -> None:
    one = Held("1", hold=True)
    async with lab(one) as server:
        a, b = server.submit_nowait("a"), server.submit_nowait("b")
        await turns()
        await one.release(ValueError("bad"))
        await one.release()
        assert isinstance(await bounded(outcome(a)), ValueError)
        assert (await bounded(b)).response == ("1", "b")
        stats = server.stats().versions["1"]
        assert (stats.completed, stats.failed, stats.run_time.count) == (1, 1, 1)


async def test_a_deadline_in_the_queue() -> None:
    clock = ManualClock()
    one = Held("1", hold=True)
    async with lab(one, clock=clock) as server:
        server.submit_nowait("a")
        late = server.submit_nowait("b", timeout=1.0)
        await turns()
        clock.advance(2.0)
        error = await bounded(outcome(late))
        assert isinstance(error, cb.DeadlineExceeded)
        assert error.stage == "queue"
        assert one.seen == ["a"]


# -- canaries ----------------------------------------------------------------------------------------------------------


async def test_a_canary_that_does_well_becomes_active() -> None:
    one, two = Held("1"), Held("2")
    async with lab(one, key=lambda item: item[0]) as server:
        swap = asyncio.create_task(server.swap(two.version(), canary=cb.Canary(share=0.5, requests=20)))
        await turns()
        seen: dict[str, set[str]] = {}
        while not swap.done():
            for caller in "abcdefgh":
                reply = await bounded(server.submit((caller, 1)))
                if not swap.done() and server.stats().active == "1":
                    seen.setdefault(caller, set()).add(reply.version)
        assert all(len(versions) == 1 for versions in seen.values())  # a key is pinned
        assert set.union(*seen.values()) == {"1", "2"}
        assert (await bounded(swap)).version == "2"
        assert {(await server.submit((caller, 1))).version for caller in "abcdefgh"} == {"2"}


async def test_a_canary_that_fails_is_withdrawn() -> None:
    one, two = Held("1"), Held("2", hold=True)
    async with lab(one, max_concurrent=4) as server:
        canary = cb.Canary(share=1.0, requests=10, max_error_rate=0.1)
        swap = asyncio.create_task(server.swap(two.version(), canary=canary))
        await turns()
        requests = [server.submit_nowait(n) for n in range(6)]
        await turns()
        assert (len(two.calls), one.seen) == (4, [])
        await two.release(ValueError("bad"))
        assert not swap.done()
        await two.release(ValueError("bad"))
        assert server.stats().versions["2"].state is cb.VersionState.DRAINING
        while two.calls:
            await two.release()
        error = await bounded(outcome(swap))
        assert isinstance(error, cb.SwapFailed)
        assert (error.phase, error.unload_error, two.unloaded) == ("canary", None, 1)
        found = await bounded(asyncio.gather(*map(outcome, requests)))
        assert sum(isinstance(each, ValueError) for each in found) == 2  # its own requests, and no others
        assert (await server.submit("z")).version == "1"


async def test_requests_drawn_for_a_canary_that_is_withdrawn_run_on_the_active_version() -> None:
    one, two = Held("1"), Held("2", hold=True)
    async with lab(one) as server:
        swap = asyncio.create_task(server.swap(two.version(), canary=cb.Canary(share=1.0, requests=2)))
        await turns()
        requests = [server.submit_nowait(n) for n in range(3)]
        await turns()
        assert two.seen == [0]
        swap.cancel()
        await turns()
        assert [(await bounded(each)).version for each in requests[1:]] == ["1", "1"]
        await two.release()
        assert (await bounded(requests[0])).version == "2"
        assert isinstance(await bounded(outcome(swap)), asyncio.CancelledError)
        assert two.unloaded == 1
