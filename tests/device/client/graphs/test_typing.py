"""Recordings type-check in user code, and wrong code does not, in both checkers."""

from pathlib import Path

import pytest
from tests.checkers import CHECKERS, judge

import callboard as cb
from callboard.core.mode import Blocking

GOOD = """
from typing import Any, assert_type

import numpy as np

import callboard as cb
from callboard.kernel.blas import Dot, Gemm


async def replays(dev: cb.Device, a: cb.GpuRef) -> None:
    with dev.record(x=a) as recording:
        b = dev.blas.gemm(a, a)
        one = recording.returns(b)
        two = recording.returns(a, b)
    assert_type(one.replay(), cb.GpuRef)
    assert_type(one.replay(3, x=a), cb.GpuRef)
    assert_type(one.replay(x=np.ones((2, 2), "f4")), cb.GpuRef)
    assert_type(one.clone().replay(x=[[1.0]]), cb.GpuRef)
    assert_type(two.replay(), tuple[cb.GpuRef, ...])
    first, second = two.replay()
    assert_type(await first, cb.GpuRef)
    assert_type(await one.prepare(x=a), None)
    assert_type(await one.replay_while(a, most=9, every=3, x=a), int)
    assert_type(await one.stats(), cb.RecordingStats)


async def without_results(dev: cb.Device, a: cb.GpuRef) -> None:
    with dev.record() as recording:
        dev.blas.scal(a, alpha=2.0)
    assert_type(recording.replay(), cb.Reply[None])
    assert_type(await recording.replay(100), None)


def messages(dev: cb.Device, a: cb.GpuRef) -> None:
    assert_type(dev.record(Gemm(a=a, b=a), Gemm(a=a, b=a), x=a).replay(x=a), cb.GpuRef)
    assert_type(dev.record(Dot(x=a, y=a)).replay(), cb.GpuRef | tuple[cb.GpuRef, ...] | cb.Reply[None])


def any_recording(recording: cb.Recording, dev: cb.Device, a: cb.GpuRef) -> None:
    any_recording(dev.record(Gemm(a=a, b=a)), dev, a)
    with dev.record() as begun:
        any_recording(begun.returns(a, a), dev, a)
    recording.close()


def blocking(dev: cb.sync.Device, a: cb.sync.Ref) -> None:
    with dev.record(x=a) as recording:
        step = recording.returns(dev.blas.gemm(a, a))
    assert_type(step.replay(x=a).get(), "np.ndarray[Any, Any]")
    assert_type(step.replay_while(a, most=9), int)
    assert_type(step.stats(), cb.RecordingStats)
    assert_type(step.prepare().result(), None)
"""

BAD = """
import callboard as cb
from callboard.kernel.blas import Gemm


def replays(dev: cb.Device, a: cb.GpuRef, b: cb.sync.Ref) -> None:
    dev.record(x=b)  # E
    with dev.record(x=a) as recording:
        one = recording.returns(a)
        recording.returns(b)  # E
        recording.returns("a")  # E
    one.replay("2")  # E
    one.replay(x=None)  # E
    one.replay().shap  # E
    recording.replay().get()  # E
    one.prepare().get()  # E
    text: str = dev.record(Gemm(a=a, b=a)).replay()  # E
    recording.returns(a, a).replay().get()  # E
    one.replay_while(b, most=3)  # E
"""


@pytest.mark.typing
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("checker", CHECKERS)
def test_good_passes_and_bad_does_not(tmp_path: Path, checker: str) -> None:
    judge(checker, tmp_path, GOOD, BAD)


def test_returns_gives_the_recording_and_its_class_takes_one_parameter_or_two() -> None:
    with cb.sync.device("cpu") as dev:
        a = dev.zeros((2, 2))
        with dev.record() as recording:
            assert recording.returns(dev.blas.gemm(a, a)) is recording
        assert recording.replay().shape == (2, 2)
    for given in (cb.Recording[Blocking], cb.Recording[Blocking, cb.GpuRef]):
        assert given.__origin__ is cb.Recording
