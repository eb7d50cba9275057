"""Cases left out of a plain run: slow tests and most repeats; none if tests are named, or with ``--all``."""

import itertools
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests import thorough

CONFTEST = """
import sys
sys.path.insert(0, {root!r})
from tests import early, thorough

def pytest_addoption(parser):
    thorough.add_option(parser)

def pytest_configure(config):
    config.pluginmanager.register(thorough, "thorough")
    config.pluginmanager.register(early, "early")
    config.addinivalue_line("markers", "slow: takes long")
"""
TESTS = """
import pytest

@pytest.mark.slow
def test_slow(): pass

def test_quick(): pass

@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("session", ["library:cpu", "thread:cpu"])
def test_conforms(session, number): pass
"""


class Case:
    """As much of an item as the rule reads."""

    def __init__(
        self,
        function: str,
        number: int,
        session: str | None,
        slow: bool = False,
        few: int | None = None,
        place: str | None = None,
        indices: dict[str, int] | None = None,
    ) -> None:
        self.path = Path("test_x.py")
        self.originalname = self.name = function
        self.number = number
        self.callspec = SimpleNamespace(params={"session": session} if session else {}, indices=indices or {})
        if place is not None:
            self.callspec.params |= {"isolation": place, "size": number}
        self.slow = slow
        self.few = few

    def get_closest_marker(self, name: str) -> object:
        if name == "few" and self.few is not None:
            return SimpleNamespace(args=(self.few,))
        return self if self.slow and name == "slow" else None


def kept_of(items: list[Any]) -> list[Any]:
    out = thorough.left_out(items)
    return [item for item in items if item not in out]


def test_a_test_runs_once_on_one_of_the_sessions_that_repeat_others() -> None:
    sessions = ("library:cpu", *thorough.REPEATS, "process:cuda", None)
    names = [f"test_{i}" for i in range(40)]
    items: list[Any] = [Case(name, i, session) for name in names for i in range(thorough.MOST) for session in sessions]
    kept = kept_of(items)
    repeats = [case for case in kept if case.callspec.params.get("session") in thorough.REPEATS]
    assert [case.originalname for case in repeats] == names
    assert {case.callspec.params["session"] for case in repeats} == set(thorough.REPEATS)
    assert len({case.number for case in repeats}) == thorough.MOST
    suites = [case for case in items if case.callspec.params.get("session") in ("library:cpu", "process:cuda")]
    assert [case for case in kept if case.callspec.params.get("session") in ("library:cpu", "process:cuda")] == suites
    others = [case for case in kept if not case.callspec.params]
    assert [case.originalname for case in others] == names
    assert len({case.number for case in others}) == thorough.MOST
    assert kept_of(kept) == kept


def test_a_case_runs_in_one_of_its_places() -> None:
    names = [f"test_{i}" for i in range(40)]
    items: list[Any] = [
        Case(name, i, None, place=place) for name in names for i in range(2) for place in ("thread", "process")
    ]
    kept = kept_of(items)
    assert [case.originalname for case in kept] == names
    assert {case.number for case in kept} == {0, 1}
    places = Counter(case.callspec.params["isolation"] for case in kept)
    assert 0 < places["process"] < places["thread"]


def test_of_a_test_with_very_many_cases_each_session_keeps_some() -> None:
    items: list[Any] = [Case("f", i, session) for i in range(450) for session in ("library:cpu", None)]
    items += [Case("few", i, None, few=120) for i in range(300)]
    kept = kept_of(items)
    for session, most in (("library:cpu", thorough.MOST), (None, 1)):
        numbers = [c.number for c in kept if c.originalname == "f" and c.callspec.params.get("session") == session]
        assert len(numbers) == most
        assert most == 1 or numbers == [i * 450 // most for i in range(most)]
    assert sum(c.originalname == "few" for c in kept) == 120


def test_of_several_parameters_every_value_is_kept_if_there_is_room() -> None:
    sizes = {"dtype": 6, "layout": 3, "side": 2}
    places: Any = itertools.product(*map(range, sizes.values()))
    items = [Case("f", i, None, few=6, indices=dict(zip(sizes, at, strict=True))) for i, at in enumerate(places)]
    kept = kept_of(items)
    assert len(kept) == 6
    for name, size in sizes.items():
        assert Counter(case.callspec.indices[name] for case in kept) == dict.fromkeys(range(size), 6 // size)
    assert kept_of(items) == kept


def test_slow_tests_are_left_out() -> None:
    slow: Any = Case("f", 0, None, slow=True)
    assert thorough.left_out([slow, Case("g", 0, None)]) == {slow}


def test_of_tests_with_many_costly_cases_few_are_kept() -> None:
    items: list[Any] = [Case("f", i, session, few=2) for i in range(9) for session in (None, "library:cpu")]
    kept = kept_of(items)
    assert [(c.number, c.callspec.params.get("session")) for c in kept] == [
        (number, session) for number in (0, 4) for session in (None, "library:cpu")
    ]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "options, passed, left",
    [([], 4, 8), (["-n", "1"], 4, 8), (["--all"], 12, 0), (["tests"], 12, 0), (["-k", "slow"], 0, 1)],
    ids=["plain", "a worker", "--all", "named", "-k"],
)
def test_a_run_says_how_many_it_leaves(tmp_path: Path, options: list[str], passed: int, left: int) -> None:
    if "-n" in options:
        pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    (tmp_path / "tests").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST.format(root=str(Path(__file__).parents[1])))
    (tmp_path / "tests" / "test_x.py").write_text(TESTS)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50, check=False
    )
    told = done.stdout + done.stderr
    found = re.search(r"^(\d+) cases: slow ones", told, re.MULTILINE)
    assert (0 if found is None else int(found[1])) == left, told
    assert (f"{passed} passed" in told) == (passed > 0), told
