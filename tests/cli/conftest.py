"""Fixtures of the command line's tests."""

import os

import pytest

from callboard.core import registry
from callboard.core.errors import BackendUnavailable


@pytest.fixture
def cuda() -> None:
    """A CUDA device can be used here; skips with the reason, fails where CALLBOARD_REQUIRE=cuda."""
    try:
        registry.resolve("cuda")
    except BackendUnavailable as e:
        if os.environ.get("CALLBOARD_REQUIRE") == "cuda":
            pytest.fail(f"CALLBOARD_REQUIRE=cuda: {e}")
        pytest.skip(f"no CUDA device: {e}")
