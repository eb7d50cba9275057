"""Malformed messages of hosts, read by an application with asks in flight.

Each round calls a few ops and resident actors, and changes some of the messages that come back. Every reply must end,
in a value or in an error; the device must work afterwards.
"""

import asyncio
import contextlib
import enum
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from tests.device.tampered import Tampering, tampering
from tests.faults.wire.mutations import Mutator, read_frame

import callboard as cb
from callboard.device.protocol.messages import FromHost
from callboard.device.supervision import actor as device_actor
from callboard.device.supervision.hosts import opline

__all__ = ["LIMIT", "Round", "Violation", "fuzz_answers", "outcome"]

BOUND = 30.0
GRACE = 0.03
"""Seconds after which a round is ended by killing the host, if a changed message was sound: it may be instead of a
completion or of a Ready, and such a host only seems to be slow."""
LIMIT = 1 << 20
"""Bytes of device memory."""
RUNS_CODE = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pickle.find_class"})


class Violation(Exception):
    """The application did what it must not do; the text says what and how it comes again."""


class Shade(enum.Enum):
    DARK = 1
    LIGHT = 2


class Pair(NamedTuple):
    left: Any
    right: Any


class Odd(Exception):
    """An error that is made from other arguments than it hands on."""

    def __init__(self, number: int) -> None:
        super().__init__(f"number {number}")
        self.number = number


class Echo(cb.ResidentActor):
    def echo(self, value: Any) -> Any:
        return value

    def fail(self, number: int) -> None:
        raise Odd(number) if number % 2 else cb.ReplyError(f"number {number}")

    def items(self, value: Any) -> Iterator[Any]:
        yield from (value, 1, self.ctx.ref(np.ones(4, np.float32)))

    def lend(self) -> Any:
        return self.ctx.ref(np.ones(16, np.float32))

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = ctx


Asks = list[Awaitable[Any]]


class Round:
    """Calls of all kinds that a host's messages answer; those of resident actors only if ``residents``.

    Attributes:
        kinds: Each makes a few.
    """

    def __init__(self, dev: cb.Device, random: Random, residents: bool) -> None:
        self._dev = dev
        self._random = random
        self.kinds: list[Callable[[], Asks]] = [
            self._products,
            self._numbers,
            self._failures,
            self._bounded,
            self._too_large,
            self._control,
        ]
        if residents:
            self._echo = dev.actor_of(cb.Props(Echo), name="echo")
            self.kinds += [self._residents, self._residents, self._residents, self._events]

    def asks(self) -> Asks:
        """Some; all in flight at once."""
        made: Asks = []
        for kind in self._random.sample(self.kinds, 2):
            with contextlib.suppress(cb.AccelError):  # said at the call: no room, a stale ref
                made += kind()
        return made

    def _matrix(self) -> cb.GpuRef:
        return self._dev.put(np.eye(4, dtype=np.float32))

    def _products(self) -> Asks:
        x = self._matrix()
        y = self._dev.blas.gemm(x, x)
        return [y, self._dev.copy(y).get()]

    def _numbers(self) -> Asks:
        x = self._dev.put(np.ones(4, np.complex64))
        return [self._dev.blas.dotc(x, x), self._dev.blas.nrm2(x), self._dev.blas.iamax(x)]

    def _failures(self) -> Asks:
        bad = self._dev.solver.cholesky(self._dev.put(-np.eye(4, dtype=np.float32)))
        return [bad, self._dev.copy(bad).get()]

    def _bounded(self) -> Asks:
        found = self._dev.solver.syevdx_range(self._matrix(), 0.5, 1.5)
        return [found.w, found.v]

    def _too_large(self) -> Asks:
        return [self._dev.zeros(LIMIT)]

    def _control(self) -> Asks:
        return [self._dev.stats(), self._dev.trim()]

    def _residents(self) -> Asks:
        if self._echo.is_stopped:
            self._echo = self._dev.actor_of(cb.Props(Echo))
        call = self._echo.call
        value = self._random.choice(
            [[1, "x"], {"a": (1, 2.5)}, Shade.DARK, Pair(1, b"x"), np.arange(5), np.ones(1 << 15), 1 + 2j, {3}]
        )
        return [
            call(Echo.echo, value),
            call(Echo.fail, self._random.randrange(4)),
            call(Echo.lend),
            call(Echo.echo, self._matrix()),
            _taken(self._echo, value),
            _taken(self._echo, value, 1),
        ]

    def _events(self) -> Asks:
        other = self._dev.actor_of(cb.Props(Echo))
        asks: Asks = [other.call(Echo.echo, 1)]
        other.stop()
        return asks


