"""Shared by the tests of serving: an app of small models, and a client in the same process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np

from callboard.serve import RIGHTS, App, Tensor

TIMEOUT = 20.0
"""Seconds that a test waits for what must come."""


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop run until it holds: no event tells of it."""
    async with asyncio.timeout(TIMEOUT):
        while not condition():  # noqa: ASYNC110 -- the state of another part of the process
            await asyncio.sleep(0)


class Tally:
    """Counts what tasks do, for others that wait for a number of it."""

    def __init__(self) -> None:
        self.count = 0
        self._more = asyncio.Event()

    def add(self) -> None:
        self.count += 1
        self._more.set()

    async def reached(self, count: float) -> None:
        while self.count < count:
            self._more.clear()
            await self._more.wait()


class Held:
    """An async model that answers when the test says so, and notes what became of its calls."""

    def __init__(self) -> None:
        self.begun = asyncio.Queue[int]()
        self.ended: asyncio.Queue[str] = asyncio.Queue()
        self.go = asyncio.Event()

    async def __call__(self, x: Any) -> Any:
        self.begun.put_nowait(len(x))
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended.put_nowait("cancelled")
            raise
        self.ended.put_nowait("done")
        return x


def anyone(headers: Any) -> Any:
    """All rights to every client."""
    return RIGHTS


X = [Tensor("x", "FP32", [-1])]
Y = [Tensor("y", "FP32", [-1])]


def small_app(**options: Any) -> App:
    """Models of all kinds of tensors."""
    if {"model_control", "shared_memory", "trace_file"} & options.keys() and "token" not in options:
        options.setdefault("rights", anyone)
    app = App("lab", **options)
    app.add_model("double", lambda x: 2 * x, inputs=X, outputs=Y)
    app.add_model(
        "sum",
        lambda a, b: (a + b, np.array(["sum", "ümlaut"])),
        inputs=[Tensor("a", "INT64", [2, -1]), Tensor("b", "INT64", [2, -1])],
        outputs=[Tensor("total", "INT64", [2, -1]), Tensor("text", "BYTES", [2])],
        version="7",
    )
    app.add_model("echo", lambda x: x, inputs=[Tensor("x", "BYTES", [-1])], outputs=[Tensor("y", "BYTES", [-1])])
    for name in ("FP16", "BF16", "BOOL", "UINT8"):
        app.add_model(name, lambda x: x, inputs=[Tensor("x", name, [-1])], outputs=[Tensor("y", name, [-1])])
    return app


@asynccontextmanager
async def client_of(app: App, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an app that runs, without a socket."""
    async with (
        app.running(),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://lab", timeout=TIMEOUT, **options
        ) as http,
    ):
        yield http


def tensor(name: str, datatype: str, shape: list[int], data: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def request_of(values: list[float], **more: Any) -> dict[str, Any]:
    """A request to ``double``."""
    return {"inputs": [tensor("x", "FP32", [len(values)], values)], **more}
