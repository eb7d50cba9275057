"""A run limit of a model: a call that does not return frees the device for other models."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serve_lab import TIMEOUT, Held, X, Y, client_of, request_of
from tests.device.residents.lab import wait_at

import callboard as cb
from callboard.patterns.requests import runs
from callboard.patterns.requests.runs import Run
from callboard.serve import App
from callboard.serve.bundled.appfile import app_of

SPENT = "model 'stuck': the request ran for longer than the model's run limit of 1 s, and was ended; "
processes = pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only")


class Stubborn(cb.ResidentActor):
    """Does not return from negative numbers."""

    def __init__(self, gate: str) -> None:
        self.gate = gate

    def double(self, x: np.ndarray) -> np.ndarray:
        if x.min() < 0:
            wait_at(self.gate)
        return 2 * x

    def many(self, items: list[Any]) -> list[Any]:
        return [self.double(np.asarray(x)) for x in items]


@pytest.fixture
def gate(tmp_path: Path) -> str:
    """A pipe that no one opens."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return str(path)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "GRACE", 0.05)


@processes
@pytest.mark.fault
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("awaits", [False, True], ids=["a method", "a function that awaits it"])
async def test_a_call_that_does_not_return_frees_the_device(gate: str, awaits: bool) -> None:
    app = App()
    async with asyncio.timeout(TIMEOUT), cb.device("cpu", isolation="process", standby=None) as device:
        actor = device.actor_of(cb.Props(Stubborn, gate))

        async def function(x: Any) -> Any:
            return await actor.call(Stubborn.double, x)

        model: Any = function if awaits else partial(actor.call, Stubborn.double)
        app.add_model("stuck", model, inputs=X, outputs=Y, run_limit=1.0)
        app.add_model("other", partial(actor.call, Stubborn.double), inputs=X, outputs=Y)
        async with client_of(app) as http:
            assert (await http.post("/v2/models/other/infer", json=request_of([1.0]))).status_code == 200
            hung = asyncio.ensure_future(http.post("/v2/models/stuck/infer", json=request_of([-1.0])))
            behind = asyncio.ensure_future(http.post("/v2/models/other/infer", json=request_of([2.0])))
            found = await hung
            assert found.status_code == 504
            assert found.json()["error"].startswith(f"{SPENT}ask for less, or give the model a larger run_limit; ")
            assert (await behind).json()["outputs"][0]["data"] == [4.0]
            assert device.health().restarts == 1
            again = await http.post("/v2/models/stuck/infer", json=request_of([3.0]))
            assert again.json()["outputs"][0]["data"] == [6.0]


@processes
@pytest.mark.fault
@pytest.mark.usefixtures("short")
async def test_the_others_of_a_batch_have_their_values(gate: str) -> None:
    app = App()
    async with asyncio.timeout(3 * TIMEOUT), cb.device("cpu", isolation="process", standby=None) as device:
        actor = device.actor_of(cb.Props(Stubborn, gate))
        await actor.ready(timeout=TIMEOUT)
        server = cb.DynamicBatchingServer[Any, Any](partial(actor.call, Stubborn.many), max_batch=4, max_wait=0.0)
        app.add_model("stuck", server, inputs=X, outputs=Y, run_limit=1.0)
        async with client_of(app):
            server.hold(3)
            items = [np.array([value], np.float32) for value in (1.0, -1.0, 2.0)]
            found: Any = await asyncio.gather(*(server.submit(item) for item in items), return_exceptions=True)
    assert [float(each[0]) for each in (found[0], found[2])] == [2.0, 4.0]
    assert isinstance(found[1], cb.BudgetSpent)
    assert str(found[1]).startswith(SPENT)


async def test_an_async_function_is_cancelled() -> None:
    held, app = Held(), App()
    app.add_model("stuck", held, inputs=X, outputs=Y, run_limit=1.0)
    async with asyncio.timeout(TIMEOUT), client_of(app) as http:
        found = await http.post("/v2/models/stuck/infer", json=request_of([1.0]))
        assert await held.ended.get() == "cancelled"
        assert (found.status_code, found.json()["error"][: len(SPENT)]) == (504, SPENT)
        held.go.set()
        assert (await http.post("/v2/models/stuck/infer", json=request_of([1.0]))).status_code == 200


async def test_a_step_of_a_decoder() -> None:
    begun: list[int] = []

    async def step(slots: list[Any]) -> list[Any]:
        begun.append(len(slots))
        await asyncio.get_running_loop().create_future()
        return []

    app = App()
    server = cb.ContinuousBatchingServer[Any, Any](step)
    app.add_decoder("stuck", server, encode=lambda text: [1], decode=str, run_limit=1.0)
    async with asyncio.timeout(TIMEOUT), client_of(app) as http:
        found = await http.post("/v1/completions", json={"model": "stuck", "prompt": "a"})
    assert begun
    assert found.status_code == 504
    assert found.json()["error"]["message"].startswith(SPENT)


