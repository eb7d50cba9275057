"""Cases marked ``gpu`` where no GPU can be used: left out before they run, and counted, with the reason.

They are nearly half of all cases: skipping them one by one, each with its reports, takes longer than finding out once.
With ``CALLBOARD_REQUIRE=cuda`` they stay, and fail.
"""

import functools
import os
from typing import Any

import pytest

from callboard.core import registry
from callboard.core.errors import BackendUnavailable

LEFT_OUT = pytest.StashKey[tuple[int, str]]()
OUTPUT = "gpu_cases_left_out"
"""Under it, a worker of xdist says what it has left out; all of them collect the same."""


def keep(config: pytest.Config, items: list[pytest.Item], least: int = 0) -> list[pytest.Item]:
    """The items that can run, or ``least`` of all; the others are counted."""
    cases = [item for item in items if item.get_closest_marker("gpu")]
    reason = _why_not() if cases else None
    if reason is None:
        return items
    cases = cases[max(0, least - (len(items) - len(cases))) :]
    if cases:
        config.hook.pytest_deselected(items=cases)
        _remember(config, len(cases) + config.stash.get(LEFT_OUT, (0, ""))[0], reason)
    out = set(cases)
    return [item for item in items if item not in out]


@functools.cache
def _why_not() -> str | None:
    if os.environ.get("CALLBOARD_REQUIRE") == "cuda":
        return None
    try:
        registry.resolve("cuda")
    except BackendUnavailable as e:
        return str(e)
    return None


@pytest.hookimpl(trylast=True)  # behind -k and -m: what those have taken away is not missing
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items[:] = keep(config, items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None and LEFT_OUT in session.config.stash:
        output[OUTPUT] = session.config.stash[LEFT_OUT]


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_testnodedown(node: Any) -> None:
    said = getattr(node, "workeroutput", {}).get(OUTPUT)  # a worker that crashed has no output
    if said is not None:
        _remember(node.config, *said)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if LEFT_OUT in config.stash:
        number, reason = config.stash[LEFT_OUT]
        terminalreporter.section("left out")
        terminalreporter.write_line(f"{number} cases for a GPU: {reason}")


def _remember(config: pytest.Config, number: int, reason: str) -> None:
    config.stash[LEFT_OUT] = (number, reason)
