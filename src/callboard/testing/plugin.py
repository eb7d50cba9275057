"""pytest plugin, loaded by itself where callboard is installed: devices, faults, a clock, and a check for leftovers.

Fixtures:

* ``cpu_device``: an opened CPU device, thread isolation. Async: needs pytest-asyncio.
* ``device``: an opened device, once for each of ``cpu-thread``, ``cpu-process``, ``cuda-process`` and ``cuda-thread``.
  Async. Where CUDA cannot be used the last two are skipped with the reason, or failed with ``CALLBOARD_REQUIRE=cuda``.
* ``fault``: ``async with fault("host_killed", at=3) as dev`` (:func:`callboard.testing.faults.open_faulty`).
* ``clock``: a :class:`callboard.actors.ManualClock`, for ``cb.System(clock=clock)``.

After each test that uses one of the first three, host processes, descriptors, arenas and threads that it left behind
are an error. ``callboard_census = all`` in the ini file, or the mark ``leaves_nothing``, asks for that check where a
test opens devices by itself. Tests without pytest-asyncio open them in ``asyncio.run`` and use ``fault`` there.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # this module is imported by every pytest run where callboard is installed
    from callboard.actors import ManualClock
    from callboard.testing.faults import Faults

__all__ = ["clock", "fault"]

MARK = "leaves_nothing"
INI = "callboard_census"
OPENERS = frozenset({"cpu_device", "device", "fault"})


def pytest_addoption(parser: pytest.Parser) -> None:
    """The ini option."""
    parser.addini(
        INI, "check what tests of callboard leave behind: fixtures (default), all or none", default="fixtures"
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marks, and the async fixtures if a plugin can run them."""
    config.addinivalue_line("markers", f"{MARK}: no process, descriptor, arena or thread of callboard may be left")
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU")
    _rewrite_only_testing(config)
    if config.pluginmanager.hasplugin("asyncio"):
        from callboard.testing import async_fixtures

        config.pluginmanager.register(async_fixtures, "callboard-async")


def _rewrite_only_testing(config: pytest.Config) -> None:
    """Take the assertions of callboard's other modules as they are.

    pytest rewrites all modules of a distribution that has a plugin. A context host in a thread imports some of them
    while others are imported elsewhere, and before Python 3.11.8 ``ast.parse`` in two threads can fail (gh-106905).
    """
    marked: set[str] = getattr(config.pluginmanager.rewrite_hook, "_must_rewrite", set())
    if "callboard" in marked:
        marked.remove("callboard")
        marked.add("callboard.testing")


@pytest.fixture(autouse=True)
def _callboard_census(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check each test that uses a callboard fixture for leftovers.

    Autouse fixtures are set up first within their scope, so this one checks after the others, and the loop, have ended.
    """
    wanted = request.config.getini(INI)
    uses = not OPENERS.isdisjoint(request.fixturenames)
    if wanted == "none" or not (uses or wanted == "all" or request.node.get_closest_marker(MARK)):
        yield
        return
    from callboard.testing import census

    try:
        with census.nothing_left(census.PATIENCE):
            yield
            request.node.funcargs.clear()  # the other fixtures are finished; their values are not to live on in here
    except census.LeftBehind as e:
        pytest.fail(f"{request.node.name} has {e}", pytrace=False)


@pytest.fixture
def fault() -> "Faults":
    """Opens a device on which one thing goes wrong.

    ``async with fault("host_killed", at=3) as dev``; the kinds are those of
    :func:`callboard.testing.faults.open_faulty`.
    """
    from callboard.testing.faults import open_faulty

    return open_faulty


@pytest.fixture
def clock() -> "ManualClock":
    """A clock that stands still until ``clock.advance(seconds)``."""
    from callboard.actors import ManualClock

    return ManualClock()
