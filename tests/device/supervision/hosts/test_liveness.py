"""Detection of hung hosts: a table of beats and time."""

import pytest

from callboard.device.supervision.hosts.liveness import Liveness


@pytest.fixture
def host() -> Liveness:
    return Liveness(hang_after=30.0, step_timeout=300.0, at_most=1.0)


def pass_seconds(host: Liveness, seconds: int, *, still: bool = False) -> str | None:
    """The verdict after so many looks, one a second; ``still``: the process does nothing meanwhile."""
    for _ in range(seconds):
        verdict = host.pass_time(1.0, lambda: not still)
        if verdict is not None:
            return verdict
    return None


def test_silence_is_a_hang(host: Liveness) -> None:
    assert pass_seconds(host, 29) is None
    assert pass_seconds(host, 1) == "no heartbeat for 30 s"


def test_a_beat_starts_the_time_anew(host: Liveness) -> None:
    for rounds in range(5):
        host.beat(rounds, waiting=False, step="", others=[])
        assert pass_seconds(host, 29) is None


def test_beats_without_rounds_are_a_hang(host: Liveness) -> None:
    verdict = None
    for _ in range(31):
        host.beat(7, waiting=False, step="", others=[])
        verdict = verdict or host.pass_time(1.0)
    assert verdict == "its admitting loop made no round for 30 s"


def test_waiting_is_no_hang(host: Liveness) -> None:
    for _ in range(100):
        host.beat(7, waiting=True, step="", others=[])
        assert host.pass_time(1.0) is None


def test_an_announced_step_excuses_silence(host: Liveness) -> None:
    host.beat(7, waiting=False, step="import", others=[])
    assert pass_seconds(host, 299) is None
    host.beat(7, waiting=False, step="", others=[])
    assert pass_seconds(host, 29) is None
    assert pass_seconds(host, 1) == "no heartbeat for 30 s"


@pytest.mark.parametrize("beats", [False, True])
def test_an_announced_step_has_a_limit(host: Liveness, beats: bool) -> None:
    verdict, seconds = None, 0
    host.beat(7, waiting=False, step="open", others=[])
    while verdict is None:
        if beats:
            host.beat(7, waiting=False, step="open", others=[])
        verdict, seconds = host.pass_time(1.0), seconds + 1
    assert verdict == "its step 'open' did not end within 300 s (step_timeout)"
    assert seconds == 300


def test_each_step_has_the_limit_for_itself(host: Liveness) -> None:
    for step in ("import", "", "open", "prepare"):
        host.beat(7, waiting=False, step=step, others=[])
        assert pass_seconds(host, 290 if step else 29) is None


def with_beats(host: Liveness, seconds: int, *others: str, waiting: bool = False) -> str | None:
    """The verdict after a heartbeat a second of a host that makes no round."""
    for _ in range(seconds):
        host.beat(7, waiting=waiting, step="", others=others)
        verdict = host.pass_time(1.0)
        if verdict is not None:
            return verdict
    return None


def test_a_step_of_another_thread_excuses_no_missing_rounds(host: Liveness) -> None:
    """A resident actor is stuck in its setup, and the admitting thread in something else."""
    assert with_beats(host, 29, "setup of a") is None
    assert with_beats(host, 2, "setup of a") == "its admitting loop made no round for 30 s"


def test_a_step_of_another_thread_excuses_silence_up_to_its_limit(host: Liveness) -> None:
    """It may hold the GIL; neither heartbeats come then nor rounds are made, and that is no hang."""
    host.beat(7, waiting=False, step="", others=["setup of a"])
    assert pass_seconds(host, 299) is None
    assert pass_seconds(host, 1) == "no heartbeat for 30 s"


def test_time_for_which_another_thread_held_the_gil_is_not_the_admitting_threads(host: Liveness) -> None:
    for _ in range(25):
        host.beat(7, waiting=False, step="", others=["prepare of a"])
        assert pass_seconds(host, 10) is None  # a heartbeat gets through now and then


def test_a_step_of_another_thread_that_does_not_end_excuses_nothing(host: Liveness) -> None:
    assert with_beats(host, 400, "setup of a", waiting=True) is None
    assert pass_seconds(host, 28) is None
    assert pass_seconds(host, 1) == "no heartbeat for 30 s"


def test_a_new_step_of_another_thread_is_an_excuse_of_its_own(host: Liveness) -> None:
    assert with_beats(host, 400, "setup of a", waiting=True) is None
    assert with_beats(host, 1, "setup of a", "setup of b", waiting=True) is None
    assert pass_seconds(host, 200) is None


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


@pytest.mark.parametrize("step, others", [("open", []), ("", ["setup of a"]), ("import", ["prepare of a"])])
def test_a_step_excuses_no_process_that_does_nothing(host: Liveness, step: str, others: list[str]) -> None:
    """It is stopped, or native code waits and keeps the GIL."""
    host.beat(7, waiting=False, step=step, others=others)
    assert pass_seconds(host, 29, still=True) is None
    assert pass_seconds(host, 1, still=True) == "no heartbeat for 30 s, in which its threads did nothing"


def test_a_process_that_does_something_now_and_then_is_excused(host: Liveness) -> None:
    host.beat(7, waiting=False, step="", others=["setup of a"])
    for _ in range(9):
        assert pass_seconds(host, 29, still=True) is None
        assert pass_seconds(host, 1) is None


def test_a_beat_in_a_step_starts_the_time_anew(host: Liveness) -> None:
    for _ in range(5):
        host.beat(7, waiting=False, step="open", others=[])
        assert pass_seconds(host, 29, still=True) is None


def test_a_process_is_observed_in_silent_steps_only_and_rarely(host: Liveness) -> None:
    observed: list[int] = []
    for turn in range(50):
        host.pass_time(0.1, lambda turn=turn: bool(observed.append(turn)) or True)  # type: ignore[misc]
    assert observed == []
    host.beat(7, waiting=False, step="open", others=[])
    for turn in range(50):
        host.pass_time(0.1, lambda turn=turn: bool(observed.append(turn)) or True)  # type: ignore[misc]
    assert len(observed) <= 5
