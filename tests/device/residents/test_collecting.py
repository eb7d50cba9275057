"""Collections of garbage in a host: as often as usual beside a resident actor, whose cycles may hold arrays."""

import gc
import subprocess
import sys

import pytest

import callboard as cb
from callboard.device.host import collecting

pytestmark = [pytest.mark.leaves_nothing]


class Asked(cb.ResidentActor):
    def thresholds(self) -> tuple[int, int, int]:
        return gc.get_threshold()


async def test_a_host_collects_as_usual_from_its_first_actor_on() -> None:
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        actor = dev.actor_of(cb.Props(Asked))
        assert await actor.call(Asked.thresholds) == default_thresholds()


def default_thresholds() -> tuple[int, int, int]:
    """The setting of a Python that has just been started."""
    told = subprocess.run(
        [sys.executable, "-c", "import gc; print(*gc.get_threshold())"], capture_output=True, check=True, timeout=100
    )
    first, second, third = map(int, told.stdout.split())
    return first, second, third


def test_less_often_is_undone() -> None:
    before = gc.get_threshold()
    try:
        collecting.rarely()
        assert gc.get_threshold() == (collecting.COLLECT_AFTER, *before[1:])
        collecting.as_usual()
        assert gc.get_threshold() == before
        collecting.as_usual()
        assert gc.get_threshold() == before
    finally:
        gc.set_threshold(*before)