@processes
async def test_whether_a_call_waits(gate: str) -> None:
    async with asyncio.timeout(TIMEOUT), cb.device("cpu", isolation="thread") as device:
        actor = device.actor_of(cb.Props(Stubborn, gate))
        run = Run([])
        first: Any = actor.call(Stubborn.double, np.ones(1))
        assert first.waits  # the actor is not ready
        await first
        assert not first.waits
        run.add(first)
        assert not run.waits()  # it has ended
        other = device.actor_of(cb.Props(Turns))
        await other.ready(timeout=TIMEOUT)
        stream = other.stream(Turns.items)
        assert await anext(stream) == 0
        calls: list[Any] = [other.call(Turns.one), other.call(Turns.one)]
        run.add(calls[1])
        waited = run.waits()
        assert [await each for each in calls] == [1, 1]
        assert waited
        await stream.aclose()


class Turns(cb.ResidentActor):
    """Runs one call at a time."""

    def items(self) -> Any:
        yield 0
        yield 1

    def one(self) -> int:
        return 1


def double(x: Any) -> Any:
    return 2 * x


async def parts(x: Any) -> AsyncIterator[Any]:
    yield x


@pytest.mark.parametrize(
    "make, limit, kind, says",
    [
        (Held, 0.0, ValueError, "model 'm': run_limit must be positive seconds, but is 0"),
        (Held, float("inf"), ValueError, "model 'm': run_limit must be positive seconds, but is inf"),
        (Held, "2", TypeError, "model 'm': run_limit must be positive seconds, but is '2', of type str: pass a float"),
        (Held, [1], TypeError, r"model 'm': run_limit must be positive seconds, but is \[1\], of type list"),
        (Held, 2j, TypeError, "model 'm': run_limit must be positive seconds, but is 2j, of type complex"),
        (Held, True, TypeError, "model 'm': run_limit must be positive seconds, but is True, of type bool"),
        (Held, 10**400, ValueError, "model 'm': run_limit must be positive seconds, but is inf"),
        (
            lambda: double,
            2,
            TypeError,
            r"model 'm': run_limit is 2, but <function double .* runs on a thread, which",
        ),
        (lambda: parts, 2, TypeError, "model 'm': run_limit is 2, but <function parts .* answers in parts"),
        (
            lambda: cb.FairShareScheduler(cb.DynamicBatchingServer(Held(), max_batch=1).submit),
            2,
            TypeError,
            "model 'm': run_limit is 2, but FairShareScheduler passes requests on to others",
        ),
        (
            lambda: cb.ModelReplicaPool([cb.Replica(Held())]),
            2,
            TypeError,
            "model 'm': run_limit is 2, but ModelReplicaPool passes requests on to others",
        ),
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused(make: Any, limit: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        App().add_model("m", make(), inputs=X, outputs=Y, run_limit=limit)


@pytest.mark.parametrize("good", [True, False], ids=["async", "on a thread"])
async def test_a_version_that_is_loaded_later(good: bool) -> None:
    held: Any = Held() if good else lambda x: x
    app = App()
    app.add_model("stuck", cb.ModelVersion("1", lambda: held), inputs=X, outputs=Y, run_limit=1.0)
    async with asyncio.timeout(TIMEOUT):
        if not good:
            with pytest.raises(cb.SwapFailed, match=r"load failed: .*'stuck': run_limit is 1, but .* on a thread"):
                async with client_of(app):
                    pass
            return
        async with client_of(app) as http:
            found = await http.post("/v2/models/stuck/infer", json=request_of([1.0]))
            assert (found.status_code, found.json()["error"][: len(SPENT)]) == (504, SPENT)


@pytest.mark.parametrize(
    "lines, says",
    [
        ('call = "numpy:square"\nrun_limit = 2', r"models\.m: model 'm': run_limit is 2, but .* runs on a thread"),
        ('onnx = "m.onnx"\nrun_limit = 2', r"models\.m: run_limit is for functions only: onnx has budget"),
    ],
)
def test_the_key_of_a_file(tmp_path: Path, lines: str, says: str) -> None:
    file = tmp_path / "app.toml"
    x = '[{ name = "x", datatype = "FP32", shape = [-1] }]'
    tensors = "" if "onnx" in lines else f"\ninputs = {x}\noutputs = {x}"
    file.write_text(f"[models.m]\n{lines}{tensors}\n")
    with pytest.raises(ValueError, match=says):
        app_of(file)
