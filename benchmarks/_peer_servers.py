"""One model behind one framework's HTTP server: run by that framework's interpreter. Batches of 32, no wait.

    python _peer_servers.py {callboard,bare,bentoml,litserve,ray} PORT

A request has the number of a row; a negative one ends the process of the model, a perceptron 384-2048-2048-8 in f32, on
one BLAS thread.
"""

import itertools
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

MAX_BATCH = 32
WIDTHS = (384, 2048, 2048, 8)


class Perceptron:
    """The model."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        pairs = itertools.pairwise(WIDTHS)
        self._weights = [rng.standard_normal(pair, np.float32) / pair[0] ** 0.5 for pair in pairs]
        self._rows = rng.standard_normal((1024, WIDTHS[0]), np.float32)

    def __call__(self, numbers: Any) -> Any:
        numbers = np.asarray(numbers).reshape(-1)
        if (numbers < 0).any():
            os._exit(70)
        x = self._rows[numbers % len(self._rows)]
        for weights in self._weights[:-1]:
            x = np.maximum(x @ weights, 0)
        return x @ self._weights[-1]


def callboard(port: int) -> None:
    import callboard as cb
    from callboard.serve import App, Tensor

    model = Perceptron()
    app = App()
    batches = cb.DynamicBatchingServer(lambda items: model(np.stack(items)), max_batch=MAX_BATCH)
    app.add_model("mlp", batches, inputs=[Tensor("i", "INT64", [1])], outputs=[Tensor("y", "FP32", [8])])
    cb.serve(app, port=port)


def bare(port: int) -> None:
    """A batcher and nothing else: an ASGI function, a list of requests, one thread that computes."""
    import asyncio
    import json
    from concurrent.futures import ThreadPoolExecutor

    import uvicorn

    model, pool = Perceptron(), ThreadPoolExecutor(1)
    waiting: list[tuple[int, asyncio.Future[Any]]] = []
    running = False

    async def run() -> None:
        nonlocal running
        running = True
        while waiting:
            batch = waiting[:MAX_BATCH]
            del waiting[:MAX_BATCH]
            numbers = [number for number, _ in batch]
            rows = await asyncio.get_running_loop().run_in_executor(pool, model, numbers)
            for (_, future), row in zip(batch, rows, strict=True):
                future.set_result(row)
            await asyncio.sleep(0)  # those that were answered ask again
        running = False

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        future = asyncio.get_running_loop().create_future()
        waiting.append((json.loads(body)["i"], future))
        if not running:
            tasks.append(asyncio.ensure_future(run()))
            del tasks[:-1]
        answer = json.dumps({"y": (await future).tolist()}).encode()
        head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": answer})

    tasks: list[asyncio.Future[None]] = []
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)


def litserve(port: int) -> None:
    from _peer_litserve import Api
    from litserve import LitServer

    server = LitServer(Api(max_batch_size=MAX_BATCH, batch_timeout=0), accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=port, generate_client_file=False, log_level="error")


def ray(port: int) -> None:
    import ray as framework
    from ray import serve

    class Model:
        def __init__(self) -> None:
            self.model = Perceptron()

        @serve.batch(max_batch_size=MAX_BATCH, batch_wait_timeout_s=0)
        async def run(self, numbers: Any) -> Any:
            return [row.tolist() for row in self.model(numbers)]

        async def __call__(self, request: Any) -> Any:
            return {"y": await self.run((await request.json())["i"])}

    framework.init(address="local", _temp_dir=os.environ["HOME"], include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(serve.deployment(max_ongoing_requests=256)(Model).bind(), route_prefix="/predict")
    threading.Event().wait()


def bentoml(port: int) -> None:
    source = """
import numpy as np
import bentoml
from _peer_servers import MAX_BATCH, Perceptron

@bentoml.service(workers=1, logging={"access": {"enabled": False}})
class Service:
    def __init__(self) -> None:
        self.model = Perceptron()

    @bentoml.api(batchable=True, max_batch_size=MAX_BATCH, max_latency_ms=60_000, route="/predict")
    def predict(self, i: np.ndarray) -> np.ndarray:
        return self.model(i)
"""
    folder = Path(os.environ["HOME"])
    (folder / "service.py").write_text(source)
    os.environ["PYTHONPATH"] = f"{Path(__file__).parent}{os.pathsep}{folder}"
    command = ["-m", "bentoml", "serve", "service:Service", "--host", "127.0.0.1", "--port", str(port)]
    os.chdir(folder)
    os.execv(sys.executable, [sys.executable, *command])


if __name__ == "__main__":
    {"callboard": callboard, "bare": bare, "litserve": litserve, "ray": ray, "bentoml": bentoml}[sys.argv[1]](
        int(sys.argv[2])
    )
