"""A state machine: an op line over a real socket with small buffers, and a host that reads and answers late."""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import callboard as cb
import callboard.system
from callboard.core.errors import Withdrawn
from callboard.device.client.line.releases import FEW
from callboard.device.host.socketchannel import Pulse, SocketChannel
from callboard.device.protocol.arena import Arena
from callboard.device.protocol.failures import as_failure
from callboard.device.protocol.messages import Calls, Completions, FromHost, Open, Plain, Ready
from callboard.device.protocol.wire import FrameError, TruncatedStream, encode_frame
from callboard.device.supervision.hosts.base import Host, HostEnd
from callboard.device.supervision.hosts.opline import OpLine
from callboard.device.supervision.hosts.starter import HostStarter

SMALL = 4096
"""Bytes of a socket's buffer: a burst of calls does not fit."""
ROOM = 150
"""Ops in flight at most."""
ROUNDS = 2000


class WiredHost(Host):
    """Both ends of an op line: the application's, which is real, and the child's, which does what the test says.

    Attributes:
        seen: What has come through, in order: ``(id, withdrawn)`` of an op, or the set of buffers of a free.
        answered: How many of those ops have been answered.
        broken: What ended the line.
    """

    def __init__(self, on_message: Callable[[FromHost], None], on_end: Callable[[HostEnd], None]) -> None:
        self.pid = 1 << 30
        loop = asyncio.get_running_loop()
        self.reaped = loop.create_future()
        ours, self.theirs = socket.socketpair()
        for end in (ours, self.theirs):
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                end.setsockopt(socket.SOL_SOCKET, option, SMALL // 2)  # the kernel doubles it
        ours.setblocking(False)
        self.channel = SocketChannel(self.theirs, Pulse())
        self.line = OpLine(loop, ours, on_message, self._line_ended)
        self.seen: list[tuple[int, bool] | frozenset[int]] = []
        self.ops: list[tuple[int, bool]] = []
        self.answered = 0
        self.generation = 0
        self.broken: FrameError | None = None
        self._on_end: Callable[[HostEnd], None] | None = on_end

    def post(self, message: Plain) -> None:
        self.line.post(message)

    def _line_ended(self, error: FrameError | None) -> None:
        self.broken = error
        self.end("broken", str(error))

    def read(self) -> None:
        """Take what has arrived."""
        for message in self.channel.receive(0):
            if isinstance(message, Open):
                self.generation = message.generation
            elif isinstance(message, Calls):
                for call in message.calls:
                    self.seen.append((call.id, call.withdrawn) if call.id else frozenset(call.outputs))
                    if call.id:
                        self.ops.append((call.id, call.withdrawn))

    def answer(self, count: int) -> None:
        """Answer so many ops in one frame."""
        self.channel.send(self.completions(count))
        self.answered += min(count, len(self.ops) - self.answered)

    def completions(self, count: int) -> Completions:
        some = self.ops[self.answered : self.answered + count]
        withdrawn = Withdrawn("cancelled before it was sent")
        gone = [i for i, gone in some if gone]
        done = [i for i, gone in some if not gone]
        return Completions(done, [], [(i, i) for i in gone], [as_failure(i, withdrawn) for i in gone])

    def end(self, reason: str, detail: str = "") -> None:
        if not self.reaped.done():
            self.reaped.set_result(None)
            self.line.close()
            self.theirs.close()
            os.close(self.channel._bell)
            assert self._on_end is not None
            self._on_end(HostEnd(reason, detail))

    def kill(self, reason: str) -> None:
        self.end("killed", reason)

    async def close(self, timeout: float) -> None:
        self.end("closed")

    def send_arena(self, arena: Arena) -> None: ...
    def linger(self, done: Callable[[], bool], seconds: float) -> None: ...
    def pause_watch(self, paused: bool) -> None: ...

    @property
    def unsent_bytes(self) -> int:
        return self.line.unsent_bytes


class WiredStarter(HostStarter):
    isolated = True
    recovers = True

    def __init__(self) -> None:
        self.hosts: list[WiredHost] = []

    async def start(
        self, on_message: Callable[[FromHost], None], on_end: Callable[[HostEnd], None], label: str
    ) -> Host:
        self.hosts.append(WiredHost(on_message, on_end))
        return self.hosts[-1]


class LineMachine(RuleBasedStateMachine):
    """Calls, frees, cancels and answers against two lists: what was accepted, in order, and what is owed."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.starter = WiredStarter()
        self.patch = mock.patch.object(callboard.system, "starter_for", return_value=self.starter)
        self.patch.start()

    @initialize()
    def open(self) -> None:
        self.refs: list[cb.GpuRef] = []
        self.old: list[cb.GpuRef] = []
        self.rooms: list[tuple[int, asyncio.Task[None]]] = []
        self.run(self._open())
        self.begin()

    async def _open(self) -> None:
        self.system = await cb.System("line").start()
        self.dev = await self.system.device(
            "cpu", isolation="process", standby=None, max_restarts=None, max_in_flight=ROOM, wait=False
        )
        await _turns()

    def begin(self) -> None:
        """The host of a generation has its context."""
        self.host = self.starter.hosts[-1]
        self.expected: list[tuple[int, bool] | frozenset[int]] = []  # what the host will have seen
        self.pending: dict[int, Any] = {}  # replies, by op
        self.unsent: list[int] = []
        self.released: list[int] = []
        self.old += self.refs  # dropped later: what is freed of a lost generation goes to nobody
        self.refs = []
        self.host.read()
        self.host.channel.send(Ready(self.host.generation, True, {}, {}))
        self.turn()
        assert self.dev.health().state == "ready"

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, 20.0))

    # -- the application -----------------------------------------------------------------------------------------------

    def in_flight(self) -> int:
        return sum(not reply.done() for reply in self.pending.values())

    def call(self, source: cb.GpuRef | None) -> None:
        full = self.in_flight() >= ROOM
        try:
            reply = self.dev.empty((4,)) if source is None else self.dev.copy(source)
        except cb.MailboxFull:
            assert full
            return
        assert not full
        if len(self.released) >= FEW:
            self._freed()  # they ride in front; fewer ones wait, since all are small
        self.expected.append((reply._op, False))
        if self.released and not self.dev._port.outbox.released.ids:
            self._freed()  # sent with a long burst, behind it
        self.pending[reply._op] = reply
        self.refs.append(reply)
        self.unsent.append(reply._op)
        if not self.dev._port.queued:
            self.unsent = []

    def _freed(self) -> None:
        self.expected.append(frozenset(self.released))
        self.released = []

    @rule(count=st.integers(1, 120))
    def calls(self, count: int) -> None:
        for _ in range(count):
            self.call(None)

    @precondition(lambda self: self.refs)
    @rule(data=st.data())
    def call_with_an_operand(self, data: st.DataObject) -> None:
        self.call(self.refs[-data.draw(st.integers(1, min(4, len(self.refs))))])

    @precondition(lambda self: self.refs)
    @rule(count=st.integers(1, 2 * FEW), between=st.booleans())
    def release(self, count: int, between: bool) -> None:
        """Drop the last refs that are answered, perhaps between two calls."""
        if between:
            self.call(None)
        for ref in [r for r in self.refs if r.done()][-count:]:
            self.released.append(ref.allocation.id)
            self.pending.pop(ref._op, None)
            self.refs = [r for r in self.refs if r is not ref]
            del ref
        if between:
            self.call(None)

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Only what has not been sent can be withdrawn."""
        op = data.draw(st.sampled_from([*list(self.pending)[-3:], *self.unsent[-3:]]))
        withdrawn = self.pending[op].cancel()
        assert withdrawn == (op in self.unsent)
        if withdrawn:
            at = next(i for i, e in enumerate(self.expected) if isinstance(e, tuple) and e[0] == op)
            self.expected[at] = (op, True)

    @rule(n=st.integers(1, ROOM))
    def want_room(self, n: int) -> None:
        self.rooms.append((n, self.loop.create_task(self.dev.room(n))))

    @rule()
    def turn(self) -> None:
        """The loop runs: what is queued is sent, what has come is delivered."""
        if self.released:
            self._freed()
        self.run(_turns())
        self.unsent = []
        free = ROOM - self.in_flight()
        assert all(n > free for n, room in self.rooms if not room.done())

    # -- the host ------------------------------------------------------------------------------------------------------

    @rule()
    def host_reads(self) -> None:
        self.host.read()

    @precondition(lambda self: self.host.answered < len(self.host.ops))
    @rule(count=st.integers(1, ROOM), apart=st.booleans())
    def host_answers(self, count: int, apart: bool) -> None:
        """In one frame, or in so many that they do not fit into the socket."""
        for _ in range(count if apart else 1):
            self.host.answer(1 if apart else count)

    @precondition(lambda self: self.host.answered < len(self.host.ops) and not self.host.channel._outgoing)
    @rule(cut=st.integers(0, 1 << 16), garbage=st.booleans())
    def the_stream_breaks(self, cut: int, garbage: bool) -> None:
        """In the middle of an answer, or by a length that no frame has: no op of it is answered."""
        self.turn()  # earlier answers are delivered
        frame = bytes(encode_frame(self.host.completions(100)))
        sent = b"\xff" * 5 if garbage else frame[: cut % len(frame)]
        host, pending = self.host, [reply for reply in self.pending.values() if not reply.done()]
        host.theirs.send(sent)
        host.theirs.shutdown(socket.SHUT_WR)
        before = self.dev.generation
        self.run(_turns())
        kind = FrameError if garbage else TruncatedStream if sent else type(None)
        assert type(host.broken) is kind
        assert self.dev.generation > before
        for reply in pending:
            assert type(reply.exception()) is cb.ContextPoisoned
        self.begin()

    # -- what always holds ---------------------------------------------------------------------------------------------

    @invariant()
    def everything_arrives_once_and_in_order(self) -> None:
        if hasattr(self, "host"):
            assert self.host.seen == self.expected[: len(self.host.seen)]

    @rule()
    def settle(self) -> None:
        """Read and answer until nothing is on its way: nothing is missing."""
        for _ in range(ROUNDS):
            self.turn()
            self.host.read()
            if self.host.answered < len(self.host.ops):
                self.host.answer(7)
            elif not self.in_flight():
                break
        self.turn()
        self.host.read()
        assert self.host.seen == self.expected, (self.host.seen[-3:], self.expected[-3:])
        withdrawn = {e[0] for e in self.expected if isinstance(e, tuple) and e[1]}
        for op, reply in self.pending.items():
            assert type(reply.exception()) is (Withdrawn if op in withdrawn else type(None))
        assert all(room.done() for _, room in self.rooms)
        assert self.dev._port.in_flight == 0

    def teardown(self) -> None:
        if hasattr(self, "dev"):
            self.settle()
            self.refs.clear()
            self.pending.clear()
            self.run(self.system.stop())
            self.run(_turns())
        self.patch.stop()
        self.loop.close()


async def _turns() -> None:
    for _ in range(25):
        await asyncio.sleep(0)


LineMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLine = LineMachine.TestCase
