"""Swaps in place, and the memory of versions: planned before a swap, proven to be back after it."""

import asyncio
from typing import Any

import pytest
from batching_lab import outcome, turns
from swap_lab import bounded

import callboard as cb

MIB = 1 << 20


class Model:
    """A model whose answers are its weights and the item; its bytes are on a device of the test's."""

    def __init__(self, device: "Memory", weights: str) -> None:
        self.device, self.weights = device, weights
        self.running = 0
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, item: Any) -> Any:
        weights = self.weights
        self.running += 1
        try:
            await self.go.wait()
        finally:
            self.running -= 1
        assert weights == self.weights, "the weights changed under a request"
        return weights, item


class Memory:
    """A device with room for a number of models of 100 MiB."""

    def __init__(self, models: float) -> None:
        self.free = int(models * 100) * MIB
        self.leaks = False
        self.loads = 0
        self.models: list[Model] = []

    def version(self, name: str, **settings: Any) -> cb.ModelVersion:
        async def load() -> Model:
            self.loads += 1
            self.free -= 100 * MIB
            model = Model(self, name)
            self.models.append(model)
            return model

        async def unload(model: Model) -> None:
            assert not model.running
            self.free += 0 if self.leaks else 100 * MIB

        async def update(model: Model) -> None:
            assert not model.running
            if settings.get("version_is_bad"):
                raise OSError("half a file")
            model.weights = name

        given = {key: value for key, value in settings.items() if key != "version_is_bad"}
        return cb.ModelVersion(name, load, unload=unload, **{"update": update, "memory": 100 * MIB, **given})

    def server(self, first: cb.ModelVersion) -> cb.ModelHotSwapServer[Any, Any]:
        return cb.ModelHotSwapServer(first, memory=cb.DeviceMemory(lambda: self.free), max_concurrent=4)


async def test_weights_are_replaced_between_requests() -> None:
    device = Memory(9)
    async with device.server(device.version("1")) as server:
        [model] = device.models
        model.go.clear()
        running = [server.submit_nowait(n) for n in range(2)]
        await turns()
        swap = asyncio.create_task(server.swap(device.version("2", golden=[("g", ("2", "g"))]), mode="in_place"))
        await turns()
        waiting = server.submit_nowait("later")
        await turns()
        assert not swap.done()
        assert server.stats().queued == 1
        model.go.set()
        assert [(await bounded(each)).response for each in running] == [("1", 0), ("1", 1)]
        report = await bounded(swap)
        assert (report.in_place, report.version, report.previous, report.generation) == (True, "2", "1", 2)
        assert await bounded(waiting) == cb.HotSwapReply(("2", "later"), "2")
        assert device.loads == 1
        report = await bounded(server.rollback(mode="in_place"))
        assert (await bounded(server.submit("x"))).response == ("1", "x")
        assert device.loads == 1
        assert {each.version: each.state.value for each in server.versions()} == {"1": "active", "2": "unloaded"}
    assert device.free == 900 * MIB


@pytest.mark.parametrize(
    "bad, phase",
    [({"version_is_bad": True}, "update"), ({"golden": [("g", ("2", "g", "more"))]}, "check")],
)
async def test_weights_that_fail_are_taken_out_again(bad: Any, phase: str) -> None:
    device = Memory(9)
    async with device.server(device.version("1")) as server:
        error = await outcome(server.swap(device.version("2", **bad), mode="in_place"))
        assert isinstance(error, cb.SwapFailed)
        assert (error.phase, error.unload_error) == (phase, None)
        assert (await bounded(server.submit("x"))).response == ("1", "x")
        stats = server.stats()
        assert (stats.active, stats.failed_swaps, stats.generation) == ("1", 1, 1)


