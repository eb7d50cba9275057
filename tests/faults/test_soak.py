"""A short run of ``scripts/soak``: each request, and each call of a resident actor, ends as it should."""

import pytest
from tests.faults import collective_soak, resident_soak
from tests.faults.soak import soak

pytestmark = [pytest.mark.fault, pytest.mark.leaves_nothing, pytest.mark.timeout(120)]


@pytest.mark.slow
async def test_requests_fail_and_hosts_are_killed() -> None:
    run = await soak(requests=60, kills=1, seed=2)
    assert run.ended == 60
    assert run.checked
    assert 6 <= run.ends["NumericalError"] + run.ends["ReplyError"] <= 12
    assert set(run.ends) <= {"value", "NumericalError", "ReplyError", "ContextPoisoned", "GpuRefStale", "MailboxFull"}


@pytest.mark.slow
async def test_calls_of_resident_actors_that_are_restarted() -> None:
    run = await resident_soak.soak(calls=2_000, restarts=20, seed=2)
    assert run.calls >= 2_000
    assert run.ends["restart"] == 20
    assert {"plain", "array", "kept", "ref", "lent", "product", "stream", "cancelled"} <= set(run.ends)
    assert len(run.samples) == 10
    assert max(run.grown()) <= resident_soak.GROWTH


@pytest.mark.parametrize(
    "collectives, kills",
    [
        pytest.param(60, 1, marks=pytest.mark.slow),
        pytest.param(20_000, 100, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
    ],
)
async def test_collectives_of_ranks_that_are_killed(
    collectives: int, kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", str(collective_soak.RANKS))
    run = await collective_soak.soak(collectives, kills, seed=2)
    assert run.ended >= collectives
    assert run.killed == kills
    assert run.ends["right"] > 0
    assert set(run.ends) <= {"right", "right, and lost since", "refused", "WorldLost", "ContextPoisoned", "GpuRefStale"}
