"""Resident actors, generations and traces of the blocking twin."""

import asyncio
import gc
import os
import queue
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.device.residents.async_lab import Later
from tests.device.residents.lab import Add, Brief, Gate, Note, OwnError, Probe, Restarting, SlowSetup, Unhandled
from tests.device.residents.stream_lab import Streamer
from tests.test_sync import BOTH, open_cpu, program
from tests.together import together

import callboard as cb
from callboard import _background
from callboard.core.errors import AskTimeout
from callboard.core.reply import Reply
from callboard.device.client.line.status import TraceRecord

pytestmark = pytest.mark.leaves_nothing

A = np.arange(6, dtype="f4").reshape(2, 3)
SOON = 20.0


def kill(cpu: cb.sync.Device) -> None:
    pid = cpu.health().host_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


# -- calls -------------------------------------------------------------------------------------------------------------


@BOTH
def test_a_call_gives_the_value(isolation: str) -> None:
    with open_cpu(isolation=isolation) as cpu:
        probe = cpu.actor_of(cb.Props(Probe, 40), name="probe")
        assert probe.call(Probe.add, 2) == 42
        assert probe.call(Probe.add, 1, twice=True) == 44
        np.testing.assert_array_equal(probe.call(Probe.echo, {"a": [A]})["a"][0], A)
        assert probe.ask(Add(n=1)) == 45
        probe.tell(Note(text="hello"))
        assert probe.call(Probe.noted) == ["hello"]
        with pytest.raises(cb.AccelError, match="no handler"):
            probe.ask(Unhandled())
        with pytest.raises(TypeError, match="has no method len"):
            probe.call(len, [1])  # type: ignore[call-overload]
        with pytest.raises(AttributeError, match=r"use `ref\.call\(Probe\.add, \.\.\.\)`"):
            probe.add(2)  # type: ignore[attr-defined]
        assert (probe.name, probe.restarts, probe.in_flight, probe.is_stopped) == ("probe", 0, 0, False)
        assert repr(probe) == "<ResidentRef probe (Probe)>"


@BOTH
def test_refs_go_and_come_and_block(isolation: str) -> None:
    with open_cpu(isolation=isolation) as cpu:
        probe = cpu.actor_of(cb.Props(Probe))
        sent = cpu.put(A)
        probe.call(Probe.increment, sent, by=3.0)
        np.testing.assert_array_equal(sent.get(), A + 3.0)
        assert probe.call(Probe.total_of, cpu.copy(sent)) == float((A + 3.0).sum())
        lent = probe.call(Probe.make, 4)
        assert lent.get().tolist() == [0.0, 1.0, 2.0, 3.0]
        assert cpu.copy(lent[2:]).get().tolist() == [2.0, 3.0]


@BOTH
def test_an_actor_that_failed_or_stopped_says_so(isolation: str) -> None:
    with open_cpu(isolation=isolation) as cpu:
        probe = cpu.actor_of(cb.Props(Restarting), name="probe")
        with pytest.raises(cb.ReplyError, match="an answer"):
            probe.with_timeout(SOON).call(Probe.fail, "answer")
        assert probe.restarts == 0
        with pytest.raises(ValueError, match="no"):
            probe.call(Probe.fail, "value")
        assert probe.call(Probe.state)[0] == 0
        cpu.stats()  # its answer comes behind what the host had to tell
        assert probe.restarts == 1
        with pytest.raises(ValueError, match="positive"):
            probe.with_timeout(0.0)
        with pytest.raises(TypeError, match=r"Probe is not a Props; pass actor_of\(Props\(Probe, "):
            cpu.actor_of(Probe)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="is not a ResidentActor"):
            cpu.actor_of(cb.Props(dict))  # type: ignore[type-var]
        probe.stop()
        probe.stop()
        assert probe.is_stopped
        with pytest.raises(cb.AccelError, match="was stopped"):
            probe.call(Probe.add, 1)
        again = cpu.actor_of(cb.Props(Probe), name="probe")
        assert again.call(Probe.add, 1) == 1
    assert again.is_stopped
    again.stop()
    for call in (lambda: again.call(Probe.add, 1), lambda: cpu.actor_of(cb.Props(Probe)), cpu.wait_generation):
        with pytest.raises(cb.DeviceStopped):
            call()


