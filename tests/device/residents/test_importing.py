"""Modules that open devices while they are imported: hosts import none of them, and open no devices themselves."""

import subprocess
import sys
from pathlib import Path

import pytest

SERVED = """
import enum
import os
from dataclasses import dataclass
from typing import Generic, TypeVar
import msgspec
import callboard as cb

with open("imports", "a") as file:
    print(os.getpid(), file=file)

T = TypeVar("T")

class Kind(enum.Enum):
    SMALL = 1

@dataclass
class Box(Generic[T]):
    number: T
    kind: Kind

class Pair(msgspec.Struct):
    left: int
    right: int

def double(number):
    return 2 * number

class Adder(cb.ResidentActor, Generic[T]):
    def __init__(self, start):
        self.total = start

    def add(self, box, pair):
        self.total += double(box.number) if box.kind is Kind.SMALL else 0
        return Box(self.total + pair.left, Kind.SMALL)

    def bad(self):
        raise ValueError("bad")
"""

BLOCKING = """
cpu = cb.sync.device("cpu", isolation=ISOLATION, standby=None)
adder = cpu.actor_of(cb.Props(Adder, 100))
print(adder.call(Adder.add, Box(1, Kind.SMALL), Pair(10, 0)).number)
"""

ASYNC = """
import asyncio

async def main():
    async with cb.device("cpu", isolation=ISOLATION, standby=None) as cpu:
        adder = cpu.actor_of(cb.Props(Adder, 100))
        print((await adder.call(Adder.add, Box(1, Kind.SMALL), Pair(10, 0))).number)

asyncio.run(main())
"""

LATER = """
import served
from served import cb

assert type(served.adder.call(served.Adder.add, served.Box(1, served.Kind.SMALL), served.Pair(20, 0))) is served.Box
again = served.cpu.actor_of(cb.Props(served.Adder, 1))
print(again.call(served.Adder.add, served.Box(1, served.Kind.SMALL), served.Pair(0, 0)).number)
served.cpu.close()
"""


def run(folder: Path, program: str, *arguments: str, **modules: str) -> subprocess.CompletedProcess[str]:
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)
    (folder / "program.py").write_text(program)
    return subprocess.run(
        [sys.executable, "program.py", *arguments], cwd=folder, capture_output=True, text=True, timeout=50, check=False
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("isolation", ["process", "thread"])
@pytest.mark.parametrize("then", [BLOCKING, ASYNC], ids=["blocking", "async"])
def test_a_module_that_opens_a_device_is_imported_once(tmp_path: Path, isolation: str, then: str) -> None:
    done = run(tmp_path, "import served", served=SERVED + then.replace("ISOLATION", repr(isolation)))
    assert done.stdout == "112\n", done.stderr
    assert len((tmp_path / "imports").read_text().split()) == 1


@pytest.mark.slow
def test_its_classes_travel_by_value_after_the_import_as_well(tmp_path: Path) -> None:
    done = run(tmp_path, LATER, served=SERVED + BLOCKING.replace("ISOLATION", "'process'"))
    assert done.stdout == "112\n3\n", done.stderr
    assert len((tmp_path / "imports").read_text().split()) == 1


NESTED = """
import callboard as cb
import served
import models
from callboard.actors.errors import ActorStopped

late = models.cpu.actor_of(cb.Props(models.Late))
try:
    late.call(models.Late.add, 1)
except ActorStopped as e:
    print(e)
models.cpu.close()
"""

MODELS = """
from served import cb, cpu

class Late(cb.ResidentActor):
    def add(self, n):
        return n
"""


def test_a_host_opens_no_devices(tmp_path: Path) -> None:
    """The actor's module opens none, so the host imports it, and with it one that does: by now for the second time."""
    done = run(tmp_path, NESTED, models=MODELS, served=SERVED + BLOCKING.replace("ISOLATION", "'process'"))
    first, told = done.stdout.splitlines()[:2]
    assert first == "112", done.stderr
    assert "this process is the context host of cpu:0" in told
    assert 'if __name__ == "__main__":' in told
    assert len(set((tmp_path / "imports").read_text().split())) == 2  # the application and its only host


ARGUED = """
import sys
import callboard as cb

WIDTH = int(sys.argv[sys.argv.index("--width") + 1]) if "--width" in sys.argv else 8

class Wide(cb.ResidentActor):
    def told(self) -> list[object]:
        return [WIDTH, sys.argv]
"""

ARGUING = """
import sys
import argued
from argued import cb

with cb.sync.device("cpu", isolation="process", standby=None) as cpu:
    assert cpu.actor_of(cb.Props(argued.Wide)).call(argued.Wide.told) == [16, sys.argv]
print("the same")
"""


def test_a_module_reads_the_arguments_of_the_application(tmp_path: Path) -> None:
    done = run(tmp_path, ARGUING, "--width", "16", "ä", argued=ARGUED)
    assert done.stdout == "the same\n", done.stderr