async def test_weights_that_cannot_be_put_back_serve_no_one(caplog: pytest.LogCaptureFixture) -> None:
    device = Memory(9)
    settings = {"version_is_bad": True}
    async with device.server(device.version("1", **settings)) as server:
        error = await outcome(server.swap(device.version("2", **settings), mode="in_place"))
        assert isinstance(error, cb.SwapFailed)
        assert isinstance(error.unload_error, OSError)
        assert server.stats().active is None
        waiting = server.submit_nowait("x")
        await turns()
        assert not waiting.done()
        await bounded(server.swap(device.version("3")))
        assert (await bounded(waiting)).version == "3"
    assert "could not be put back" in caplog.text
    assert device.free == 900 * MIB


async def test_a_version_that_does_not_fit_goes_in_place_or_is_refused() -> None:
    device = Memory(1.5)
    async with device.server(device.version("1")) as server:
        report = await bounded(server.swap(device.version("2")))
        assert (report.in_place, device.loads) == (True, 1)
        for settings, mode, says in (
            ({"update": None}, "auto", "version '3' has no `update`"),
            ({}, "beside", "mode is beside"),
        ):
            error = await outcome(server.swap(device.version("3", **settings), mode=mode))
            assert isinstance(error, cb.SwapFailed)
            assert error.phase == "plan"
            assert f"it needs {100 * MIB} bytes, and {50 * MIB} are free: {66 * MIB} are missing" in str(error)
            assert says in str(error)
        error = await outcome(server.swap(device.version("3"), canary=cb.Canary(0.5, 2)))
        assert "a canary needs both versions" in str(error)
        assert device.loads == 1
        assert (await bounded(server.submit("x"))).response == ("2", "x")
    assert device.free == 150 * MIB


async def test_room_for_two_is_used() -> None:
    device = Memory(2.5)
    async with device.server(device.version("1")) as server:
        report = await bounded(server.swap(device.version("2")))
        assert (report.in_place, device.loads, report.unload_errors) == (False, 2, ())
    assert device.free == 250 * MIB


async def test_memory_that_does_not_come_back_is_reported() -> None:
    device = Memory(9)
    async with device.server(device.version("1")) as server:
        device.leaks = True
        report = await bounded(server.swap(device.version("2")))
        [(name, error)] = report.unload_errors
        assert isinstance(error, cb.MemoryKept)
        assert (name, error.expected, error.returned) == ("1", 100 * MIB, 0)
        assert "gave back 0 of" in str(error)
        device.leaks = False


async def test_a_swap_in_place_that_is_cancelled() -> None:
    device = Memory(9)
    gate = asyncio.Event()

    async def update(model: Model) -> None:
        model.weights = "half"
        await gate.wait()

    async with device.server(device.version("1")) as server:
        for held in (True, False):  # while requests run, and while weights are replaced
            [model] = device.models
            if held:
                model.go.clear()
            running = server.submit_nowait("x")
            await turns()
            swap = asyncio.create_task(server.swap(device.version("2", update=update), mode="in_place"))
            await turns()
            swap.cancel()
            assert isinstance(await outcome(swap), asyncio.CancelledError)
            model.go.set()
            assert (await bounded(running)).response == ("1", "x")
            assert (await bounded(server.submit("y"))).response == ("1", "y")


@pytest.mark.parametrize(
    "make, kind, says",
    [
        (lambda: cb.DeviceMemory(len, slack=-1), ValueError, "slack must be at least 0"),
        (lambda: cb.DeviceMemory(5), TypeError, "cannot be called"),  # type: ignore[arg-type]
        (lambda: cb.ModelVersion("1", len, memory=-1), ValueError, "memory of version '1' must be at least 0"),
        (lambda: cb.ModelVersion("1", len, update=5), TypeError, "update of version '1'"),  # type: ignore[arg-type]
    ],
)
def test_settings_that_are_refused(make: Any, kind: Any, says: str) -> None:
    with pytest.raises(kind, match=says):
        make()


async def test_an_unknown_mode_and_a_first_version() -> None:
    device = Memory(0.5)
    with pytest.raises(cb.SwapFailed, match="are missing"):
        await device.server(device.version("1")).start()
    device = Memory(2)
    async with device.server(device.version("1")) as server:
        wrong: Any = "sideways"
        with pytest.raises(ValueError, match="mode must be"):
            await server.swap(device.version("2"), mode=wrong)
