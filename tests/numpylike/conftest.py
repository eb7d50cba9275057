"""The fixture ``dev``: a blocking device, open for one test."""

from collections.abc import Iterator

import pytest

import callboard as cb


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def dev(request: pytest.FixtureRequest) -> Iterator[cb.sync.Device]:
    with cb.sync.System() as system, system.device(request.param, isolation="thread", standby=None) as opened:
        yield opened
