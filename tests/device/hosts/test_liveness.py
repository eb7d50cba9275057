"""Who counts as hung: a table of beats and time."""

import pytest

from callboard.device.hosts.liveness import Liveness


@pytest.fixture
def host() -> Liveness:
    return Liveness(hang_after=30.0, at_most=1.0)


def pass_seconds(host: Liveness, seconds: int) -> str | None:
    """The verdict after so many looks, one a second."""
    for _ in range(seconds):
        verdict = host.pass_time(1.0)
        if verdict is not None:
            return verdict
    return None


def test_silence_is_a_hang(host: Liveness) -> None:
    assert pass_seconds(host, 29) is None
    assert pass_seconds(host, 1) == "no heartbeat for 30 s"


def test_a_beat_starts_the_time_anew(host: Liveness) -> None:
    for rounds in range(5):
        host.beat(rounds, waiting=False, step="")
        assert pass_seconds(host, 29) is None


def test_beats_without_rounds_are_a_hang(host: Liveness) -> None:
    verdict = None
    for _ in range(31):
        host.beat(7, waiting=False, step="")
        verdict = verdict or host.pass_time(1.0)
    assert verdict == "its admitting loop made no round for 30 s"


def test_waiting_is_no_hang(host: Liveness) -> None:
    for _ in range(100):
        host.beat(7, waiting=True, step="")
        assert host.pass_time(1.0) is None


def test_an_announced_step_excuses_silence(host: Liveness) -> None:
    host.beat(7, waiting=False, step="import")
    assert pass_seconds(host, 500) is None
    host.beat(7, waiting=False, step="")
    assert pass_seconds(host, 29) is None
    assert pass_seconds(host, 1) is not None


def test_a_paused_watch_excuses_silence(host: Liveness) -> None:
    host.paused = True
    assert pass_seconds(host, 500) is None
    host.paused = False
    assert pass_seconds(host, 29) is None
    assert pass_seconds(host, 1) is not None


def test_time_that_this_process_did_not_run_counts_once(host: Liveness) -> None:
    """A debugger held the application for an hour: at its next look only one interval has passed for the host."""
    assert host.pass_time(3600.0) is None
    assert pass_seconds(host, 28) is None
    assert pass_seconds(host, 1) is not None
