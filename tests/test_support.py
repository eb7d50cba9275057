"""``cb.supports``: declared support of a backend for an op, without executing it."""

import pytest

import callboard as cb
from callboard.backends.cpu.device import CpuBackend
from callboard.core import registry
from callboard.core.library import Library
from callboard.kernel.blas import Gemm, Nrm2


class Small(CpuBackend):
    """No BLAS."""

    name = "small"

    def libraries(self) -> dict[str, type[Library]]:
        return {stem: cls for stem, cls in super().libraries().items() if stem != "blas"}


def test_what_the_cpu_does() -> None:
    assert cb.supports(Gemm, device="cpu")
    assert cb.supports(Gemm, "f32", "cpu")
    assert cb.supports(Nrm2, "f32", "cpu:0")
    for op in (Gemm, Nrm2):
        assert not cb.supports(op, "bool", "cpu")
    assert cb.supports(Gemm, "i8", "cpu")
    assert not cb.supports(Gemm, "f8_e4m3", "cpu")
    with pytest.raises(cb.BackendUnavailable):
        cb.supports(Gemm, "f32", "cpu:9")


async def test_an_open_device_is_asked_by_its_handle() -> None:
    undo = registry.register("small", Small())
    try:
        async with cb.device("small", isolation="thread") as small, cb.device("cpu", isolation="thread") as cpu:
            assert not cb.supports(Gemm, "f32", small)
            assert cb.supports(Gemm, "f32", cpu)
    finally:
        undo()


def test_a_blocking_device_too() -> None:
    with cb.sync.device("cpu", isolation="thread") as cpu:
        assert cb.supports(Gemm, "f32", cpu)
