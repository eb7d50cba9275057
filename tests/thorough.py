"""Cases that a plain run leaves to ``scripts/test --all``: ``slow`` tests, and cases that repeat another's work.

A plain run is one that names no tests. Of the conformance suites it executes the cases on the CPU's libraries, and of
each test one on another session, behind a host or as a recording, which changes from test to test. Of a test marked
``few(n)`` it takes n cases, of any other of a conformance suite two at most, evenly spread over the values of its
parameters, and of the rest one, which changes from test to test. A test for several places of a context (a thread, a
process, the loop) runs in one of them, and the next test in another; a quarter of these tests run in a process, whose
start takes longer than most of them.
Tests that draw examples, and state machines, draw a third of them. What is left out is counted.
"""

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import hypothesis
import pytest

REPEATS = ("thread:cpu", "process:cpu", "node:cpu", "recorded:cpu")
"""Sessions that compute on the CPU what ``library:cpu`` does, behind a host and a wire, or as recordings."""
MOST = 2
"""Cases of a test of a conformance suite that a plain run executes, for each session."""
PLACES = frozenset({"thread", "process", "loop", "host_fn", "polled"})
"""Parameters that say where a context is, or how it finds out that work is done."""
PROCESS = "process"
PER_PROCESS = 4
"""Of so many tests that are there for a process and other places, a plain run executes one in the process."""
SETTINGS = "_hypothesis_internal_use_settings"
"""Where hypothesis keeps the settings of a test; there is no public way to change them for a run."""
LEFT_OUT = pytest.StashKey[int]()
OUTPUT, PLAIN = "cases_for_all", "plain_run"
"""What a worker of xdist tells the controller, and is told by it."""


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="leave nothing to another run: slow tests, every session")


def is_plain(config: pytest.Config) -> bool:
    told: dict[str, Any] | None = getattr(config, "workerinput", None)
    if told is not None:
        return bool(told[PLAIN])
    return not config.getoption("--all") and config.args_source is not pytest.Config.ArgsSource.ARGS


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_configure_node(node: Any) -> None:
    node.workerinput[PLAIN] = is_plain(node.config)


def left_out(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The items that a plain run leaves out."""
    out: set[pytest.Item] = set()
    groups: defaultdict[tuple[Any, ...], list[pytest.Item]] = defaultdict(list)  # by test, session and cases to keep
    repeats: defaultdict[tuple[Any, ...], list[pytest.Item]] = defaultdict(list)  # by test
    elsewhere = in_other_places(items)
    for item in items:
        callspec = getattr(item, "callspec", None)
        session = None if callspec is None else callspec.params.get("session")
        few = item.get_closest_marker("few")
        if item.get_closest_marker("slow") or item in elsewhere:
            out.add(item)
        elif session in REPEATS:
            repeats[item.path, getattr(item, "originalname", item.name)].append(item)
        elif callspec is not None:
            most = 1 if session is None else MOST
            number = most if few is None else few.args[0]
            groups[item.path, getattr(item, "originalname", item.name), session, number].append(item)
    for (_, name, _, number), cases in groups.items():
        if len(cases) > number:
            out |= set(cases) - ({one_of(cases, name)} if number == 1 else set(spread(cases, number)))
    for (_, name), cases in repeats.items():
        out |= set(cases) - {one_of(cases, name)}
    return out


def spread(cases: list[pytest.Item], number: int) -> list[pytest.Item]:
    """As many of the cases, evenly spread; of several parameters, each takes the values that fewest others have."""
    even = [i * len(cases) // number for i in range(number)]
    rest = sorted(set(range(len(cases))) - set(even))
    values = {i: _values(cases[i]) for i in even + rest}
    taken: list[int] = []
    times: Counter[tuple[str, int]] = Counter()  # that a value was taken
    while len(taken) < number:
        taken.append(min(values, key=lambda i: sum(times[value] for value in values[i])))  # the first of several
        times.update(values.pop(taken[-1]))
    return [cases[i] for i in sorted(taken)]


def _values(case: pytest.Item) -> list[tuple[str, int]]:
    """Which value of each parameter a case has, if some cases of its test share one."""
    return list(getattr(case, "callspec").indices.items())  # noqa: B009 -- unknown to mypy


def one_of(cases: list[pytest.Item], name: str) -> pytest.Item:
    """One case of a test, the same in every run, and of other tests others."""
    return cases[zlib.crc32(name.encode()) % len(cases)]


def in_other_places(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Of each case that is there for several places, all but one."""
    groups: defaultdict[tuple[Any, str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        callspec = getattr(item, "callspec", None)
        params = {} if callspec is None else callspec.params
        others = {name: value for name, value in params.items() if not (isinstance(value, str) and value in PLACES)}
        if len(others) < len(params) and not item.get_closest_marker("slow"):
            groups[item.path, getattr(item, "originalname", item.name), repr(others)].append(item)
    out: set[pytest.Item] = set()
    for (_, name, _), cases in groups.items():
        out |= set(cases) - {_in_a_place(cases, name)}
    return out


def _in_a_place(cases: list[pytest.Item], name: str) -> pytest.Item:
    processes = [case for case in cases if PROCESS in getattr(case, "callspec").params.values()]  # noqa: B009 -- as below
    others = [case for case in cases if case not in processes]
    chosen = processes if zlib.crc32(name.encode()) % PER_PROCESS == 0 else others
    return one_of(chosen or cases, name)


def keep(config: pytest.Config, items: list[pytest.Item], least: int = 0) -> list[pytest.Item]:
    """The items of this run, or ``least`` of all; the others are counted."""
    if not is_plain(config):
        return items
    chosen = left_out(items)
    kept = [item for item in items if item not in chosen] or items[:least]
    out = chosen.difference(kept)
    if out:
        config.hook.pytest_deselected(items=[item for item in items if item in out])
        config.stash[LEFT_OUT] = config.stash.get(LEFT_OUT, 0) + len(out)
    return kept


@pytest.hookimpl(trylast=True)  # behind -k and -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items[:] = keep(config, items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A third of the examples in a plain run, and on sessions that repeat others: theirs is the way there and back."""
    test = getattr(item, "function", None)
    is_machine = hasattr(test, "_hypothesis_state_machine_class")
    owner, name = (getattr(item, "cls"), "settings") if is_machine else (test, SETTINGS)  # noqa: B009 -- unknown to mypy
    settings: hypothesis.settings | None = getattr(owner, name, None)
    callspec = getattr(item, "callspec", None)
    repeats = callspec is not None and callspec.params.get("session") in REPEATS
    if settings is None or not (repeats or is_plain(item.config)):
        return (yield)
    setattr(owner, name, hypothesis.settings(settings, max_examples=-(-settings.max_examples // 3)))
    try:
        return (yield)
    finally:
        setattr(owner, name, settings)


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[OUTPUT] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_testnodedown(node: Any) -> None:
    number = getattr(node, "workeroutput", {}).get(OUTPUT)  # a worker that crashed has no output
    if number:
        node.config.stash[LEFT_OUT] = number


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if LEFT_OUT in config.stash:
        terminalreporter.section("left to scripts/test --all")
        terminalreporter.write_line(f"{config.stash[LEFT_OUT]} cases: slow ones, and repeats on other sessions")
