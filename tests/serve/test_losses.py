"""Clients whose requests lose the device's context: they get 422, all others their answers, and the app stays ready."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from serve_lab import TIMEOUT, X, Y, client_of, request_of
from tests.patterns.poison_lab import Card

import callboard as cb
from callboard.serve import App

INFER = "/v2/models/double/infer"


async def statuses(http: Any, values: list[float]) -> dict[float, int]:
    """Of requests at once, each with one value."""
    found = await asyncio.gather(*(http.post(INFER, json=request_of([value])) for value in values))
    for value, each in zip(values, found, strict=True):
        assert each.status_code != 200 or each.json()["outputs"][0]["data"] == [2 * value]
    return {value: each.status_code for value, each in zip(values, found, strict=True)}


@pytest.mark.parametrize("tenants", [None, {"": 1}], ids=["one tenant", "tenants"])
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
async def test_ten_poisons_among_healthy_requests(at_once: bool, tenants: Any) -> None:
    card, app = Card(), App()

    async def double(x: Any) -> Any:
        return np.array(await card.double(x.tolist()), np.float32)

    app.add_model("double", double, inputs=X, outputs=Y, concurrency=4, tenants=tenants)
    waves = [[*range(1, 31), *range(-10, 0)]] if at_once else [[1, 2, 3, -n, 4, 5] for n in range(1, 11)]
    async with asyncio.timeout(TIMEOUT), client_of(app) as http:
        for wave in waves:
            found = await statuses(http, [float(value) for value in wave])
            assert found == {value: 200 if value > 0 else 422 for value in found}
            card.now += 6.0
        losses = card.losses
        assert set((await statuses(http, [-1.0, -10.0])).values()) == {422}
        for health in ("live", "ready"):
            assert (await http.get(f"/v2/health/{health}")).status_code == 200
    assert not card.stopped
    assert losses == card.losses <= 30


class Fragile(cb.ResidentActor):
    """Its host dies of a negative number."""

    def __init__(self, server: int) -> None:
        self.server = server

    def double(self, x: Any) -> Any:
        if x[0] < 0:
            assert os.getpid() != self.server, "it lives in the server's process"
            os.kill(os.getpid(), signal.SIGKILL)
        return 2 * x


@pytest.mark.fault
@pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only")
async def test_a_device_of_a_lifespan_allows_no_loss_and_goes_on() -> None:
    devices: list[cb.Device] = []
    models: list[cb.ResidentRef[Fragile]] = []

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        async with cb.device("cpu", standby=None, max_restarts=0, on_exhausted="stop") as device:
            devices.append(device)
            model = device.actor_of(cb.Props(Fragile, os.getpid()))
            models.append(model)

            async def double(x: Any) -> Any:
                return await model.call(Fragile.double, x)

            app.add_model("double", double, inputs=X, outputs=Y, concurrency=4)
            yield

    async with client_of(App(lifespan=lifespan)) as http:
        found = await statuses(http, [1.0, 2.0, -3.0, 4.0])
        assert found == {1.0: 200, 2.0: 200, -3.0: 422, 4.0: 200}
        await devices[0].ready()  # again, after the last loss
        await models[0].ready()  # and its actor
        assert devices[0].health().restarts == 3
        for health in ("live", "ready"):
            assert (await http.get(f"/v2/health/{health}")).status_code == 200
