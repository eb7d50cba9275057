"""Processes that methods of a resident actor start end with the host, also where it is killed."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from tests.faults.load import BOUND, lost_and_recovered, signal_host
from tests.faults.programs import Watched

import callboard as cb

pytestmark = [
    pytest.mark.fault,
    pytest.mark.leaves_nothing,
    pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only"),
]

LASTS = 100
"""Seconds: longer than the test."""


class Parent(cb.ResidentActor):
    def start(self, how: str) -> int:
        """The id of a process that lasts."""
        if how == "subprocess":
            self.started: Any = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({LASTS})"])
        else:
            context: Any = multiprocessing.get_context(how)
            self.started = context.Process(target=time.sleep, args=(LASTS,))
            self.started.start()
        return int(self.started.pid)

    def pid(self) -> int:
        return os.getpid()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "how, own_process",
    [
        ("subprocess", False),
        ("spawn", True),
        *(
            pytest.param(how, own, marks=pytest.mark.slow)
            for how, own in [("subprocess", True), ("spawn", False), ("forkserver", False), ("forkserver", True)]
        ),
    ],
)
async def test_they_end_where_the_host_is_replaced_and_closed(how: str, own_process: bool) -> None:
    async with cb.device("cpu", isolation="process") as dev:
        actor = dev.actor_of(cb.Props(Parent), name="parent", own_process=own_process).with_timeout(BOUND)
        first = Watched(await actor.call(Parent.start, how))
        host = await actor.call(Parent.pid)
        if own_process:
            os.kill(host, signal.SIGKILL)
        else:
            await lost_and_recovered(dev, lambda: signal_host(dev, signal.SIGKILL))
        assert await asyncio.to_thread(first.gone)
        second = Watched(await _started(actor, how))
    assert second.gone(0.0)
    for each in (first, second):
        each.close()


async def _started(actor: "cb.ResidentRef[Parent]", how: str) -> int:
    """Start one in the next process of the actor; a call fails that goes to the last before its end is noticed."""
    async with asyncio.timeout(BOUND):
        while True:
            with contextlib.suppress(cb.ContextPoisoned):
                return await actor.call(Parent.start, how)
