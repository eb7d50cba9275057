"""A long Python loop over the elements of a ref warns once, with the cure."""

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.core.ref import looping
from callboard.core.ref.looping import elements


def ticking(step: float) -> Callable[[], float]:
    """A clock that advances each time it is read."""
    times = itertools.count()
    return lambda: next(times) * step


@pytest.fixture
def ref() -> Any:
    with cb.sync.device("cpu", standby=None) as dev:
        yield dev.array(np.arange(3000.0))


def test_a_long_loop_warns_once_and_names_the_cure(ref: Any) -> None:
    with pytest.warns(RuntimeWarning, match=r"compute there, as xp\.max\(x\) does, .*`x\.get\(\)`") as told:
        count = sum(1 for _ in elements(ref, ticking(0.002)))  # 4 s after 2000 elements
    assert (count, len(told)) == (3000, 1)
    assert told[0].filename == __file__
    assert "a Python loop over <GpuRef f64[3000] on" in str(told[0].message)  # pending or ready: by chance
    assert "has taken 4 s for 2000 of 3000 elements" in str(told[0].message)


def test_elements_are_those_of_the_array_before_and_after_the_warning(ref: Any) -> None:
    with pytest.warns(RuntimeWarning):
        found = [x.offset // 8 for x in elements(ref, ticking(0.002))]
    assert found == list(range(3000))


@pytest.mark.parametrize("step", [0.001, 0.1], ids=["short", "work"])
def test_other_loops_do_not_warn(ref: Any, step: float) -> None:
    """Neither a short loop, nor one in which the work for each element takes the time."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sum(1 for _ in elements(ref, ticking(step))) == 3000


def test_builtins_loop_with_the_clock(ref: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ticking(0.002)
    monkeypatch.setattr(looping, "now", clock)
    with pytest.warns(RuntimeWarning, match="a Python loop over") as told:
        list(ref)
    assert len(told) == 1


def test_lines_are_no_elements(ref: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looping, "now", ticking(0.002))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sum(1 for _ in ref.reshape(3000, 1)) == 3000


async def test_in_asyncio_the_cure_is_awaited() -> None:
    async with cb.device("cpu", standby=None) as dev:
        with pytest.warns(RuntimeWarning, match=r"`await x\.get\(\)`"):
            for _ in elements(dev.array(np.arange(3000.0)), ticking(0.002)):
                pass
