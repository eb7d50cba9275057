"""CUDA launches that no test of this run executed: listed at the end, so that none is silently untested.

The tests in ``tests/backends/cuda`` run CUDA's libraries on stand-ins for the driver and the vendors' libraries, which
execute on host memory. Each notes the ops whose launch went through; its report carries them from xdist's workers too.
Nothing is listed where a GPU was used, or where the stand-ins were not all asked for.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import gpu_cases

from callboard.core import registry
from callboard.core.op import info_of

STAND_INS = Path(__file__).parent / "backends" / "cuda"
LAUNCHED = "cuda_launches"
"""Name of the user property of a report."""
LEFT_OUT = "stand_ins_left_out"
"""Under it, a worker of xdist says how many of these tests it has deselected; all of them collect the same."""


def cuda_ops() -> list[str]:
    """The tags of the ops that the CUDA backend launches."""
    libraries = registry.backend("cuda").libraries()
    ops = [op for library in libraries.values() for op in library.launch_table]
    return sorted(info_of(op).tag for op in ops if op.__module__.startswith("callboard."))


def listing(ops: Iterable[str], launched: Collection[str]) -> str | None:
    """The ops that were not launched, by library; None where there are none."""
    missing: dict[str, list[str]] = {}
    for tag in ops:
        if tag not in launched:
            library, _, op = tag.partition(".")
            missing.setdefault(library, []).append(op)
    number = sum(map(len, missing.values()))
    named = "; ".join(f"{library}: {', '.join(names)}" for library, names in missing.items())
    return f"GPU only, not run here: {number} launches ({named})" if missing else None


class GpuOnly:
    """The plugin.

    Args:
        config: Of the run.
        folder: Where the tests on stand-ins are.
    """

    def __init__(self, config: pytest.Config, folder: Path = STAND_INS) -> None:
        self.config = config
        self.folder = folder
        self.launched: set[str] = set()
        self.left_out = 0
        self._within = f"{folder}{os.sep}"

    def _is_mine(self, item: pytest.Item) -> bool:
        return str(item.path).startswith(self._within) and item.get_closest_marker("gpu") is None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        if not self._is_mine(item):
            return (yield)
        from callboard.testing.session import LibrarySession

        launched: set[str] = set()
        submit = LibrarySession.submit

        def noted(session: LibrarySession, op: Any) -> Any:
            answer = submit(session, op)  # raises where it was refused or failed: then it was not executed
            if session.backend.name.startswith("cuda"):
                launched.add(info_of(type(op)).tag)
            return answer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LibrarySession, "submit", noted)
            try:
                return (yield)
            finally:
                item.user_properties.append((LAUNCHED, sorted(launched)))

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self.left_out += sum(map(self._is_mine, items))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.launched.update(dict(report.user_properties).get(LAUNCHED, ()))

    def pytest_sessionfinish(self) -> None:
        output: dict[str, Any] | None = getattr(self.config, "workeroutput", None)
        if output is not None:
            output[LEFT_OUT] = self.left_out

    @pytest.hookimpl(optionalhook=True)  # of xdist
    def pytest_testnodedown(self, node: Any) -> None:
        self.left_out = getattr(node, "workeroutput", {}).get(LEFT_OUT, self.left_out)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if gpu_cases.LEFT_OUT not in self.config.stash or not self.launched or not self._is_whole():
            return
        told = listing(cuda_ops(), self.launched)
        if told is not None:
            left = f" ({self.left_out} tests on stand-ins were not selected)" if self.left_out else ""
            terminalreporter.write_line(f"{told}{left}")

    def _is_whole(self) -> bool:
        """Whether all tests on stand-ins were asked for; ``-m`` may have left out some of them."""
        here = self.config.invocation_params.dir
        folders = [(here / argument).resolve() for argument in self.config.args]
        narrowed = self.config.getoption("keyword", "") or self.config.getoption("lf", False)
        return not narrowed and any(self.folder.resolve().is_relative_to(folder) for folder in folders)