class Batch:
    """One device, its changed messages, and what must hold."""

    def __init__(self, line: Tampering, random: Random) -> None:
        self._line = line
        self._random = random
        self._mutator = Mutator(FromHost, random, code=True)
        self._skip = 0  # frames before the next that is changed
        self._clean = True
        self.changed = 0
        self.sent: list[bytes] = []  # changed, in this round
        self._owing: set[int] = set()  # hosts that sent a changed message that is sound
        self._broken: dict[int, bytes] = {}  # what else they sent since they sent one that is not

    def tamper(self, frame: bytes) -> bytes:
        """Change one frame of some."""
        wrong = self._wrong(frame)
        sender = self._line.sender
        broken = self._broken.pop(sender, b"")
        if broken or wrong != frame:
            # Two wrong frames may make one that is sound: what they stand for is then not said at all.
            if read_frame(FromHost, broken + wrong) is not None:
                self._owing.add(sender)
            else:
                self._broken[sender] = broken + wrong
        return wrong

    def _wrong(self, frame: bytes) -> bytes:
        self._skip -= 1
        if self._clean or self._skip > 0:
            return frame
        self._skip = self._random.choice([1, 1, 2, 5])
        wrong = self._mutator(frame)
        if wrong != frame:
            self.changed += 1
            self.sent.append(wrong)
        return wrong

    async def run(self, dev: cb.Device, messages: int, residents: bool) -> None:
        """Change so many messages."""
        self._line.tamper = self.tamper
        self._clean = False
        calls = Round(dev, self._random, residents)
        while self.changed < messages:
            self._skip = self._random.randrange(12)
            self.sent.clear()
            await self._end(dev, [asyncio.ensure_future(outcome(ask)) for ask in calls.asks()])
            if self._random.randrange(50) == 0:
                await self._check(dev)

    async def _end(self, dev: cb.Device, asks: list[asyncio.Future[Any]]) -> None:
        """Wait for all; a host that sent a changed message that is sound may owe some, and is killed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + BOUND
        late: set[Any] = set(asks)
        while late and loop.time() < deadline:
            _, late = await asyncio.wait(late, timeout=GRACE)
            host = dev._actor.host
            if late and host is not None and host.pid in self._owing:
                self._clean = True  # hosts say what they should from now on
                host.kill("the round is over")
        self._clean = False
        if late:
            raise Violation(f"{len(late)} of {len(asks)} asks did not end within {BOUND} s: {late}")
        for ask in asks:
            ask.result()
        if dev.stopped:
            raise Violation(f"the device has stopped: {dev.health()}")

    async def _check(self, dev: cb.Device) -> None:
        """A host that nothing was done to answers rightly, whatever was said before."""
        self._clean = True
        async with asyncio.timeout(BOUND):
            right = False
            while not right:
                host = dev._actor.host
                if host is not None:
                    host.kill("what it has sent may have been changed")
                await _gone(dev, host)
                right = await self._right(dev)
        self._clean = False

    async def _right(self, dev: cb.Device) -> bool:
        """Whether the host answers rightly; False: it was sent changed messages before, and does not answer."""
        number = self._random.randrange(1 << 20)
        try:
            await dev.ready()
            x = dev.put(np.full((4, 4), number, np.float32))
            y = await dev.blas.gemm(x, dev.put(np.eye(4, dtype=np.float32))).get()
            echo = dev.actor_of(cb.Props(Echo))
            said = await echo.call(Echo.echo, [number, y])
            echo.stop()
        except cb.AccelError:
            return False
        if not (y == number).all() or said[0] != number or not (said[1] == y).all():
            raise Violation(f"{y}, {said} where {number} is right")
        return True


async def _gone(dev: cb.Device, host: Any) -> None:
    """Wait until the device knows that a host has ended: it would be asked before, and fail."""
    while host is not None and dev._actor.host is host:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def _taken(echo: cb.ResidentRef[Echo], value: Any, most: int = 100) -> None:
    async with echo.stream(Echo.items, value) as stream:
        async for _ in stream:
            most -= 1
            if most <= 0:
                break


async def outcome(ask: Awaitable[Any]) -> None:
    """Wait for a reply: a value or any error, but none that ends the waiter itself."""
    try:
        await ask
    except (RuntimeError, asyncio.CancelledError) as e:
        if isinstance(e, asyncio.CancelledError) or "StopIteration" in str(e):
            raise Violation(f"an ask ended its asker: {e!r}") from e
    except Exception:  # of any class: a changed name may be that of any error
        pass


class _Faults(logging.Handler):
    """Notes what is logged with a traceback: the application was surprised."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.name != "callboard.resident":  # the actors' own failures
            self.found.append(self.format(record))


