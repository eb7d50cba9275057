"""Code that type checkers must accept or reject: a wrong actor, reply or argument is a type error."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import callboard.actors

SOURCE = Path(callboard.actors.__file__).parents[2]

PRELUDE = """
import asyncio
from typing import Any, Generic, TypeVar
from callboard.actors import Actor, ActorRef, ActorSystem, Msg, Props, Request, Terminated

T = TypeVar("T")

class Monitored: ...
class Ops: ...

class Stats(Request[Monitored, dict[str, int]]): ...
class Read(Request["Counter", int]):
    scale: float = 1.0
class Add(Msg["Counter"]):
    amount: int
class Gemm(Request[Ops, str]):
    m: int
class Box(Generic[T]):
    def __init__(self, value: T) -> None:
        self.value = value
class Wrap(Request[Ops, Box[T]], Generic[T]):
    value: T

class Counter(Actor, Monitored):
    def __init__(self, start: int, *, step: int = 1) -> None:
        self.total = start

    @Read.handles
    def read(self, m: Read) -> int:
        return self.total

    @Add.handles
    async def add(self, m: Add) -> None:
        self.total += m.amount

    @Stats.handles
    async def stats(self, m: Stats) -> dict[str, int]:
        return {}

    @Terminated.handles
    def gone(self, m: Terminated) -> None: ...

class Blas(Actor, Ops):
    @Gemm.handles
    def gemm(self, m: Gemm) -> asyncio.Future[str]:
        return asyncio.get_running_loop().create_future()
"""

GOOD = """
async def good(system: ActorSystem) -> None:
    counter = system.actor_of(Props(Counter, 3, step=2), "counter")
    a: ActorRef[Counter] = counter
    b: ActorRef[Monitored] = counter
    counter.tell(Add(amount=1))
    counter.tell(Read())
    n: int = await counter.ask(Read(scale=2.0), timeout=1.0)
    print(await counter.ask(Read()))
    stats: dict[str, int] = await b.ask(Stats())
    blas: ActorRef[Ops] = system.actor_of(Props(Blas))
    text: str = await blas.ask(Gemm(m=1))
    boxed: Box[int] = await blas.ask(Wrap(value=1))
    await counter.offer(Add(amount=2))
    m: int = counter.ask_blocking(Read())
"""

# One line each, put into the body of a function; the checkers must complain about exactly that line.
BAD = {
    "message of another actor": "counter.tell(Gemm(m=1))",
    "ask of another actor": "await counter.ask(Gemm(m=1))",
    "ask with a plain message": "await counter.ask(Add(amount=1))",
    "wrong type of the reply": "x: str = await counter.ask(Read())",
    "narrower reference": "y: ActorRef[Counter] = monitored",
    "message beyond the protocol": "monitored.tell(Add(amount=1))",
    "missing constructor argument": "system.actor_of(Props(Counter))",
    "wrong constructor argument": 'system.actor_of(Props(Counter, "three"))',
    "unknown constructor argument": "system.actor_of(Props(Counter, 3, stride=2))",
    "missing field": "counter.tell(Add())",
    "wrong type of a field": 'counter.tell(Add(amount="one"))',
    "positional field": "counter.tell(Add(1))",
    "offer to another actor": "await counter.offer(Gemm(m=1))",
    "not an actor": "system.actor_of(Props(dict))",
}
BAD_HANDLERS = {
    "wrong reply": "@Read.handles\n    def read(self, m: Read) -> str: return ''",
    "wrong message": "@Read.handles\n    def read(self, m: Add) -> int: return 1",
    "wrong awaited reply": "@Read.handles\n    async def read(self, m: Read) -> str: return ''",
}


def bad_source() -> tuple[str, dict[int, str]]:
    """One module with all bad cases, and the line of each."""
    text = (
        PRELUDE
        + "\nasync def bad(system: ActorSystem, counter: ActorRef[Counter], monitored: ActorRef[Monitored]) -> None:\n"
    )
    lines: dict[int, str] = {}
    for name, line in BAD.items():
        lines[text.count("\n") + 1] = name
        text += f"    {line}\n"
    for i, (name, handler) in enumerate(BAD_HANDLERS.items()):
        text += f"\nclass Bad{i}(Actor):\n"
        lines[text.count("\n") + 1] = name
        text += f"    {handler}\n"
    return text, lines


def complaints(checker: str, path: Path) -> tuple[set[int], str]:
    """Lines with errors, and everything the checker said; a checker that did not run fails the test."""
    if checker == "mypy":
        command = [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--config-file",
            "/dev/null",
            "--cache-dir",
            str(path.parent.parent / "cache"),  # of the good and the bad: callboard itself is checked once
        ]
        command += ["--follow-imports=silent"]
        pattern = rf"{re.escape(path.name)}:(\d+): error"
    else:
        (path.parent / "pyrightconfig.json").write_text(
            f'{{"extraPaths": ["{SOURCE}"], "typeCheckingMode": "standard"}}'
        )
        command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--project", str(path.parent)]
        pattern = rf"{re.escape(path.name)}:(\d+):\d+ - error"
    done = subprocess.run(
        [*command, str(path)] if checker == "mypy" else command,
        capture_output=True,
        text=True,
        timeout=110,
        cwd=path.parent,
        env=os.environ | {"MYPYPATH": str(SOURCE)},
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = {int(line) for line in re.findall(pattern, done.stdout)}
    assert done.returncode == (1 if found else 0), done.stdout + done.stderr
    return found, done.stdout


@pytest.mark.typing
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_checkers_accept_the_good_and_refuse_the_bad(checker: str, tmp_path: Path) -> None:
    pytest.importorskip(checker)
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").mkdir()
    good = tmp_path / "good" / "good_case.py"
    good.write_text(PRELUDE + GOOD)
    found, said = complaints(checker, good)
    assert found == set(), said
    text, lines = bad_source()
    bad = tmp_path / "bad" / "bad_case.py"
    bad.write_text(text)
    found, said = complaints(checker, bad)
    accepted = [name for line, name in lines.items() if not found & {line, line + 1}]
    assert accepted == [], said
