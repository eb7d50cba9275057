"""Messages changed on the wire, a few hundred of a million (``scripts/fuzz``): no hang, no code run, no crash."""

import logging
from collections.abc import Iterator

import pytest
from tests.faults.wire.admitting import fuzz_calls
from tests.faults.wire.answering import fuzz_answers

pytestmark = [pytest.mark.fault, pytest.mark.leaves_nothing]


@pytest.fixture(autouse=True)
def _unlogged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """pytest keeps every record until the end of the test, with the frames of its traceback and what they hold."""
    logger = logging.getLogger("callboard")
    propagate = logger.propagate
    caplog.set_level(logging.CRITICAL + 1, "callboard")
    yield
    logger.propagate = propagate


@pytest.mark.few(1)
@pytest.mark.parametrize("residents", [False, True])
def test_an_application_reads_what_hosts_send(residents: bool) -> None:
    assert fuzz_answers("test", 100, residents=residents) >= 100


def test_a_host_reads_what_the_application_sends() -> None:
    """Hosts that would be processes live in this one."""
    assert fuzz_calls("test", 100) >= 100
