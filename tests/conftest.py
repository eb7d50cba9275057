"""Shared by all tests: bounded BLAS threads, hypothesis profiles, stacks on demand.

Fixtures come from the plugin, ``callboard.testing.plugin``.
"""

import faulthandler
import gc
import os
import signal
import sys
import time
from collections.abc import Generator, Iterator

# One BLAS thread per process: the tests run many processes on few cores. Set before NumPy is imported where possible
# (children and xdist workers inherit it); `_one_blas_thread` limits what was loaded earlier.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import hypothesis  # noqa: E402
import pytest  # noqa: E402
import threadpoolctl  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from hypothesis.internal.conjecture import providers  # noqa: E402
from tests import early, gpu_cases, gpu_only, letters, rewritten, thorough  # noqa: E402

from callboard.device.client import handle  # noqa: E402
from callboard.testing import census, plugin  # noqa: E402

LONG = 0.1
"""Seconds of a collection of garbage."""
_began, _was_long = 0.0, False

# No deadline: on a shared machine the time of one example says nothing. `derandomize`: the same examples each time.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=30, derandomize=True, print_blob=True)

st.register_type_strategy(str, st.text(letters.LETTERS))


def pytest_addoption(parser: pytest.Parser) -> None:
    thorough.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.is_registered(plugin):  # a source tree on the path, without its entry points
        config.pluginmanager.register(plugin, "callboard")
    census.PATIENCE = 20.0  # seconds: an overloaded machine ends a thread late
    handle.CONTROL_TIMEOUT = 30.0  # and starts a host late, which has to be there for an answer
    config.pluginmanager.register(gpu_cases, "gpu-cases")
    config.pluginmanager.register(gpu_only.GpuOnly(config), "gpu-only")
    config.pluginmanager.register(thorough, "thorough")
    config.pluginmanager.register(early, "early")
    config.pluginmanager.register(rewritten, "rewritten")
    if not config.getoption("--hypothesis-profile", default=None):
        hypothesis.settings.load_profile("ci" if os.environ.get("CI") == "true" else "default")
    if thorough.is_plain(config):  # to draw constants of all sources, each worker would parse them for six seconds
        vars(providers)["is_local_module_file"] = lambda _: False
    # pytest has enabled faulthandler for crashes; `kill -USR1 <pid>` also shows where a test is that seems to hang.
    if hasattr(signal, "SIGUSR1") and sys.__stderr__ is not None:
        faulthandler.register(signal.SIGUSR1, file=sys.__stderr__, all_threads=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test leaves nothing behind; what fixtures of a module open, they open at first use and keep.

    Slow tests come first: at the end of a run one of them would keep its worker while the other has nothing to do.
    """
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    for item in items:
        if "session" not in getattr(item, "fixturenames", ()):
            item.add_marker(plugin.MARK)


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Leave garbage alone while tests are collected: nearly all that is made lives to the end."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep what was collected out of the many collections of garbage that tests ask for."""
    gc.enable()
    gc.freeze()
    gc.callbacks.append(_note_long_collections)


def pytest_runtest_setup() -> None:
    """Keep out what has come since then, too, once a collection takes long: caches, reports, what tests import."""
    global _was_long
    if _was_long:
        gc.collect()
        gc.freeze()
        _was_long = False


def _note_long_collections(phase: str, info: dict[str, int]) -> None:
    global _began, _was_long
    if phase == "start":
        _began = time.thread_time()
    elif time.thread_time() - _began > LONG:
        _was_long = True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Half surrogate pairs that a test has logged are escaped: pytest-xdist cannot send them."""
    report = yield
    report.sections = [(title, text.encode(errors="backslashreplace").decode()) for title, text in report.sections]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what tests measured with ``record_property("measured", text)``; it reaches here from xdist workers too."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
    lines = sorted(text for report in reports for name, text in report.user_properties if name == "measured")
    if lines:
        terminalreporter.section("measured")
        for line in lines:
            terminalreporter.write_line(str(line))


@pytest.fixture(scope="session", autouse=True)
def _one_blas_thread() -> Iterator[None]:
    with threadpoolctl.threadpool_limits(1):
        yield
