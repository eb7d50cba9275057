"""What must work on a system without Linux's interfaces, by its public names."""

import asyncio
import importlib
import pkgutil
import sys
import tempfile

import numpy as np

import callboard as cb
import callboard.cli

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
    with cb.sync.device("cpu") as blocking:
        print("blocking", float((blocking.put(np.ones(3)).sum()).get()))


if __name__ == "__main__":
    print("modules", imported() > 900)
    asyncio.run(main())
    with tempfile.TemporaryDirectory():
        callboard.cli.main(["doctor"])
