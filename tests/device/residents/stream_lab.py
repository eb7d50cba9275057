"""Resident actors that yield, for tests; importable by context hosts."""

import sys
from collections.abc import Generator, Iterable, Iterator
from typing import Any

import numpy as np
from tests.device.residents.lab import OwnError, enter, local, made, own_thread, wait_at

import callboard as cb


class Streamer(cb.ResidentActor):
    """Counts how far its generators have run, and how they have ended."""

    supervision = cb.OneForOne(
        {KeyError: cb.Directive.RESTART, Exception: cb.Directive.RESUME},
        default=cb.Directive.RESTART,
        max_restarts=3,
        within=60.0,
    )

    def __init__(self, ended: str = "") -> None:
        self.steps = 0
        self.log: list[str] = []
        self.ended = ended

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = enter(ctx)

    def note(self, text: str) -> None:
        self.log.append(text)
        if self.ended:
            with open(self.ended, "a") as file:
                file.write(text + "\n")

    def count(self, n: int, name: str = "count") -> Iterator[int]:
        try:
            for i in range(n):
                self.steps += 1
                yield i
            self.note(f"{name} done")
        finally:
            self.note(f"{name} closed")

    def state(self) -> tuple[int, list[str]]:
        return self.steps, self.log

    def open_streams(self) -> int:
        return len(own_thread()._streams)

    def mark(self, text: str) -> None:
        self.log.append(text)

    def letters(self, text: str, log: bool = True) -> Generator[str, None, None]:
        for letter in text:
            if log:
                self.log.append(letter)
            yield letter

    def gated(self, gate: str, n: int) -> Iterable[int]:
        try:
            for i in range(n):
                self.steps += 1
                if i == 1:
                    wait_at(gate)
                yield i
        finally:
            self.note("gated closed")

    def arrays(self, n: int, size: int) -> Iterator[np.ndarray]:
        for i in range(n):
            yield np.full(size, i, np.float32)

    def echo(self, parts: list[Any], *, times: int = 1, name: str = "", stream: int = 0) -> Iterator[Any]:
        for _ in range(times):
            yield from parts

    def lend(self, n: int) -> Iterator[cb.GpuRef]:
        for i in range(n):
            yield self.ctx.ref(made(self.ctx, np.full(3, i, np.float32)))

    def fails(self, n: int, how: str) -> Iterator[int]:
        try:
            for i in range(n):
                self.steps += 1
                yield i
            match how:
                case "own":
                    raise OwnError("bad", 7)
                case "key":
                    raise KeyError("restart")
                case "exit":
                    sys.exit(3)
                case "stop":
                    raise StopIteration
                case "unsendable":
                    yield object()  # type: ignore[misc]
            self.steps += 1
            yield -1
        finally:
            self.note(f"{how} closed")

    def fails_to_close(self, n: int) -> Iterator[int]:
        try:
            yield from range(n)
        finally:
            raise OwnError("cleaning up", 8)

    def refuses(self) -> Iterator[int]:
        raise OwnError("not today", 9)

    def listed(self) -> list[int]:
        return [1, 2, 3]

    def hidden(self) -> Any:
        return (i for i in range(3))

    def iterator(self, n: int) -> Iterator[int]:
        return iter(range(n))

    def sums(self, array: cb.In, n: int) -> Iterator[float]:
        try:
            for _ in range(n):
                yield float(local(array).sum())
        finally:
            self.note(f"sum {float(local(array).sum())}")

    def takes(self, array: Any) -> Iterator[float]:
        yield float(local(array).sum())

    def wait(self, gate: str) -> None:
        wait_at(gate)

    def fail(self, how: str) -> None:
        if how == "exit":
            sys.exit(3)
        raise KeyError("restart")
