"""``python -m tests.faults.serving_soak``: four models on one device, mixed load, and requests that kill or hang it.

``callboard serve`` runs in a process of its own, as it comes but for ``ready_timeout`` and ``abandoned_after``. Every
20 s one request ends the process of the models, and every 60 s one does not return, until its client leaves. Every
other request must end in its right value, and the server's memory must stay flat.
"""

import argparse
import asyncio
import ctypes
import functools
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
import psutil
from tests.faults.load import BOUND

import callboard as cb
from callboard.serve import App, EdgeLimits, Tensor

__all__ = ["app"]

CLIENTS = 12
PAUSE = 0.02
PATIENCE = 120.0
"""Seconds that a response may take; one that takes longer has failed."""
GROWTH = 32 << 20
"""Bytes that the server may grow by after the first fifth of the time."""
KILLS = ["exit", "segv", "kill"]
HANG = -1e6
EOS = 0


class Model(cb.ResidentActor):
    """Doubles numbers. A negative one ends its process; ``HANG`` does not return."""

    def double(self, x: Any) -> Any:
        if x[0] == HANG:
            time.sleep(1e6)
        if x[0] < 0:
            match KILLS[int(-x[0]) % len(KILLS)]:
                case "exit":
                    os._exit(3)
                case "segv":
                    ctypes.string_at(0)
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
        return 2 * x

    def batch(self, rows: list[Any]) -> list[Any]:
        return [self.double(row) for row in rows]

    def embed(self, texts: list[str]) -> list[Any]:
        return [self.double(np.array([float(text), 1.0], np.float32)) for text in texts]

    def step(self, sequences: list[tuple[list[int], int]]) -> list[int]:
        """The tokens of a prompt backwards, then the end."""
        return [[*reversed(prompt), EOS][done] for prompt, done in sequences]


@asynccontextmanager
async def lifespan(app: App) -> AsyncIterator[None]:
    x, y = [Tensor("x", "FP32", [-1])], [Tensor("y", "FP32", [-1])]
    async with cb.device("cpu", abandoned_after=1.0) as device:
        model = device.actor_of(cb.Props(Model))
        app.add_model("single", functools.partial(model.call, Model.double), inputs=x, outputs=y)
        batches = cb.DynamicBatchingServer(functools.partial(model.call, Model.batch), max_batch=16)
        app.add_model("batch", batches, inputs=x, outputs=y)
        app.add_embeddings("embed", functools.partial(model.call, Model.embed))

        async def step(slots: list[Any]) -> list[Any]:
            asked = [(list(slot.item.prefix), len(slot.parts)) for slot in slots]
            tokens = await model.call(Model.step, asked)
            return [cb.Last(EOS) if token == EOS else token for token in tokens]

        words = cb.ContinuousBatchingServer[cb.Decode, int](step)
        app.add_decoder(
            "words", words, encode=lambda text: list(text.encode()), decode=lambda t: bytes(t).decode(), eos=EOS
        )
        yield


app = App("soak", lifespan=lifespan, limits=EdgeLimits(ready_timeout=PATIENCE))


def infer(value: float) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [value, 1.0]}]}


async def ask(http: httpx.AsyncClient, kind: int, value: float) -> tuple[int, bool]:
    """The status of a request, and whether its answer is right."""
    match kind:
        case 0 | 1:
            found = await http.post(f"/v2/models/{['single', 'batch'][kind]}/infer", json=infer(value))
            right = found.status_code == 200 and found.json()["outputs"][0]["data"] == [2 * value, 2.0]
        case 2:
            found = await http.post("/v1/embeddings", json={"model": "embed", "input": [f"{value:g}"] * 2})
            right = (
                found.status_code == 200 and [row["embedding"][0] for row in found.json()["data"]] == [2 * value] * 2
            )
        case _:
            text = f"{abs(value):.0f}"
            given = {"model": "words", "prompt": text, "max_tokens": 32}
            found = await http.post("/v1/completions", json=given)
            right = found.status_code == 200 and found.json()["choices"][0]["text"] == text[::-1]
    return found.status_code, right


