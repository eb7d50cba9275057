"""Resident actors for tests, importable by context hosts, and gates that work in both isolations."""

import asyncio
import importlib
import logging
import os
import sys
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

import callboard as cb
from callboard.device.host.residents.item import Outcome
from callboard.device.host.residents.thread.thread import ActorThread
from callboard.kernel.sparse import CsrRef

if TYPE_CHECKING:  # hosts import this module
    import pytest


class Gate:
    """A named pipe: an actor waits at it until the test lets it through; the test knows when it has come."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._held: IO[str] | None = None
        os.mkfifo(self.path)

    async def reached(self) -> None:
        """Somebody waits at it, and stays until :meth:`let_through`."""
        self._held = await asyncio.to_thread(open, self.path, "w")

    async def let_through(self) -> None:
        """Wait until somebody waits, and let it go on."""
        if self._held is None:
            await self.reached()
        assert self._held is not None
        self._held.close()
        self._held = None

    def open_for_good(self) -> None:
        """At the end of a test: nobody may stay."""
        if self._held is not None:
            self._held.close()
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        except FileNotFoundError:
            return
        os.unlink(self.path)
        os.close(descriptor)


def wait_at(gate: str) -> None:
    try:
        with open(gate) as file:
            file.read()
    except FileNotFoundError:  # opened for good
        pass


class Unknown:
    """No class that travels."""


def local(array: Any) -> Any:
    """A device array that came with a call: as it is on a CPU, of CuPy on a GPU."""
    return array if isinstance(array, np.ndarray) else _cupy().from_dlpack(array)


def made(ctx: cb.HostContext, array: Any) -> Any:
    """An array of the actor's own on its device."""
    return array if ctx.info.backend == "cpu" else _cupy().asarray(array)


def is_read_only(array: Any) -> bool:
    """Whether a device array that came with a call may only be read."""
    if isinstance(array, np.ndarray):
        return not array.flags.writeable
    return bool(array.__cuda_array_interface__["data"][1])


def own_thread() -> Any:
    """The ``ActorThread`` of the actor that this code runs in."""
    thread: Any = threading.current_thread()
    return thread._target.__self__


def interrupt_once(monkeypatch: "pytest.MonkeyPatch") -> None:
    """The next call of an actor in this process is interrupted by an error of the host when it has run."""

    def finish(self: ActorThread, outcome: Outcome) -> None:
        monkeypatch.undo()
        raise RuntimeError("internal")

    monkeypatch.setattr(ActorThread, "finish", finish)


def enter(ctx: cb.HostContext) -> cb.HostContext:
    """For ``setup``: CuPy works on the actor's stream from here on. One that a method imports would not."""
    if ctx.info.backend == "cuda":
        _cupy()
        _ = ctx.stream
    return ctx


def _cupy() -> Any:
    return importlib.import_module("cupy")


