import subprocess
import sys

import pytest

import callboard as cb
from callboard.cli.demo.fault import fault_of, standby_ready

# As on CUDA, by a resident actor; what it does there a CPU cannot, so this one kills its host.
RESIDENT = """
import os, signal, sys
import callboard as cb
from callboard.cli import main
from callboard.cli.demo import illegal_actor
from callboard.cli.demo import command, fault

class Killer(cb.ResidentActor):
    def ready(self) -> bool:
        return True

    def strike(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

illegal_actor.IllegalWrite = Killer
fault_of = fault.fault_of
command.fault_of = lambda device: fault_of(device, illegal=True)
sys.exit(main(["demo", "--device", "cpu"]))
"""


async def test_a_context_in_a_thread_cannot_be_killed() -> None:
    async with cb.device("cpu", isolation="thread") as device:
        fault = fault_of(device)
        with pytest.raises(ValueError, match="isolation='process'"):
            await fault.ready()
        await fault.strike()  # not this process
        assert device.health().ok


async def test_the_fault_strikes_in_every_generation() -> None:
    async with cb.device("cpu", isolation="process", standby="warm") as device:
        fault = fault_of(device)
        for _ in range(2):
            assert await standby_ready(device)
            await fault.ready()
            before = device.generation
            await fault.strike()
            await device.watch_generation().changed(before)
        assert device.health().restarts == 2


async def test_no_standby_is_never_ready() -> None:
    async with cb.device("cpu", isolation="process", standby=None) as device:
        assert not await standby_ready(device)


@pytest.mark.slow
def test_demo_survives_a_resident_actor_that_takes_its_host_along() -> None:
    done = subprocess.run([sys.executable, "-c", RESIDENT], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "context lost" in done.stdout
    assert "hot standby took over" in done.stdout
    assert ": equal" in done.stdout
