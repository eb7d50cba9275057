"""``FaultyBackend``: another backend, with faults at chosen ops, adversarial timing and switches that break it.

It is created in code, or from a name that also reaches child processes: ``"faulty+cpu?seed=3&poison_at=100"`` is a
device for :func:`callboard.core.registry.resolve` and for all functions that open devices by name.
"""

import os
import random
import signal
import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode
from zlib import crc32

import msgspec

from callboard.core import registry
from callboard.core.backend import (
    AccelBackend,
    AccelDevice,
    AccelEvent,
    AccelStream,
    DeviceInfo,
    Memory,
    Readback,
    Status,
)
from callboard.core.errors import AccelError, ContextPoisoned, GpuRefStale, LibraryError, OutOfMemory, Unrecoverable
from callboard.core.library import Library

__all__ = ["Failed", "Fault", "FaultyBackend", "FaultyDevice", "FaultyEvent", "FaultyStream", "from_spec"]


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The faults. Ops and allocations are counted from 1, for each context that is opened.

    Attributes:
        seed: Streams are delayed by schedules drawn from it, a different one for each stream; None: no delays.
        delay: Longest delay, seconds.
        poison_at: The op after which the context is dead: from then on events, launches, allocations and probes raise
            :class:`ContextPoisoned`, and semaphores are no longer posted.
        hang_at: The op after which its stream stalls until :meth:`FaultyDevice.release_hang`.
        fail_at: The op that fails with :class:`LibraryError` when it is done.
        crash_at: The op whose launch raises ``RuntimeError``.
        exit_at: The op whose launch ends the process at once, by ``os._exit(86)``.
        kill_at: The op whose launch kills the process by SIGKILL (with thread isolation: the application).
        slow_at: The op after which its stream stalls for ``delay`` seconds.
        refuse_at: The op that is refused, with the error that ``refuse_with`` names; after ``"Unrecoverable"``
            the context is not used any more.
        freeze_open: The process stops (SIGSTOP) while it opens the device.
        oom_at: The first allocation that fails with :class:`OutOfMemory` …
        oom: … and how many do in a row.
        once: Path of a file: the faults above (not the delays) occur in one context only, the first to reach one, of
            all processes that share the path; that context creates the file.
        drop_waits: Mutation: streams do not wait for each other.
    """

    seed: int | None = None
    delay: float = 0.002
    poison_at: int = 0
    hang_at: int = 0
    fail_at: int = 0
    crash_at: int = 0
    exit_at: int = 0
    kill_at: int = 0
    slow_at: int = 0
    refuse_at: int = 0
    refuse_with: Literal["OutOfMemory", "GpuRefStale", "Unrecoverable"] = "OutOfMemory"
    freeze_open: bool = False
    oom_at: int = 1
    oom: int = 0
    once: str = ""
    drop_waits: bool = False


_REFUSALS: dict[str, Callable[[str], AccelError]] = {
    "OutOfMemory": OutOfMemory,
    "GpuRefStale": lambda where: GpuRefStale(where, "context rebuilt"),
    "Unrecoverable": Unrecoverable,
}


class FaultyBackend(AccelBackend):
    """A backend with faults.

    Args:
        inner: The backend, or its name.
        faults: Fields of :class:`Fault`.

    Attributes:
        spec: The name that makes the same again, ``"faulty+cpu?seed=3"``.
        opened: The devices opened so far, oldest first.

    Raises:
        TypeError: No such fault, or a value of the wrong type.
    """

    def __init__(self, inner: str | AccelBackend = "cpu", **faults: Any) -> None:
        self.inner = registry.backend(inner) if isinstance(inner, str) else inner
        try:
            self.fault = msgspec.convert(faults, Fault, strict=False)
        except msgspec.ValidationError as e:
            raise TypeError(f"FaultyBackend: {e}") from None
        options = urlencode({name: int(v) if v is True else v for name, v in msgspec.to_builtins(self.fault).items()})
        self.spec = f"faulty+{self.inner.name}" + (f"?{options}" if options else "")
        self.name = self.spec
        self.isolation = self.inner.isolation
        self.opened: list[FaultyDevice] = []

    def devices(self) -> list[DeviceInfo]:
        return [
            msgspec.structs.replace(info, backend=self.spec, uuid=f"{info.uuid}-{crc32(self.spec.encode()):08x}")
            for info in self.inner.devices()
        ]

    def environment(self, info: DeviceInfo) -> Mapping[str, str]:
        return self.inner.environment(self._inner(info))

    def libraries(self) -> Mapping[str, type[Library]]:
        return {lib: _faulty_library(cls) for lib, cls in self.inner.libraries().items()}

    def preload(self) -> None:
        self.inner.preload()

    def open(self, info: DeviceInfo) -> "FaultyDevice":
        device = FaultyDevice(info, self.inner.open(self._inner(info)), self.fault)
        if self.fault.freeze_open and device.strikes():
            os.kill(os.getpid(), signal.SIGSTOP)
        self.opened.append(device)
        return device

    def _inner(self, info: DeviceInfo) -> DeviceInfo:
        return next(i for i in self.inner.devices() if i.index == info.index)


def from_spec(spec: str) -> FaultyBackend:
    """The backend that ``"faulty+<backend>?<fault>=<value>&…"`` names.

    Raises:
        TypeError: No such fault, or a value of the wrong type.
        BackendUnavailable: The inner backend.
    """
    name, _, options = spec.removeprefix("faulty+").partition("?")
    return FaultyBackend(name, **dict(parse_qsl(options, strict_parsing=bool(options))))


class FaultyDevice(AccelDevice):
    """An open device with faults.

    Attributes:
        inner: The device.
        hung: Set when the stream of ``hang_at`` stalls.
    """

    def __init__(self, info: DeviceInfo, inner: AccelDevice, fault: Fault) -> None:
        self.info = info
        self.inner = inner
        self.fault = fault
        self.hung = threading.Event()
        self._go_on = threading.Event()
        self._ops = 0
        self._allocations = 0
        self._poisoned_behind: AccelEvent | None = None
        self._poison = ""
        self._mine: bool | None = None  # whether the faults of `once` are this context's; not known yet

    @property
    def generation(self) -> int:  # libraries work on the inner device
        return self.inner.generation

    @generation.setter
    def generation(self, generation: int) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.inner.generation = generation

    def release_hang(self) -> None:
        """Let the stream of ``hang_at`` continue."""
        self._go_on.set()

    def check(self) -> None:
        """Raise the error of every call once the context is dead."""
        if self._poisoned_behind is not None and self._poisoned_behind.query():
            raise ContextPoisoned(self._poison)

    @property
    def doomed(self) -> bool:
        """True if the op that kills the context has been launched."""
        return self._poisoned_behind is not None

    def launch(self, name: str, stream: "FaultyStream", launch: Callable[[], Any]) -> Any:
        """Launch an op, with its injected faults."""
        self.check()
        self._ops += 1
        fault, n, where = self.fault, self._ops, f"injected at op {self._ops}, {name}"
        if n == fault.exit_at and self.strikes():
            os._exit(86)
        if n == fault.kill_at and self.strikes():
            os.kill(os.getpid(), signal.SIGKILL)
        if n == fault.refuse_at and self.strikes():
            raise _REFUSALS[fault.refuse_with](where)
        if n == fault.crash_at and self.strikes():
            raise RuntimeError(where)
        stream.delay()
        check = launch()
        if n == fault.fail_at and self.strikes():
            return Failed(LibraryError(where, "faulty", 86))
        if n == fault.slow_at and self.strikes():
            stream.block(lambda: _never.wait(fault.delay))
        if n == fault.hang_at and self.strikes():
            stream.block(self._hang)
        if n == fault.poison_at and self.strikes():
            self._poison = where
            self._poisoned_behind = stream.inner.record()
        return check

    def _hang(self) -> None:
        self.hung.set()
        self._go_on.wait()

    def strikes(self) -> bool:
        """True if the faults occur in this context, and so in no other one with the same ``once``."""
        if self._mine is None:
            self._mine = not self.fault.once or _created(self.fault.once)
        return self._mine

    # -- the device ----------------------------------------------------------------------------------------------------

    def stream(self, priority: int = 0) -> "FaultyStream":
        return FaultyStream(self, self.inner.stream(priority))

    def allocate(self, nbytes: int) -> Memory:
        self.check()
        self._allocations += 1
        fault, n = self.fault, self._allocations
        if fault.oom_at <= n < fault.oom_at + fault.oom and self.strikes():
            raise OutOfMemory(f"injected at allocation {n}, of {nbytes} bytes")
        return self.inner.allocate(nbytes)

    def release(self, memory: Memory) -> None:
        self.inner.release(memory)

    def allocate_managed(self, nbytes: int) -> Memory:
        self.check()
        return self.inner.allocate_managed(nbytes)

    def allocate_shared(self, nbytes: int) -> Memory:
        self.check()
        return self.inner.allocate_shared(nbytes)

    def open_shared(self, handle: bytes, nbytes: int) -> Memory:
        self.check()
        return self.inner.open_shared(handle, nbytes)

    def memory_info(self) -> tuple[int, int]:
        return self.inner.memory_info()

    def trim(self) -> None:
        self.inner.trim()

    def register_host(self, address: int, nbytes: int) -> None:
        self.inner.register_host(address, nbytes)

    def unregister_host(self, address: int) -> None:
        self.inner.unregister_host(address)

    def read_back(self, stream: AccelStream, address: int, nbytes: int) -> Readback:
        self.check()
        return self.inner.read_back(_inner_stream(stream), address, nbytes)

    def probe(self) -> Exception | None:
        if self._poisoned_behind is not None:
            self._poisoned_behind.synchronize()
            return ContextPoisoned(self._poison)
        return self.inner.probe()

    def use(self) -> None:
        self.inner.use()

    def enter(self) -> None:
        self.inner.enter()

    def leave(self) -> None:
        self.inner.leave()

    def close(self) -> None:
        self.release_hang()
        self.inner.close()


class FaultyStream(AccelStream):
    """A stream of a :class:`FaultyDevice`."""

    def __init__(self, device: FaultyDevice, inner: AccelStream) -> None:
        self.device = device
        self.inner = inner
        self.id = inner.id
        self.native = inner.native
        seed = device.fault.seed
        self._random = None if seed is None else random.Random(seed * 1_000_003 + inner.id)

    def block(self, wait: Callable[[], object]) -> None:
        """Stall the stream while ``wait()`` waits.

        Raises:
            TypeError: Its work does not run on a thread of callboard.
        """
        submit = getattr(self.inner, "submit", None)
        if submit is None:
            raise TypeError(f"{type(self.inner).__name__} cannot be delayed (seed, hang_at); use the CPU backend")
        submit(wait)

    def delay(self) -> None:
        """Stall the stream for the scheduled time: every second time not at all."""
        if self._random is not None and (seconds := self._random.uniform(-1, 1) * self.device.fault.delay) > 0:
            self.block(lambda: _never.wait(seconds))

    def record(self) -> "FaultyEvent":
        self.delay()
        return FaultyEvent(self.device, self.inner.record())

    def query(self) -> bool:
        done = self.inner.query()
        self.device.check()
        return done

    def recycle(self, event: AccelEvent) -> None:
        self.inner.recycle(_inner_event(event))

    def wait(self, event: AccelEvent) -> None:
        if not self.device.fault.drop_waits:
            self.inner.wait(_inner_event(event))

    def signal(self, semaphore: int) -> bool:
        return self.device.doomed or self.inner.signal(semaphore)

    def synchronize(self) -> None:
        self.inner.synchronize()
        self.device.check()

    def give_up(self) -> None:
        self.inner.give_up()

    def close(self) -> None:
        self.device.release_hang()
        self.inner.close()


class FaultyEvent(AccelEvent):
    """An event of a :class:`FaultyStream`."""

    __slots__ = ("device", "inner")

    def __init__(self, device: FaultyDevice, inner: AccelEvent) -> None:
        self.device = device
        self.inner = inner

    def query(self) -> bool:
        done = self.inner.query()
        self.device.check()
        return done

    def synchronize(self) -> None:
        self.inner.synchronize()
        self.device.check()


_never = threading.Event()  # never set: waiting for it is a delay that does not hold the GIL


def _faulty_library(cls: type[Library]) -> type[Library]:
    """A subclass that works on the inner device and stream.

    Its launches go through :meth:`FaultyDevice.launch`.
    """

    def __init__(self: Library, device: FaultyDevice, stream: FaultyStream) -> None:  # noqa: N807
        cls.__init__(self, device.inner, stream.inner)

    def wrapped(name: str) -> Callable[..., Any]:
        method = getattr(cls, name)

        def launch(self: Library, stream: FaultyStream, plan: Any, *dynamic: Any) -> Any:
            return stream.device.launch(
                f"{cls.name}.{name}", stream, lambda: method(self, stream.inner, plan, *dynamic)
            )

        return launch

    methods = {launch.method: wrapped(launch.method) for launch in cls.launch_table.values()}
    return type(f"Faulty{cls.__name__}", (cls,), {"__init__": __init__, **methods})


def _inner_stream(stream: AccelStream) -> AccelStream:
    return stream.inner if isinstance(stream, FaultyStream) else stream


def _inner_event(event: AccelEvent) -> AccelEvent:
    return event.inner if isinstance(event, FaultyEvent) else event


class Failed(Status):
    """Status of an op that fails with this error."""

    __slots__ = ("_error",)

    def __init__(self, error: AccelError) -> None:
        self._error = error

    def check(self, outcome: bytes) -> None:
        raise self._error


def _created(path: str) -> bool:
    """True if this call, of all processes, created the file."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True
