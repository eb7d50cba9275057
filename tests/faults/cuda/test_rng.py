"""Random numbers on a real GPU whose host is killed in the middle of a sequence."""

import pytest
from tests.faults.cuda.lab import cuda, kill, loss
from tests.faults.draws import STREAMS, check_they_go_on

from callboard.kernel.rng.streams import RngOrdering

pytestmark = [pytest.mark.gpu, pytest.mark.fault, pytest.mark.leaves_nothing, pytest.mark.timeout(300)]


@pytest.mark.parametrize("kind, ordering", STREAMS)
async def test_numbers_go_on_behind_a_lost_context(kind: str, ordering: RngOrdering) -> None:
    async with cuda() as device:
        await check_they_go_on(device, kind, ordering, lambda: loss(device, lambda: kill(device)))
