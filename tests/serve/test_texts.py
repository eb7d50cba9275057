"""Models of texts: ``str`` for a function and for a resident actor, BYTES for clients."""

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from serve_lab import client_of, tensor

import callboard as cb
from callboard.serve import App, Tensor

TEXTS = [Tensor("text", "TEXT", [-1])]
UPPER = [Tensor("upper", "TEXT", [-1])]


class Shouting(cb.ResidentActor):
    def upper(self, texts: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
        assert all(type(each) is str for each in texts)
        return np.array([each.upper() for each in texts], object)

    def uppers(self, items: "list[np.ndarray[Any, Any]]") -> "list[np.ndarray[Any, Any]]":
        return [self.upper(each) for each in items]


@asynccontextmanager
async def lifespan(app: App) -> AsyncIterator[None]:
    async with cb.device("cpu", isolation="process") as device:
        actor = device.actor_of(cb.Props(Shouting))
        app.add_model("actor", functools.partial(actor.call, Shouting.upper), inputs=TEXTS, outputs=UPPER)
        batches = cb.DynamicBatchingServer(functools.partial(actor.call, Shouting.uppers), max_batch=4)
        app.add_model("batches", batches, inputs=TEXTS, outputs=UPPER)
        yield


async def test_texts_cross_to_a_function_to_an_actor_in_a_process_and_to_its_batches() -> None:
    app = App(lifespan=lifespan)
    app.add_model("function", lambda texts: Shouting.upper(Shouting(), texts), inputs=TEXTS, outputs=UPPER)
    body = {"inputs": [tensor("text", "BYTES", [2], ["ä\0", ""])]}
    async with client_of(app) as http:
        for name in ("function", "actor", "batches"):
            found = await http.post(f"/v2/models/{name}/infer", json=body)
            assert found.json()["outputs"] == [tensor("upper", "BYTES", [2], ["Ä\0", ""])], name
        described = (await http.get("/v2/models/actor")).json()
    assert described["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]


async def test_bytes_that_are_no_text_are_refused_by_name() -> None:
    app = App()
    app.add_model("m", lambda text: text, inputs=TEXTS, outputs=UPPER)
    app.add_embeddings("e", lambda texts: [[1.0] for _ in texts])
    raw = b"\1\0\0\0a\2\0\0\0\xc3("
    head = b'{"inputs":[{"name":"text","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":11}}]}'
    headers = {"Inference-Header-Content-Length": str(len(head))}
    async with client_of(app) as http:
        for name in ("m", "e"):
            found = await http.post(f"/v2/models/{name}/infer", content=head + raw, headers=headers)
            assert found.status_code == 400
            assert found.json()["error"].startswith("input 'text': element [1] is not UTF-8: ")
