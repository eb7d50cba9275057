"""Models over HTTP: a resident actor under the Open Inference Protocol, and embeddings that are batched."""

import asyncio
import functools
import json
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

import callboard as cb
from callboard.serve import App, Tensor, listening


class Regression(cb.ResidentActor):
    """Predicts y from x; its coefficients stay on the device."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.coefficients = np.array([2.0, 0.5], np.float32)

    def predict(self, x: np.ndarray) -> np.ndarray:
        return x @ self.coefficients


def embed(texts: list[str]) -> list[list[float]]:
    return [[len(text), text.count("e")] for text in texts]


@asynccontextmanager
async def lifespan(app: App, name: str) -> AsyncIterator[None]:
    async with cb.device(name) as gpu:
        predict = functools.partial(gpu.actor_of(cb.Props(Regression)).call, Regression.predict)
        x, y = Tensor("x", "FP32", [-1, 2]), Tensor("y", "FP32", [-1])
        app.add_model("regression", predict, inputs=[x], outputs=[y], device=gpu)
        app.add_embeddings("letters", cb.DynamicBatchingServer(embed, max_batch=32))
        yield


def ask(url: str, body: Any = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(url, data, timeout=30) as response:
        return str(response.read().decode())


async def main(name: str) -> None:
    async with listening(App(lifespan=functools.partial(lifespan, name=name)), port=0) as url:
        x = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[1, 0], [1, 2]]}
        print(await asyncio.to_thread(ask, f"{url}/v2/models/regression/infer", {"inputs": [x]}))
        print(await asyncio.to_thread(ask, f"{url}/v1/embeddings", {"model": "letters", "input": ["see", "me"]}))
        metrics = (await asyncio.to_thread(ask, f"{url}/metrics")).splitlines()
        print("\n".join(line for line in metrics if line.startswith("callboard_http_responses_total")))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
