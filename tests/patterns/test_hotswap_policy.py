"""Versions, canaries and golden items of the hot-swap server, without any server."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import callboard as cb
from callboard.patterns.hotswap.canary import Trial
from callboard.patterns.hotswap.golden import mismatch
from callboard.patterns.hotswap.versions import Version, VersionBook

LOADED = (cb.VersionState.ACTIVE, cb.VersionState.STANDBY)


def settings(name: str) -> cb.ModelVersion:
    return cb.ModelVersion(name, lambda: str.upper)


class Oracle:
    """The same as a ``VersionBook``, by the plain list of what was active."""

    def __init__(self, keep: int, history: int) -> None:
        self.keep, self.history = keep, history
        self.active: str | None = None
        self.past: list[str] = []
        self.standby: list[str] = []
        self.unloaded: list[str] = []

    def activate(self, name: str, *, back: bool) -> None:
        old, self.active = self.active, name
        if back:
            self.past.pop()
        elif old is not None:
            self.past = [each for each in self.past if each != old] + [old]
        for names in (self.standby, self.unloaded):
            if name in names:
                names.remove(name)
        if old is not None:
            self.standby.append(old)
        while len(self.standby) > self.keep:
            self.unloaded.append(self.standby.pop(0))
        while len(self.unloaded) > self.history:
            gone = self.unloaded.pop(0)
            self.past = [each for each in self.past if each != gone]


def flip(book: VersionBook, version: Version, *, back: bool = False) -> None:
    """A swap without its waiting."""
    old = book.activate(version, back=back)
    if old is not None:
        for each in book.drained(old):
            book.unloaded(each, cb.VersionState.UNLOADED)


@given(
    keep=st.integers(0, 2),
    history=st.integers(0, 3),
    steps=st.lists(st.tuples(st.sampled_from(["swap", "swap", "activate", "back"]), st.integers(0, 7)), max_size=30),
)
def test_versions_come_and_go_as_in_the_plain_list(keep: int, history: int, steps: list[tuple[str, int]]) -> None:
    book, oracle = VersionBook(keep, history), Oracle(keep, history)
    for generation, (step, n) in enumerate(steps):
        if step == "swap":
            name = f"v{generation}"
            version = book.add(settings(name))
        elif step == "back":
            if not oracle.past:
                with pytest.raises(cb.UnknownVersion):
                    _ = book.previous
                continue
            name, version = oracle.past[-1], book.previous
            assert version.name == name
        else:
            known = oracle.standby + oracle.unloaded
            if not known:
                continue
            name = known[n % len(known)]
            version = book.find(name)
        before = book.generation
        flip(book, version, back=step == "back")
        oracle.activate(name, back=step == "back")
        assert book.generation == before + 1
        assert book.active is version
        assert sorted(each.name for each in book.all() if each.state in LOADED) == sorted([name, *oracle.standby])
        assert sorted(each.name for each in book.all() if each.state not in LOADED) == sorted(oracle.unloaded)
        assert book.active.name not in oracle.past[-1:]


def test_failed_versions_are_forgotten_in_their_turn() -> None:
    book = VersionBook(keep=0, history=2)
    for n in range(4):
        book.unloaded(book.add(settings(str(n))), cb.VersionState.FAILED)
    assert [each.name for each in book.all()] == ["2", "3"]
    with pytest.raises(cb.UnknownVersion, match="there are: '2', '3'"):
        book.find("0")


@pytest.mark.parametrize("wrong", [{"keep": -1, "history": 1}, {"keep": 1, "history": -1}])
def test_numbers_of_versions_are_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be a number of versions"):
        VersionBook(**wrong)


def test_settings_of_a_version_are_checked() -> None:
    wrong: Any = 42
    with pytest.raises(TypeError, match="load of version '1' is 42"):
        cb.ModelVersion("1", wrong)
    with pytest.raises(TypeError, match="unload of version '1' is 42"):
        cb.ModelVersion("1", lambda: None, unload=wrong)
    with pytest.raises(ValueError, match="is empty"):
        cb.ModelVersion("", lambda: None)
    with pytest.raises(ValueError, match="no golden items"):
        cb.ModelVersion("1", lambda: None, check=lambda a, b: True)


# -- canaries ----------------------------------------------------------------------------------------------------------


@given(
    ends=st.lists(st.booleans(), max_size=60),
    requests=st.integers(1, 40),
    rate=st.sampled_from([0.0, 0.05, 0.1, 0.5, 0.99]),
)
def test_a_trial_is_decided_as_soon_as_it_can_be(ends: list[bool], requests: int, rate: float) -> None:
    trial = Trial(cb.Canary(0.5, requests, rate))
    for n, failed in enumerate(ends, 1):
        trial.add(failed=failed)
        if sum(ends[:n]) > rate * requests:
            assert trial.passed is False
            return
        if n == requests:
            assert trial.passed is True
            return
        assert trial.passed is None


@pytest.mark.slow
@given(share=st.sampled_from([0.05, 0.3, 0.9, 1.0]), seed=st.integers(0, 5))
def test_a_share_of_the_requests_is_drawn_and_a_key_always_alike(share: float, seed: int) -> None:
    trial = Trial(cb.Canary(share, seed=seed))
    keys = [trial.draws(f"user {n}") for n in range(2000)]
    assert abs(sum(keys) / 2000 - share) < 0.06  # 5 standard deviations
    assert abs(sum(trial.draws(None) for _ in range(2000)) / 2000 - share) < 0.06
    assert keys == [Trial(cb.Canary(share, seed=seed)).draws(f"user {n}") for n in range(2000)]


@pytest.mark.parametrize(
    "wrong, text",
    [
        ({"share": 0}, "share"),
        ({"share": 1.5}, "share"),
        ({"requests": 0}, "requests"),
        ({"max_error_rate": 1}, "rate"),
    ],
)
def test_settings_of_a_canary_are_checked(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        cb.Canary(**wrong)


# -- golden items ------------------------------------------------------------------------------------------------------

SOME = np.arange(3, dtype="f4")


@pytest.mark.parametrize(
    "found, expected, text",
    [
        (SOME + 1, SOME, None),
        (1.5, 2.5, None),
        ("a", "b", None),
        ({"a": [SOME, 1]}, {"a": [SOME, 2]}, None),
        (np.float32("nan") * SOME, np.float32("nan") * SOME, None),
        (SOME[:2], SOME, r"the shape \(2,\), but \(3,\)"),
        (SOME.astype("f8"), SOME, "the dtype float64, but float32"),
        (1, 2.5, "the dtype int64, but float64"),
        (SOME + np.float32("inf"), SOME, "NaN or infinite"),
        (float("nan"), 1.0, "NaN or infinite"),
        (None, "b", "NoneType, but str"),
        ([1, 2], [1], "list of 2, but 1 items"),
        ({"a": 1}, {"b": 1}, "a mapping of"),
        ({"a": [1.0, float("inf")]}, {"a": [1.0, 1.0]}, r"the response\['a'\]\[1\] is NaN or infinite"),
    ],
)
def test_what_is_wrong_with_a_golden_response(found: Any, expected: Any, text: str | None) -> None:
    wrong = mismatch(found, expected)
    if text is None:
        assert wrong is None
    else:
        assert wrong is not None
        with pytest.raises(ValueError, match=text):
            raise ValueError(wrong)
