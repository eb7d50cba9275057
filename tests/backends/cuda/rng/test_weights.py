"""A fill by weights checks the status that its kernel leaves; host memory stands in for the device's."""

import ctypes
import re
import struct
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from callboard.backends.cuda.rng import elements as module
from callboard.core.dtype import DTYPES
from callboard.core.errors import NumericalError
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.rng import RngFillDiscrete

ALL_RIGHT = 2**64 - 1


class Device:
    """Its kernel leaves the verdict that it is told to."""

    def __init__(self, *verdict: float) -> None:
        self.kernels = self.driver = self
        self.verdict = struct.pack("<Qdd", *verdict)
        self.memory = np.zeros(4096, np.uint8)

    def get(self, source: str, name: str) -> str:
        assert (source, name) == ("rng_elements", "sums_f64")
        return name

    def launch_kernel(self, *arguments: Any) -> int:
        params = (ctypes.c_void_p * 4).from_address(ctypes.addressof(arguments[9]))
        weights, sums, verdict = (ctypes.c_void_p.from_address(params[i] or 0).value for i in range(3))
        assert weights == 99
        assert verdict == self.memory.ctypes.data
        assert sums == verdict + len(self.verdict)
        self.memory[: len(self.verdict)] = np.frombuffer(self.verdict, np.uint8)
        return 0

    def check(self, code: int, call: str) -> None:
        assert code == 0


class Plan:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.fill: Any = None

    def allocate(self, nbytes: int) -> int:
        assert nbytes == len(self.device.verdict) + 8 * 3
        return int(self.device.memory.ctypes.data)


class Stream:
    native = 3


def check(monkeypatch: pytest.MonkeyPatch, *verdict: float) -> None:
    monkeypatch.setattr(module, "philox", lambda *_: lambda *_: None)
    plan: Any = Plan(Device(*verdict))
    array = [Placeholder(layout_of(DTYPES[dtype], (3,))) for dtype in ("i32", "f64")]
    module.discrete(plan, RngFillDiscrete(out=array[0], weights=array[1]))
    status = plan.fill(Stream(), 5, 0, 0, 99)
    assert status.address == plan.device.memory.ctypes.data
    status.check(plan.device.memory[: status.nbytes].tobytes())


@pytest.mark.parametrize(
    "verdict, says",
    [
        ((2, -0.5, 7.0), r"weights\[2\] is -0\.5; every weight must be finite and >= 0"),
        ((0, np.nan, np.nan), r"weights\[0\] is nan;"),
        ((ALL_RIGHT, 0.0, 0.0), r"weights add up to 0\.0; one at least must be > 0"),
        ((ALL_RIGHT, 0.0, np.inf), r"weights add up to inf; divide them by the largest"),
    ],
)
def test_weights_that_are_none(monkeypatch: pytest.MonkeyPatch, verdict: tuple[Any, ...], says: str) -> None:
    with pytest.raises(NumericalError, match=rf"rng\.fill_discrete: {says}"):
        check(monkeypatch, *verdict)


def test_weights_that_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    check(monkeypatch, ALL_RIGHT, 0.0, 2.5)


def test_the_kernel_lays_its_verdict_out_so() -> None:
    source = (files("callboard.backends.cuda") / "data" / "rng_elements.cu").read_text()
    body = re.search(r"struct Verdict \{(.*?)\};", source, re.DOTALL)
    assert body
    assert re.findall(r"(u64|double) (\w+);", body[1]) == [("u64", "wrong"), ("double", "value"), ("double", "total")]
    assert module.OUTCOME.format == "<Qdd"
