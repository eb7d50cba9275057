"""The fixture ``session`` of the suites of the array namespace: a blocking device of each backend, kept open."""

import os
from collections.abc import Iterator

import pytest

import callboard as cb

DEVICES = [
    pytest.param(("cpu", "thread"), id="cpu"),
    pytest.param(("cuda", "process"), id="cuda", marks=pytest.mark.gpu),
]


@pytest.fixture(scope="module", params=DEVICES)
def session(request: pytest.FixtureRequest) -> Iterator[cb.sync.Device]:
    """A device; ``session.xp`` is its namespace."""
    which, isolation = request.param
    try:
        device = cb.sync.device(which, isolation=isolation, standby=None)
    except cb.BackendUnavailable as e:
        if os.environ.get("CALLBOARD_REQUIRE") == which:
            pytest.fail(f"CALLBOARD_REQUIRE={which}: {e}")
        pytest.skip(f"device {which!r} cannot be used: {e}")
    with device:
        yield device
