"""Random programs of calls: whatever is cancelled, fails, stops or is killed, each call ends once and as it should."""

import asyncio
import contextlib
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.device.residents.conftest import PLACES
from tests.device.residents.programs import run
from tests.device.residents.recorder import LARGE, LARGER, SMALL

import callboard as cb

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.timeout(300)]

Program = list[tuple[Any, ...]]

actors = st.integers(0, 1)
arrays = st.integers(0, 1)
maybe = st.none() | arrays
sizes = st.sampled_from([SMALL, LARGE, LARGER])
few = st.integers(0, 3)

STEPS: list[st.SearchStrategy[tuple[Any, ...]]] = [
    st.tuples(st.just("short"), actors),
    st.tuples(st.just("calls"), actors, st.integers(1, 5)),
    st.tuples(st.just("block"), actors, maybe, st.booleans()),
    st.tuples(st.just("open")),
    st.tuples(st.just("array"), actors, sizes),
    st.tuples(st.just("keep"), actors, sizes),
    st.tuples(st.just("write"), actors, arrays),
    st.tuples(st.just("computed"), actors, arrays),
    st.tuples(st.just("fail"), actors, st.sampled_from(["answer", "resume", "restart", "exit"]), maybe),
    st.tuples(st.just("late"), actors, st.sampled_from([0, SMALL, LARGE]), maybe),
    st.tuples(st.just("fill"), arrays, st.integers(0, 9)),
    st.tuples(st.just("read"), arrays),
    st.tuples(st.just("cancel"), few),
    st.tuples(st.just("expire"), few),
    st.tuples(st.just("stream"), actors, st.integers(0, 8), st.sampled_from([0, SMALL, LARGE]), few),
    st.tuples(st.just("take"), few, st.integers(1, 4)),
    st.tuples(st.just("leave"), few, st.sampled_from(["close", "drop"])),
    st.tuples(st.just("stop"), actors),
    st.tuples(st.just("again"), actors),
    st.tuples(st.just("meet")),
    st.tuples(st.just("finish")),
]
KILL = st.tuples(st.just("kill"), st.booleans())


def programs(*more: st.SearchStrategy[tuple[Any, ...]]) -> st.SearchStrategy[Program]:
    return st.lists(st.one_of(*STEPS, *more), min_size=5, max_size=40)


PLAIN, ALL = 100, 1000
"""Programs that a plain run draws, and that all tests draw."""

KILLS, ALL_KILLS = 20, 200
"""Likewise, of those that kill hosts."""

APART, ALL_APART = 4, 40
"""Likewise, of those where an actor has a process of its own, which takes a while to start."""


class Runs:
    """Runs programs, each in a folder of its own, on a device for all of them.

    Args:
        backend: Of the device.
        place: Where the context lives.
        apart: Actors that get a process of their own.
    """

    def __init__(self, backend: str, place: str, apart: Collection[str]) -> None:
        self._backend = backend
        self._apart = apart
        self._place = place
        self._runner = asyncio.Runner()
        self._stack = contextlib.AsyncExitStack()
        self._dev: cb.Device | None = None

    def __call__(self, program: Program) -> None:
        with tempfile.TemporaryDirectory() as folder:
            try:
                self._runner.run(self._run(program, Path(folder)))
            except BaseException:  # the next one does not find what this one has left
                self._runner.run(self._leave())
                raise

    async def _run(self, program: Program, folder: Path) -> None:
        if self._dev is None:
            opening = cb.device(self._backend, close_timeout=5.0, max_restarts=None, **PLACES[self._place])
            self._dev = await self._stack.enter_async_context(opening)
        await run(program, self._dev, folder, self._apart)

    async def _leave(self) -> None:
        self._dev = None
        await self._stack.aclose()

    def close(self) -> None:
        """Close the device."""
        self._runner.run(self._leave())
        self._runner.close()


@pytest.fixture
def apart() -> Collection[str]:
    return ()


@pytest.fixture
def runs(backend: str, place: str, apart: Collection[str]) -> Iterator[Runs]:
    made = Runs(backend, place, apart)
    yield made
    made.close()


def drawn(examples: int) -> settings:
    return settings(max_examples=examples, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("place", ["thread", "loop"])
@drawn(PLAIN)
@given(program=programs())
def test_calls_end_once_and_as_they_should(runs: Runs, program: Program) -> None:
    runs(program)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("place", ["thread", "loop"])
@drawn(ALL)
@given(program=programs())
def test_more_calls_end_once_and_as_they_should(runs: Runs, program: Program) -> None:
    runs(program)


@pytest.mark.fault
@pytest.mark.parametrize("place", ["process"])
@drawn(KILLS)
@given(program=programs(KILL))
def test_calls_end_likewise_while_hosts_are_killed(runs: Runs, program: Program) -> None:
    runs(program)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.fault
@pytest.mark.parametrize("place", ["process"])
@drawn(ALL_KILLS)
@given(program=programs(KILL))
def test_more_calls_end_likewise_while_hosts_are_killed(runs: Runs, program: Program) -> None:
    runs(program)


@pytest.mark.slow
@pytest.mark.parametrize("apart", [("one",)])
@pytest.mark.parametrize("place", ["thread"])
@drawn(APART)
@given(program=programs())
def test_calls_end_likewise_in_a_process_of_their_own(runs: Runs, program: Program) -> None:
    runs(program)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("apart", [("one",), ("one", "two")])
@pytest.mark.parametrize("place", ["thread", "loop"])
@drawn(ALL_APART)
@given(program=programs())
def test_more_calls_end_likewise_in_processes_of_their_own(runs: Runs, program: Program) -> None:
    runs(program)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.fault
@pytest.mark.parametrize("apart", [("one",)])
@pytest.mark.parametrize("place", ["process"])
@drawn(ALL_APART)
@given(program=programs(KILL))
def test_more_calls_end_likewise_there_while_the_devices_host_is_killed(runs: Runs, program: Program) -> None:
    runs(program)