_line: Tampering | None = None
_ran: list[str] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in RUNS_CODE and _line is not None and not _line.acting:
        if threading.current_thread() is threading.main_thread():
            _ran.append(f"{event} {arguments!r:.200}")
    elif event == "import" and arguments[0] in ("this", "antigravity"):
        _ran.append(f"import {arguments[0]}")


@contextmanager
def _watched() -> Iterator[Tampering]:
    global _line
    if _line is None:
        sys.addaudithook(_audit)
    with tampering() as line:
        _line = line
        yield line


async def _batch(line: Tampering, seed: str, messages: int, residents: bool, standby: str | None) -> int:
    faults: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(repr(context)))
    batch = Batch(line, Random(seed))
    options: dict[str, Any] = {"max_restarts": None, "standby": standby, "memory_limit": LIMIT, "linger": 0.0}
    options["streams"] = "per_actor" if residents else "single"
    logged = _Faults()
    logging.getLogger().addHandler(logged)
    try:
        async with cb.device("cpu", isolation="process", **options) as dev:
            line.arenas = dev._actor.arenas
            await batch.run(dev, messages, residents)
            line.tamper = lambda frame: frame
    except Exception as e:
        frames = "\n".join(frame.hex() for frame in batch.sent)
        raise Violation(
            f"seed {seed}, after {batch.changed} changed messages: {e!r}; {faults + logged.found}; the last:\n{frames}"
        ) from e
    finally:
        logging.getLogger().removeHandler(logged)
    found = faults + logged.found + _ran
    if found:
        raise Violation(f"seed {seed}: {len(found)} faults, first {found[0]}")
    return batch.changed


def fuzz_answers(seed: str, messages: int, *, residents: bool = True, standby: str | None = None) -> int:
    """Change so many messages of hosts to one device; gives how many there were.

    Raises:
        Violation: The application hung, ran code, was surprised, or gave a wrong answer afterwards.
    """
    logging.getLogger("callboard").setLevel(logging.ERROR)
    logging.getLogger("callboard").propagate = True
    _ran.clear()
    with (
        _watched() as line,
        mock.patch.object(opline, "PAUSE", 0.002),
        mock.patch.object(opline, "FRAME_TIME", 0.01),
        mock.patch.object(device_actor, "DELAYS", (0.0,)),
    ):
        return asyncio.run(_batch(line, seed, messages, residents, standby))
