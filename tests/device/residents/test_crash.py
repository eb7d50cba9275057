"""Native code of a user crashes the context host: the error says where, and has the stacks of all threads."""

import asyncio
import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.device.protocol.failures import as_error, as_failure

pytestmark = [pytest.mark.fault, pytest.mark.leaves_nothing]
BOUND = 20
LINE = re.compile(
    r"cpu:0: the context host crashed: Segmentation fault at ctypes/__init__\.py:\d+ in string_at, "
    r"called from test_crash\.py:\d+ in forward \(thread 0x[0-9a-f]+\), signal SIGSEGV"
)


class Embedder(cb.ResidentActor):
    """Crashes in native code while many other threads are alive, some older and some younger than its own."""

    def crowd(self, threads: int) -> None:
        for _ in range(threads):
            threading.Thread(target=threading.Event().wait, daemon=True).start()

    def forward(self) -> None:
        ctypes.string_at(0)

    def delegate(self) -> int:
        """The exit status of a child that crashes, and writes its dump to the host's stderr."""
        program = "import ctypes; ctypes.string_at(0)"
        command = [sys.executable, "-X", "faulthandler", "-c", program]
        return subprocess.run(command, check=False, timeout=BOUND).returncode


def the_line(text: str) -> str:
    (found,) = [line for line in text.splitlines() if "crashed" in line]
    return found


async def lost_error(dev: cb.Device, reply: Any) -> Any:
    async with asyncio.timeout(BOUND):
        with pytest.raises(cb.ContextLost) as caught:
            await reply
    return caught.value


async def test_a_crash_says_where() -> None:
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        embedder = dev.actor_of(cb.Props(Embedder), name="embedder")
        await embedder.call(Embedder.crowd, 30)
        events = dev.events()
        crashing = embedder.call(Embedder.forward)
        behind = [embedder.call(Embedder.forward) for _ in range(2)]
        errors = [await lost_error(dev, reply) for reply in (crashing, *behind)]
        async with asyncio.timeout(BOUND):
            lost = await anext(events)
        assert isinstance(lost, cb.Lost)
        await events.aclose()  # type: ignore[attr-defined]
        for error in (*errors, lost.error):
            assert isinstance(error, cb.ContextPoisoned)
            assert LINE.fullmatch(the_line(str(error))), str(error)
            assert "Current thread" not in str(error)
            assert error.details.startswith("Fatal Python error: Segmentation fault\n")
            assert "Current thread" in error.details
            assert error.details.count("Thread 0x") > 30
            assert f'File "{__file__}", line ' in error.details
        np.testing.assert_array_equal(await dev.put(np.ones(3)).get(), np.ones(3))


@pytest.mark.slow
async def test_a_device_that_stops_after_a_crash_says_where() -> None:
    async with cb.device("cpu", isolation="process", standby=None, max_restarts=0) as dev:
        embedder = dev.actor_of(cb.Props(Embedder), name="embedder")
        async with asyncio.timeout(BOUND):
            with pytest.raises(cb.DeviceStopped, match="more than 0 contexts lost") as caught:
                await embedder.call(Embedder.forward)
            with pytest.raises(cb.DeviceStopped) as later:
                await dev.ready()
        for error in (caught.value, later.value):
            assert "crashed: Segmentation fault at ctypes/__init__.py" in str(error)
            assert "Current thread" in error.details


@pytest.mark.slow
async def test_a_killed_host_has_no_details() -> None:
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        embedder = dev.actor_of(cb.Props(Embedder), name="embedder")
        await embedder.call(Embedder.crowd, 1)
        pid = dev.health().host_pid
        assert pid is not None
        reply = dev.put(np.ones(3))
        os.kill(pid, signal.SIGKILL)
        error = await lost_error(dev, reply.get())
        assert isinstance(error, cb.ContextPoisoned)
        assert str(error) == "cpu:0: the context host ended (killed: signal SIGKILL)"
        assert error.details == ""


@pytest.mark.slow
async def test_a_crash_of_a_child_of_the_host_is_not_taken_for_its_own() -> None:
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        embedder = dev.actor_of(cb.Props(Embedder), name="embedder")
        async with asyncio.timeout(BOUND):
            assert await embedder.call(Embedder.delegate) == -signal.SIGSEGV
        pid = dev.health().host_pid
        assert pid is not None
        reply = dev.put(np.ones(3))
        os.kill(pid, signal.SIGKILL)
        error = await lost_error(dev, reply.get())
        assert str(error).splitlines()[0].startswith("cpu:0: the context host ended (killed: signal SIGKILL")
        assert "crashed" not in str(error)
        assert error.details == ""


@pytest.mark.parametrize("error", [cb.ContextPoisoned("lost", details="stacks"), cb.DeviceStopped("no", "stacks")])
def test_details_cross_the_wire(error: Any) -> None:
    again: Any = as_error(as_failure(1, error))
    assert type(again) is type(error)
    assert again.details == "stacks"