def test_a_timeout_ends_the_wait(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with open_cpu() as cpu:
        probe = cpu.actor_of(cb.Props(Probe))
        try:
            with pytest.raises(AskTimeout, match="the call is cancelled"):
                probe.with_timeout(0.05).call(Probe.wait, gate.path)
        finally:
            gate.open_for_good()
        assert probe.call(Probe.add, 1) == 1


def test_threads_share_an_actor_and_wait_for_its_room() -> None:
    with open_cpu() as cpu:
        brief = cpu.actor_of(cb.Props(Brief))
        seen: list[int] = []
        threads = [
            threading.Thread(target=lambda: seen.extend(brief.call(Probe.add, 1) for _ in range(20))) for _ in range(12)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join(SOON)
        assert sorted(seen) == list(range(1, 241))


INTERRUPTED = """
import signal, sys, callboard as cb
signal.signal(signal.SIGINT, signal.default_int_handler)  # the shell has it ignored by what it runs in the background

class Waiter(cb.ResidentActor):
    def setup(self, ctx: cb.HostContext) -> None:
        self.waited = 0

    def wait(self, gate: str) -> int:
        if gate:
            with open(gate) as file:
                file.read()
        self.waited += 1
        return self.waited

with cb.sync.device("cpu", isolation=sys.argv[1], standby=None) as cpu:
    waiter = cpu.actor_of(cb.Props(Waiter))
    try:
        waiter.call(Waiter.wait, sys.argv[2])
    except KeyboardInterrupt:
        print("interrupted", waiter.in_flight)
    print(waiter.call(Waiter.wait, ""))
"""


@BOTH
def test_ctrl_c_ends_the_wait_and_not_the_call(isolation: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = program(INTERRUPTED, isolation, str(gate))
    assert script.stdout is not None
    with gate.open("w"):  # the call is at the gate
        script.send_signal(signal.SIGINT)
        assert script.stdout.readline() == "interrupted 1\n"
    out, err = script.communicate(timeout=40)
    assert (script.returncode, out, err) == (0, "2\n", "")


LEFT = """
import asyncio, signal, sys, callboard as cb
from callboard.device.supervision.hosts.loop import LoopHost
from callboard.device.supervision.hosts.process import ProcessHost
from callboard.device.supervision.hosts.thread import ThreadHost
signal.signal(signal.SIGINT, signal.default_int_handler)
how, gate = sys.argv[1:3]
options = dict(zip(("isolation", "dispatcher"), sys.argv[3].split("/")), standby=None, close_timeout=600.0)

for kind in (LoopHost, ProcessHost, ThreadHost):
    def kill(host, reason, kill=kind.kill) -> None:
        print(reason)
        kill(host, reason)
    kind.kill = kill

class Waiter(cb.ResidentActor):
    def wait(self) -> None:
        with open(gate) as file:
            file.read()

async def main() -> None:
    async with cb.device("cpu", **options) as cpu:
        await cpu.actor_of(cb.Props(Waiter)).call(Waiter.wait)

if how == "async":
    asyncio.run(main())
elif how == "with":
    with cb.sync.device("cpu", **options) as cpu:
        cpu.actor_of(cb.Props(Waiter)).call(Waiter.wait)
else:
    cb.sync.device("cpu", **options).actor_of(cb.Props(Waiter)).call(Waiter.wait)
"""


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "how, where",
    [("async", "process"), ("with", "thread"), ("with", "thread/caller"), ("exit", "process")],
)
@pytest.mark.few(1)
def test_ctrl_c_ends_a_program_whose_actor_is_blocked(how: str, where: str, tmp_path: Path) -> None:
    """It is not ``close_timeout``, or what cancels such a long wait, that ends it."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = program(LEFT, how, str(gate), where)
    with gate.open("w"):  # the call is at the gate, and stays there
        script.send_signal(signal.SIGINT)
        out, err = script.communicate(timeout=50)
    assert script.returncode == -signal.SIGINT
    # On a busy machine a blocking end is left before that: it waits a second, and the program ends its hosts.
    assert out == "still busy 0.75 s after it was asked to close\n" or (how != "async" and not out)
    assert err.rstrip().endswith("KeyboardInterrupt"), err


FORKED = """
import os, sys, callboard as cb
from tests.device.residents.lab import Probe
cpu = cb.sync.device("cpu", isolation=sys.argv[1], standby=None)
probe = cpu.actor_of(cb.Props(Probe))
probe.call(Probe.add, 1)
child = os.fork()
if not child:
    said = []
    for call in (lambda: probe.call(Probe.add, 1), lambda: cpu.actor_of(cb.Props(Probe)), probe.stop,
                 cpu.wait_generation, lambda: cpu.trace(print)):
        try:
            call()
        except RuntimeError as e:
            said.append("before os.fork()" in str(e))
    print(len(said), all(said))
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
print(probe.call(Probe.add, 1))
"""


@pytest.mark.slow
@BOTH
def test_after_a_fork_actors_raise(isolation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    script = program(FORKED, isolation)
    out, err = script.communicate(timeout=40)
    assert (script.returncode, out) == (0, "5 True\n2\n"), err


# -- generations and traces --------------------------------------------------------------------------------------------


@pytest.mark.fault
def test_a_lost_context_starts_the_actor_again() -> None:
    with open_cpu(isolation="process") as cpu:
        probe = cpu.actor_of(cb.Props(Probe, 5))
        assert probe.call(Probe.add, 1) == 6
        before = cpu.generation
        kill(cpu)
        after = cpu.wait_generation(before, SOON)
        assert after > before
        assert after == cpu.generation
        assert cpu.wait_generation(before) == after
        assert probe.call(Probe.add, 1) == 6
        assert probe.restarts == 0


def test_who_waits_for_a_generation_need_not_wait_for_ever() -> None:
    cpu = open_cpu()
    with pytest.raises(AskTimeout, match=r"within 0\.01 s"):
        cpu.wait_generation(timeout=0.01)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            cpu.wait_generation()
        except BaseException as e:
            errors.append(e)

    waiting = threading.Thread(target=wait)
    waiting.start()
    cpu.close()
    waiting.join(SOON)
    assert [type(e) for e in errors] == [cb.DeviceStopped]


def test_what_is_called_as_the_loop_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not run, and not waited for: the loop has stopped, and is not closed yet."""
    called: list[BaseException] = []

    def user() -> None: ...

    async def work() -> None: ...

    monkeypatch.setattr(_background, "_current", None)  # a loop of its own
    loop = _background.open_loop(user)
    join = loop._thread.join

    def late(timeout: float | None) -> None:
        join(timeout)
        with pytest.raises(cb.DeviceStopped) as refused:
            loop.start(work())
        called.append(refused.value)

    loop._thread.join = late  # type: ignore[assignment]
    loop.leave(user)
    assert len(called) == 1


class Broken(Probe):
    def __init__(self) -> None:
        raise RuntimeError("cannot be made")


@BOTH
def test_an_actor_can_be_waited_for(isolation: str, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with open_cpu(isolation=isolation) as cpu:
        slow = cpu.actor_of(cb.Props(SlowSetup, gate.path), name="slow")
        assert slow.state == "starting"
        other = cpu.actor_of(cb.Props(Probe), wait=True)
        assert other.state == "ready"
        with pytest.raises(cb.ActorStopped, match="cannot be made"):
            cpu.actor_of(cb.Props(Broken), name="broken", wait=True)
        assert cpu.actor_of(cb.Props(Probe), name="broken", wait=True).call(Probe.add, 1) == 1
        with pytest.raises(TimeoutError, match=r"slow is starting, not ready within 0\.01 s"):
            slow.ready(timeout=0.01)
        gate.open_for_good()
        assert slow.ready(timeout=SOON) is slow
        assert (slow.state, slow.cause) == ("ready", None)
        slow.stop()
        with pytest.raises(cb.ActorStopped, match="slow was stopped"):
            slow.ready()
    with pytest.raises(cb.DeviceStopped):
        slow.ready()
    assert slow.state == "stopped"


@BOTH
def test_a_trace_is_told_until_it_is_removed(isolation: str) -> None:
    records: queue.Queue[TraceRecord] = queue.Queue()
    with open_cpu(isolation=isolation) as cpu:
        a = cpu.put(A)
        remove = cpu.trace(records.put)
        cpu.blas.gemm(a, a.T).get()
        tags = {records.get(timeout=SOON).tag for _ in range(2)}
        assert "blas.gemm" in tags
        remove()
        while not records.empty():
            records.get()
        cpu.blas.gemm(a, a.T).get()
        cpu.stats()
        assert records.empty()
        last = cpu.trace(records.put)
    last()


# -- streams -----------------------------------------------------------------------------------------------------------


@BOTH
def test_a_stream_is_a_plain_loop(isolation: str) -> None:
    with open_cpu(isolation=isolation) as cpu:
        actor = cpu.actor_of(cb.Props(Streamer), name="streamer")
        assert list(actor.stream(Streamer.count, 20)) == list(range(20))
        assert actor.call(Streamer.state) == (20, ["count done", "count closed"])
        for item in actor.stream(Streamer.count, 20, "loop").with_prefetch(0):
            if item == 2:
                break
        assert actor.call(Streamer.state) == (23, ["count done", "count closed", "loop closed"])
        with actor.stream(Streamer.count, 20, "with") as stream:
            assert next(stream) == 0
        assert list(stream) == []
        assert actor.call(Streamer.state)[1][-1] == "with closed"
        with pytest.raises(OwnError, match="bad"):
            list(actor.stream(Streamer.fails, 3, "own"))
        refs = list(actor.stream(Streamer.lend, 2))
        np.testing.assert_array_equal(refs[1].get(), [1, 1, 1])
        stream = actor.stream(Streamer.fails_to_close, 100)
        next(stream)
        with pytest.raises(OwnError, match="cleaning up"):
            stream.close()
        with pytest.raises(TypeError, match="use `stream`"):
            actor.call(Streamer.count, 3)
        assert actor.call(Streamer.open_streams) == 0
        assert repr(stream) == "<Stream of streamer.fails_to_close, over>"


@BOTH
def test_streams_of_several_threads(isolation: str) -> None:
    with open_cpu(isolation=isolation) as cpu:
        actor = cpu.actor_of(cb.Props(Streamer))
        assert together(lambda: list(actor.stream(Streamer.count, 30)), [()] * 6, SOON) == [list(range(30))] * 6


@BOTH
def test_an_item_that_does_not_come_in_time_ends_the_stream(isolation: str, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with open_cpu(isolation=isolation) as cpu:
        actor = cpu.actor_of(cb.Props(Streamer))
        actor.call(Streamer.state)
        with pytest.raises(AskTimeout, match=r"no item within 0.01 s; the stream is closed"):
            list(actor.with_timeout(0.01).stream(Streamer.gated, gate.path, 5))
        gate.open_for_good()
        assert actor.call(Streamer.open_streams) == 0


def test_an_item_that_comes_as_the_time_ends_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Reply.result

    def late(reply: Reply[Any], timeout: float | None = None) -> Any:
        """Comes to its end just before the item does, and is seen just after."""
        got = result(reply, SOON)
        if timeout is not None:
            raise AskTimeout(f"no completion within {timeout} s; the op goes on")
        return got

    with open_cpu() as cpu:
        actor = cpu.actor_of(cb.Props(Streamer))
        monkeypatch.setattr(Reply, "result", late)
        assert list(actor.with_timeout(SOON).stream(Streamer.count, 3)) == [0, 1, 2]
        with pytest.raises(OwnError, match="bad"):
            list(actor.with_timeout(SOON).stream(Streamer.fails, 3, "own"))


@BOTH
def test_async_methods_and_generators(isolation: str) -> None:
    with open_cpu(isolation=isolation) as cpu:
        actor = cpu.actor_of(cb.Props(Later))
        got: queue.SimpleQueue[str] = queue.SimpleQueue()
        threads = [threading.Thread(target=lambda: got.put(actor.call(Later.wait, "a"))) for _ in range(3)]
        for thread in threads:
            thread.start()
        actor.call(Later.open, "a")
        assert [got.get(timeout=SOON) for _ in threads] == ["a"] * 3
        for thread in threads:
            thread.join(SOON)
        np.testing.assert_array_equal(actor.call(Later.lend, 3).get(), [0, 1, 2])
        assert list(actor.stream(Later.count, 20)) == list(range(20))
        with pytest.raises(OwnError, match="bad"):
            actor.call(Later.fail, "own")


def test_the_exit_of_the_interpreter_leaves_tasks_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a Ctrl-C that ends the wait for them; else asyncio reports each as destroyed while pending."""
    monkeypatch.setattr(_background, "_current", None)  # a loop of its own
    said: list[object] = []

    def user() -> None: ...

    background = _background.open_loop(user)
    loop, thread = background.loop, background._thread
    loop.set_exception_handler(lambda loop, context: said.append(context))
    held = background.start(asyncio.Event().wait())
    background.run(asyncio.sleep(0))  # it waits
    background.users.clear()
    _background._close_all()
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60.0)
    assert not thread.is_alive()
    assert not held.done()
    del held, background
    gc.collect()
    assert not said