class Soak:
    """The clients, what became of their requests, and the memory of the server."""

    def __init__(self, port: int, process: int, seconds: float, every: float) -> None:
        self.port, self.every = port, every
        self.server = psutil.Process(process)
        self.until = time.monotonic() + seconds
        self.seconds = seconds
        self.ends: Counter[str] = Counter()
        self.kills: Counter[int] = Counter()
        self.hangs = 0
        self.slowest = 0.0
        self.bytes: list[int] = []
        self.numbers = itertools.count(1)

    async def run(self) -> None:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.port}", timeout=PATIENCE, limits=httpx.Limits(max_connections=None)
        ) as http:
            async with asyncio.TaskGroup() as tasks:
                for client in range(CLIENTS):
                    tasks.create_task(self._client(http, client))
                tasks.create_task(self._kill(http))
                tasks.create_task(self._hang(http))
                tasks.create_task(self._watch())

    async def _client(self, http: httpx.AsyncClient, client: int) -> None:
        while time.monotonic() < self.until:
            value = float(next(self.numbers) % 1_000_000)
            began = time.monotonic()
            try:
                status, right = await ask(http, client % 4, value)
                how = "right" if right else f"wrong {status}"
            except httpx.HTTPError as e:
                how = type(e).__name__
            self.ends[how] += 1
            self.slowest = max(self.slowest, time.monotonic() - began)
            await asyncio.sleep(PAUSE)

    async def _kill(self, http: httpx.AsyncClient) -> None:
        for n in itertools.count(1):
            await self._pause(self.every)
            if time.monotonic() >= self.until:
                return
            self.kills[(await ask(http, n % 3, -float(n)))[0]] += 1

    async def _hang(self, http: httpx.AsyncClient) -> None:
        while True:
            await self._pause(3 * self.every)
            if time.monotonic() >= self.until:
                return
            try:
                async with asyncio.timeout(1):
                    await ask(http, random.randrange(2), HANG)
            except TimeoutError:
                self.hangs += 1

    async def _watch(self) -> None:
        for n in itertools.count(1):
            await self._pause(self.seconds / 50)
            if time.monotonic() >= self.until:
                return
            self.bytes.append(self.server.memory_info().rss)
            if n % 5 == 0:
                told = f"{self.bytes[-1] >> 20} MiB, slowest {self.slowest:.1f} s"
                print(f"{dict(self.ends)}, kills {dict(self.kills)}, hangs {self.hangs}, {told}", flush=True)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, min(seconds, self.until - time.monotonic())))

    def check(self) -> None:
        """Raise AssertionError unless all is right."""
        assert set(self.ends) == {"right"}, self.ends
        assert set(self.kills) <= {422}, self.kills
        early, late = self.bytes[len(self.bytes) // 5], max(self.bytes[-5:])
        assert late - early < GROWTH, f"{early >> 20} MiB became {late >> 20} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2700.0, help="how long (default 2700)")
    parser.add_argument("--every", type=float, default=20.0, help="seconds between kills (default 20)")
    parser.add_argument("--port", type=int, default=18765)
    given = parser.parse_args()
    command = [sys.executable, "-m", "callboard", "serve", "tests.faults.serving_soak:app", "--port", str(given.port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            asyncio.run(until_ready(given.port))
            soak = Soak(given.port, process.pid, given.seconds, given.every)
            asyncio.run(soak.run())
            soak.check()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(BOUND)
    print(f"{sum(soak.ends.values())} requests, all right; {sum(soak.kills.values())} kills and {soak.hangs} hangs")


async def until_ready(port: int) -> None:
    async with asyncio.timeout(BOUND), httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        while True:
            try:
                if (await http.get("/v2/health/ready")).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    main()
