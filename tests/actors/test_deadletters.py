"""The dead letter store by itself."""

import logging

import pytest
from tests.together import together

from callboard.actors import DeadLetter, DeadLetters, DeadLetterSuppression


def test_ring_is_bounded_and_counters_are_not() -> None:
    letters = DeadLetters(3)
    for i in range(5):
        letters.publish(i, "/a", "stopped" if i % 2 else "cancelled")
    assert [letter.message for letter in letters.recent()] == [2, 3, 4]
    assert letters.counts == {"cancelled": 3, "stopped": 2}
    assert letters.total == 5


def test_subscribers_until_they_leave() -> None:
    letters = DeadLetters()
    seen: list[DeadLetter] = []
    leave = letters.subscribe(seen.append)
    letters.publish("a", "/x", "stopped")
    leave()
    letters.publish("b", "/x", "stopped")
    assert seen == [DeadLetter("a", "/x", "stopped")]


def test_broken_subscriber_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    letters = DeadLetters()
    seen: list[DeadLetter] = []
    letters.subscribe(lambda _: 1 / 0)
    letters.subscribe(seen.append)
    letters.publish("a", "/x", "stopped")
    assert len(seen) == 1
    assert [r.getMessage() for r in caplog.records] == ["a dead letter subscriber failed"]


def test_log_goes_silent(caplog: pytest.LogCaptureFixture) -> None:
    """Pekko logs the first ten and says so; a flood must not fill the log."""
    letters = DeadLetters(log_first=3)
    with caplog.at_level(logging.INFO, "callboard.actors"):
        for _ in range(10):
            letters.publish("a", "/x", "stopped")
    assert len(caplog.records) == 3
    assert "only counted" in caplog.records[-1].getMessage()


def test_suppressed_messages_are_only_counted(caplog: pytest.LogCaptureFixture) -> None:
    class Boring(DeadLetterSuppression):
        pass

    letters = DeadLetters()
    with caplog.at_level(logging.INFO, "callboard.actors"):
        letters.publish(Boring(), "/x", "stopped")
    assert (letters.recent(), letters.total, caplog.records) == ([], 1, [])


def test_published_from_many_threads() -> None:
    letters = DeadLetters(10)

    def publish() -> None:
        for _ in range(1000):
            letters.publish("x", "/x", "stopped")

    together(publish, [()] * 4)
    assert letters.total == 4000
