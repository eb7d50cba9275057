"""Subjects of a benchmark, each in a separate process, so that they share no context, threads or memory.

A subject is a program that ends in ``serve(...)``; it measures when it is told to and gives one number.
"""

import asyncio
import contextlib
import inspect
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

Measure = Callable[..., Any]


class Missing(Exception):
    """A subject cannot run here: its text says why."""


class Worker:
    """A running subject.

    Args:
        program: Its file in this folder.
        arguments: Its arguments.
    """

    def __init__(self, program: str, *arguments: str) -> None:
        source = str(HERE.parent / "src")
        path = os.pathsep.join([source, str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / program), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        hello = self._answer()
        if "missing" in hello:
            self.close()
            raise Missing(hello["missing"])

    def measure(self, what: str, **settings: Any) -> float:
        """One measurement."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([what, settings]) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "value" not in answer:
            raise RuntimeError(f"{what} failed:\n{answer.get('error') or answer.get('missing')}")
        return float(answer["value"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise RuntimeError(f"{self._process.args} ended with {self._process.wait()}")

    def close(self) -> None:
        """End it; waits."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(60)


@contextlib.contextmanager
def workers(wanted: dict[str, tuple[str, ...]]) -> Iterator[dict[str, Worker]]:
    """Start subjects by name, ``(program, *arguments)`` each; says which cannot run here and leaves them out."""
    running: dict[str, Worker] = {}
    try:
        for name, command in wanted.items():
            try:
                running[name] = Worker(*command)
            except Missing as e:
                print(f"left out: {name}: {e}")
        yield running
    finally:
        for worker in running.values():
            worker.close()


def missing(why: str) -> None:
    """Say, in a subject, that it cannot run, and end it."""
    print(json.dumps({"missing": why}), flush=True)
    sys.stdin.readline()
    raise SystemExit(0)


async def serve_async(measures: dict[str, Measure]) -> None:
    """Serve the orders on stdin until it ends."""
    print(json.dumps({"ready": True}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        what, settings = json.loads(line)
        try:
            value = measures[what](**settings)
            if inspect.isawaitable(value):
                value = await value
            print(json.dumps({"value": value}), flush=True)
        except Exception:  # the one who asked shows it
            print(json.dumps({"error": traceback.format_exc()}), flush=True)


def serve(measures: dict[str, Measure]) -> None:
    """As :func:`serve_async`, on the main thread without a loop."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        what, settings = json.loads(line)
        try:
            print(json.dumps({"value": measures[what](**settings)}), flush=True)
        except Exception:  # likewise
            print(json.dumps({"error": traceback.format_exc()}), flush=True)
