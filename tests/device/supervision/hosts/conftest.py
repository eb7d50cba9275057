"""A host that serves the stand-in, and fixtures to talk to it."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from callboard.device.protocol.messages import Answer, Ask, Call, Calls, Completions
from callboard.device.supervision.hosts.base import Host, HostEnd
from callboard.device.supervision.hosts.process import ProcessHost
from callboard.device.supervision.hosts.thread import ThreadHost

PATIENCE = 30.0
needs_processes = pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only")


class Talk:
    """One host, what it has said, and how it ended."""

    def __init__(self) -> None:
        self.host: Host
        self.messages: list[Any] = []
        self.ends: list[HostEnd] = []
        self.release: Callable[[], None] = lambda: None  # lets a thread go that is stuck on request
        self.sticks = threading.Event()  # it is stuck
        self.on_message: Callable[[Any], None] = lambda message: None
        self._changed = asyncio.Event()
        self._asks: dict[int, asyncio.Future[bytes]] = {}

    def take(self, message: Any) -> None:
        assert not self.ends, f"{message} came after the end"
        self.messages.append(message)
        if type(message) is Answer and message.id in self._asks:
            self._asks.pop(message.id).set_result(message.value)
        self._changed.set()
        self.on_message(message)

    def end(self, end: HostEnd) -> None:
        self.ends.append(end)
        self._changed.set()

    def ask_later(self, what: str, argument: bytes = b"") -> "asyncio.Future[bytes]":
        number = len(self.messages) + len(self._asks) + 1000
        future = self._asks[number] = asyncio.get_running_loop().create_future()
        self.host.post(Ask(number, what, argument))
        return future

    async def ask(self, what: str, argument: bytes = b"") -> bytes:
        return await asyncio.wait_for(self.ask_later(what, argument), PATIENCE)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for messages, or the end, until it holds."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                assert not self.ends, f"it has ended meanwhile: {self.ends[0]}"
                self._changed.clear()
                await self._changed.wait()

    async def ended(self) -> HostEnd:
        """How it ended, when it is reaped."""
        await self.until(lambda: bool(self.ends))
        await asyncio.wait_for(self.host.reaped, PATIENCE)
        assert len(self.ends) == 1
        return self.ends[0]

    def call(self, *ids: int) -> None:
        self.host.post(Calls([Call(number, b"signature", [1, 0], [], []) for number in ids]))

    @property
    def done(self) -> list[int]:
        """Ids of calls that have succeeded, in the order of their completions."""
        return [op for message in self.messages if type(message) is Completions for op in message.done]


Start = Callable[..., Awaitable[Talk]]


@pytest.fixture(autouse=True)
def _standin_is_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts a ``"process"`` or a ``"thread"`` that serves the stand-in; what is left of them is killed at the end."""
    import standin

    standin.released.clear()
    standin.sticks.clear()
    talks: list[Talk] = []

    async def start(kind: str = "process", **options: Any) -> Talk:
        talk = Talk()
        talk.release = standin.released.set
        talk.sticks = standin.sticks
        loop = asyncio.get_running_loop()
        if kind == "thread":
            talk.host = await ThreadHost.start(loop, talk.take, talk.end, label="test", serve=standin.serve)
        else:
            options = {
                "hang_after": 30.0,
                "step_timeout": 300.0,
                "interval": 0.2,
                "label": "test",
                "serve": "standin:serve",
                **options,
            }
            talk.host = await ProcessHost.start(loop, options.pop("env", {}), talk.take, talk.end, **options)
        talks.append(talk)
        return talk

    yield start
    standin.released.set()
    for talk in talks:
        talk.host.kill("the test is over")
    for talk in talks:
        await asyncio.wait_for(talk.host.reaped, PATIENCE)
        await talk.until(lambda talk=talk: bool(talk.ends))