class OwnError(Exception):
    """Its constructor takes something else than it hands on."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(f"{what}!")
        self.number = number


class Add(cb.Request["Probe", int], tag="resident.add"):
    n: int
    array: Any = None


class Note(cb.Msg["Probe"], tag="resident.note"):
    text: str


class Unhandled(cb.Request["Probe", int], tag="resident.unhandled"): ...


class Probe(cb.ResidentActor):
    """Does what a test asks for."""

    def __init__(self, start: int = 0, fail_setup: str = "", log: str = "") -> None:
        self.total = start
        self.fail_setup = fail_setup
        self.log = log
        self.kept: list[Any] = []
        self.notes: list[str] = []
        self.prepared = 0
        self.generations = 0

    def prepare(self) -> None:
        self.prepared += 1
        self._note(f"prepare {os.getpid()}")

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = enter(ctx)
        self.generations += 1
        self._note(f"setup {os.getpid()}")
        if self.fail_setup and os.path.exists(self.fail_setup):
            raise ValueError("setup failed")

    def _note(self, text: str) -> None:
        if self.log:
            with open(self.log, "a") as file:
                file.write(text + "\n")

    # -- values --------------------------------------------------------------------------------------------------------

    def add(self, n: int, *, twice: bool = False) -> int:
        self.total += 2 * n if twice else n
        return self.total

    def echo(self, value: Any) -> Any:
        return value

    def kinds(self, value: Any) -> str:
        return repr([type(v).__name__ for v in value])

    def keep(self, value: Any) -> None:
        self.kept.append(value)

    def forget(self) -> float:
        total = float(sum(np.sum(v) for v in self.kept))
        self.kept.clear()
        return total

    def unknown(self) -> Any:
        return {"deep": [1, Unknown()]}

    @Add.handles
    def on_add(self, m: Add) -> int:
        self.total += m.n if m.array is None else int(local(m.array).sum())
        return self.total

    @Note.handles
    def on_note(self, m: Note) -> None:
        self.notes.append(m.text)

    def noted(self) -> list[str]:
        return self.notes

    # -- device arrays -------------------------------------------------------------------------------------------------

    def increment(self, array: Any, by: float = 1.0) -> None:
        array = local(array)
        array += by

    def total_of(self, array: cb.In) -> float:
        return float(local(array).sum())

    def is_read_only(self, array: cb.In) -> bool:
        return is_read_only(array)

    def make(self, n: int) -> cb.GpuRef:
        self.own = made(self.ctx, np.arange(n, dtype=np.float32))
        self.lent = self.ctx.ref(self.own)
        return self.lent

    def lend_again(self) -> list[cb.GpuRef]:
        return [self.lent, self.lent]

    def own_total(self) -> float:
        return float(self.own.sum())

    def drop_own(self) -> None:
        del self.own, self.lent

    def lend_argument(self, array: Any) -> cb.GpuRef:
        return self.ctx.ref(local(array)[1:])

    # -- time and failures ---------------------------------------------------------------------------------------------

    def wait(self, gate: str, array: Any = None, by: float = 1.0) -> int:
        wait_at(gate)
        if array is not None:
            self.increment(array, by)
        return os.getpid()

    def fail(self, how: str) -> None:
        match how:
            case "value":
                raise ValueError("no", 3)
            case "own":
                raise OwnError("bad", 7)
            case "key":
                raise KeyError("name")
            case "unicode":
                b"\xff".decode()
            case "memory":
                raise MemoryError("too big")
            case "torch":
                raise _torch_like("CUDA out of memory. Tried to allocate 20.00 MiB")
            case "answer":
                raise cb.ReplyError("an answer")
            case "library":
                raise cb.LibraryError("a library said no", "mine", 5)
            case "local":

                class Hidden(Exception):
                    pass

                raise Hidden("hidden", 1)
            case "exit":
                raise SystemExit(3)

    def fail_with(self, array: Any) -> None:
        raise ValueError("spoilt")

    def fail_reading(self, array: cb.In) -> None:
        raise ValueError("not spoilt")

    def state(self) -> tuple[int, int, int]:
        return self.total, self.prepared, self.generations

    def place(self) -> tuple[int, bool]:
        """The thread that runs this call, and whether it serves the host as well."""
        frame, leads = sys._getframe(), False
        while frame.f_back is not None:
            frame = frame.f_back
            leads = leads or frame.f_code.co_name == "lead"
        return threading.get_ident(), leads


def _torch_like(text: str) -> Exception:
    cls = type("OutOfMemoryError", (RuntimeError,), {"__module__": "torch"})
    error: Exception = cls(text)
    return error


class Matrices(cb.ResidentActor):
    """Takes and gives values of several refs."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = enter(ctx)

    def scaled(self, matrix: CsrRef, factor: float) -> CsrRef:
        values, indices, indptr = map(local, (matrix.values, matrix.indices, matrix.indptr))
        ref: Any = self.ctx.ref
        return CsrRef(ref(values * factor), ref(indices.copy()), ref(indptr.copy()), matrix.shape)

    def total(self, matrices: list[CsrRef]) -> float:
        return float(sum(local(m.values).sum() for m in matrices))


class SlowSetup(Probe):
    """Waits at a gate in its setup."""

    def __init__(self, gate: str) -> None:
        super().__init__()
        self.gate = gate

    def setup(self, ctx: cb.HostContext) -> None:
        super().setup(ctx)
        wait_at(self.gate)


class Brief(Probe):
    """Few restarts, few calls."""

    supervision = cb.OneForOne(max_restarts=1, within=60.0)
    max_in_flight = 4


class Restarting(Probe):
    """Is restarted after a ValueError."""

    supervision = cb.OneForOne(
        {ValueError: cb.Directive.RESTART, Exception: cb.Directive.RESUME}, max_restarts=3, within=60.0
    )


class Leaving(Brief):
    """Its ``prepare`` or ``setup`` calls ``sys.exit()`` once, while a file is there."""

    def __init__(self, where: str, flag: str) -> None:
        super().__init__()
        self.where = where
        self.flag = flag

    def prepare(self) -> None:
        super().prepare()
        self.leave("prepare")

    def setup(self, ctx: cb.HostContext) -> None:
        super().setup(ctx)
        self.leave("setup")

    def leave(self, where: str) -> None:
        if self.where == where and os.path.exists(self.flag):
            os.unlink(self.flag)
            sys.exit(3)


class Lasting(Probe):
    """Goes on after a ValueError."""

    supervision = cb.OneForOne({ValueError: cb.Directive.RESUME, Exception: cb.Directive.STOP})


FILE = "caf\udce9.txt"
"""A file name that is not UTF-8, as ``os.listdir`` gives it."""


class Odd(Probe):
    """Returns, raises, logs and leaves odd things."""

    def result(self, how: str) -> Any:
        match how:
            case "file":
                return {"names": [FILE]}
            case "long":
                return ["x" * 10_000] * 4_000
            case "dtype":
                return np.zeros(2, [(FILE, "f4")])
        return how

    def error(self, how: str) -> None:
        match how:
            case "file":
                raise ValueError(FILE)
            case "long":
                raise ValueError("x" * 20_000_000)
            case "numpy":
                raise ValueError(np.float64(1.5), np.str_("text"))
            case "library":
                raise cb.LibraryError(FILE, FILE, 1 << 80)
            case "missing":
                Path("/nowhere/" + FILE).read_text()
            case "notes":
                error = KeyError("name")
                error.add_note(FILE)
                raise error
            case "stop":
                raise StopIteration(5)

    def write_log(self) -> None:
        log = logging.getLogger("odd." + FILE)
        for text in (FILE, "ä" * 1_000_000, "plain"):
            log.warning(text)
        log.log(1 << 80, "a level that is none")
        print(FILE, flush=True)
