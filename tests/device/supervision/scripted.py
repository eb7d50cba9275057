"""Hosts driven by a test, in this process: everything above a host is real."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from callboard.core.errors import AccelError
from callboard.device.protocol.arena import Arena
from callboard.device.protocol.failures import as_failure
from callboard.device.protocol.messages import Activate, Calls, Completions, ContextDied, FromHost, Open, Plain, Ready
from callboard.device.supervision.hosts.base import Host, HostEnd
from callboard.device.supervision.hosts.starter import HostStarter

__all__ = ["ScriptedHost", "ScriptedStarter"]


class ScriptedHost(Host):
    """Keeps the ops that it is sent.

    Attributes:
        role: ``"active"`` or ``"standby"``, as it was started.
        generation: The one that it is told to be; 0 before.
        context: Whether it has a context: what is sent to it then is executed.
        calls: Ids of the ops that it was sent, in order.
        answered: How many of them it has answered.
        wrong: What it was sent and should not have been.
    """

    def __init__(self, on_message: Callable[[FromHost], None], on_end: Callable[[HostEnd], None], role: str) -> None:
        self.pid = next(_pids)
        self.reaped = asyncio.get_running_loop().create_future()
        self.role = role
        self.generation = 0
        self.hot = False
        self.context = False
        self.calls: list[int] = []
        self.answered = 0
        self.wrong: list[str] = []
        self._on_message = on_message
        self._on_end: Callable[[HostEnd], None] | None = on_end

    # -- what the application does -------------------------------------------------------------------------------------

    def post(self, message: Plain) -> None:
        if isinstance(message, Open):
            self.generation, self.hot = message.generation, message.hot
        elif isinstance(message, Activate):
            self.generation = message.generation
        elif isinstance(message, Calls):
            if not (self.context and self.generation):
                self.wrong.append(f"ops for a host that has {self.context=} and is {self.generation=}")
            self.calls += (call.id for call in message.calls if call.id)

    def kill(self, reason: str) -> None:
        self.end("killed", reason)

    async def close(self, timeout: float) -> None:
        self.end("closed")

    def send_arena(self, arena: Arena) -> None: ...
    def linger(self, done: Callable[[], bool], seconds: float) -> bool:
        return False

    def pause_watch(self, paused: bool) -> None: ...

    @property
    def unsent_bytes(self) -> int:
        return 0

    # -- what it is told to do -----------------------------------------------------------------------------------------

    def say(self, message: FromHost) -> None:
        """Say something, if it still lives."""
        if not self.reaped.done():
            self._on_message(message)

    def ready(self) -> None:
        """A context of the generation it is told to be; as a standby, what a standby of its kind has."""
        self.context = bool(self.generation) or self.hot
        self.say(Ready(self.generation, self.context, {}, {}))

    def report(self, error: AccelError) -> None:
        """Its context is dead; its process is not yet."""
        self.say(ContextDied(self.generation, as_failure(0, error)))

    def answer(self, count: int, values: dict[int, Any]) -> list[int]:
        """Answer so many ops, each by its value if it has one; their ids."""
        ids = self.calls[self.answered : self.answered + count]
        self.answered += len(ids)
        self.say(Completions([i for i in ids if i not in values], [(i, values[i]) for i in ids if i in values], []))
        return ids

    def end(self, reason: str, detail: str = "") -> None:
        """Its process has ended, and been waited for."""
        if not self.reaped.done():
            self.reaped.set_result(None)
            assert self._on_end is not None
            self._on_end(HostEnd(reason, detail))


class ScriptedStarter(HostStarter):
    """Starts them like processes.

    Attributes:
        hosts: All that were started.
    """

    isolated = True
    recovers = True

    def __init__(self) -> None:
        self.hosts: list[ScriptedHost] = []

    async def start(
        self, on_message: Callable[[FromHost], None], on_end: Callable[[HostEnd], None], label: str
    ) -> Host:
        host = ScriptedHost(on_message, on_end, label.rpartition("/")[2])
        self.hosts.append(host)
        return host


_pids = itertools.count(1 << 30)  # no process has one
