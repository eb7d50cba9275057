"""A model in a resident actor whose code calls sys.exit: its request fails, and the service goes on."""

import functools
import sys

from serve_lab import client_of

import callboard as cb
from callboard.serve import App, Tensor

OFTEN = 8
"""More often than an actor may be restarted."""


class Leaving(cb.ResidentActor):
    async def double(self, items: list[int]) -> list[int]:
        if 13 in items:
            sys.exit("thirteen")
        return [2 * item for item in items]


async def test_a_model_that_exits_answers_the_next_request() -> None:
    async with cb.device("cpu", isolation="thread") as device:
        actor = await device.actor_of(cb.Props(Leaving), wait=True)
        server = cb.DynamicBatchingServer[int, int](functools.partial(actor.call, Leaving.double))
        app = App("exits")
        tensors = [Tensor("x", "INT64", [])]
        app.add_model("double", server, inputs=tensors, outputs=tensors)
        async with client_of(app) as http:
            for item in (13, 4) * OFTEN:
                body = {"inputs": [{"name": "x", "datatype": "INT64", "shape": [], "data": [item]}]}
                answer = await http.post("/v2/models/double/infer", json=body)
                assert answer.status_code == (500 if item == 13 else 200), answer.text
            assert (await http.get("/v2/health/live")).status_code == 200
            assert (await http.get("/v2/health/ready")).status_code == 200
        assert actor.restarts == 0
