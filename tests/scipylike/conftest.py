"""The fixture ``dev``: a blocking device, open for one test."""

from collections.abc import Iterator

import pytest

import callboard as cb


@pytest.fixture
def dev() -> Iterator[cb.sync.Device]:
    with cb.sync.System() as system, system.device("cpu", isolation="thread", standby=None) as opened:
        yield opened
