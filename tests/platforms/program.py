"""What must work on a system without Linux's interfaces, by its public names."""

import asyncio
import importlib
import json
import pkgutil
import sys
import tempfile
import urllib.request

import numpy as np

import callboard as cb
from callboard.serve import App, Tensor, listening

OF_OTHERS = "callboard.backends.cuda", "callboard.serve.bundled", "callboard.testing.plugin"


class Scale(cb.ResidentActor):
    def setup(self, ctx: cb.HostContext) -> None:
        self.factor = 2.0

    def predict(self, x: float) -> float:
        return self.factor * x


def imported() -> int:
    """Import every module; a package that is not installed is the only excuse."""
    count = 0
    for found in pkgutil.walk_packages(cb.__path__, "callboard.", onerror=lambda name: None):
        if found.name.endswith("__main__") or found.name.startswith(OF_OTHERS):
            continue
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as e:
            if e.name is None or sys.platform in str(e):
                raise
        except ImportError as e:
            if "install" not in str(e):
                raise
        count += 1
    return count


async def main() -> None:
    async with cb.device("cpu") as dev:
        a = dev.put(np.arange(6.0).reshape(2, 3))
        print("product", (await (a @ a.T).get()).tolist())
        actor = dev.actor_of(cb.Props(Scale), "scale")
        print("resident", await actor.call(Scale.predict, 21.0))
    try:
        async with cb.device("cpu", isolation="process"):
            pass
    except cb.AccelError as e:
        print("process", str(e).partition(",")[0])
    await journals()
    await served()


async def journals() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with cb.ReplayHarness("record", cb.FileJournal(folder)):
            try:
                async with cb.ReplayHarness("record", cb.FileJournal(folder)):
                    pass
            except cb.JournalConflict as e:
                print("journal", type(e).__name__)


def double(x: np.ndarray) -> np.ndarray:
    return 2 * x


async def served() -> None:
    app = App()
    app.add_model("double", double, inputs=[Tensor("x", "FP32", [-1])], outputs=[Tensor("y", "FP32", [-1])])
    body = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}]}
    async with listening(app, port=0) as url:
        print("served", await asyncio.to_thread(post, f"{url}/v2/models/double/infer", body))


def post(url: str, body: object) -> int:
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode()), timeout=60) as answer:
        return int(answer.status)


def blocking() -> None:
    with cb.sync.device("cpu") as blocking:
        print("blocking", float((blocking.put(np.ones(3)).sum()).get()))


if __name__ == "__main__":
    if sys.argv[1:] == ["modules"]:
        print("modules", imported() > 900)
    else:
        asyncio.run(main())
        blocking()
