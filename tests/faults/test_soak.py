"""A server that is never idle, a few of its 10,000 requests (``scripts/soak``): each ends once, as it should."""

import pytest
from tests.faults.soak import soak

pytestmark = [pytest.mark.fault, pytest.mark.leaves_nothing, pytest.mark.timeout(120)]


async def test_requests_fail_and_hosts_are_killed() -> None:
    run = await soak(requests=60, kills=1, seed=2)
    assert run.ended == 60
    assert run.checked
    assert 6 <= run.ends["NumericalError"] + run.ends["ReplyError"] <= 12
    assert set(run.ends) <= {"value", "NumericalError", "ReplyError", "ContextPoisoned", "GpuRefStale", "MailboxFull"}
