"""Devices of PyTorch: which there are, what they compute with, and what follows a loss."""

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.core import registry
from callboard.core.errors import BackendUnavailable, NumericalError, ShapeError

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

SOURCE = Path(__file__).resolve().parents[3] / "src"


@pytest.mark.parametrize("isolation", ["thread", pytest.param("process", marks=pytest.mark.slow)])
def test_a_program_of_several_libraries(isolation: Any) -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    with cb.sync.device("torch:cpu", isolation=isolation, standby=None) as device:
        assert device.name == "torch:cpu:0"
        x = device.put(a)
        np.testing.assert_array_equal(x.get(), a)
        np.testing.assert_array_equal(x[::-1, ::-2].get(), a[::-1, ::-2])
        product = device.blas.gemm(x, x, transpose_b=True, alpha=0.5)
        np.testing.assert_allclose(product.get(), 0.5 * a @ a.T)
        np.testing.assert_allclose((x * 2 + 1).get(), a * 2 + 1)
        np.testing.assert_allclose((x @ x.T).get(), a @ a.T)
        np.testing.assert_array_equal(device.array.cast(x, "i16").get(), a.astype(np.int16))
        np.testing.assert_allclose(device.cub.reduce(x, operation="max").get(), a.max(1))
        spectrum = device.fft.fft(device.put(a.astype(np.complex64)))
        np.testing.assert_allclose(spectrum.get(), np.fft.fft(a), rtol=1e-5, atol=1e-5)
        _, s, _ = device.solver.svd(product)
        np.testing.assert_allclose(s.get(), np.linalg.svd(0.5 * a @ a.T)[1], atol=1e-3)
        np.testing.assert_allclose(device.dnn.softmax(x).get().sum(1), 1, rtol=1e-6)


def test_failures_are_those_of_every_backend() -> None:
    with cb.sync.device("torch:cpu", isolation="thread", standby=None) as device:
        with pytest.raises(NumericalError, match="the matrix is singular: pivot 0 is exactly 0"):
            device.solver.inverse(device.zeros((2, 2))).get()
        with pytest.raises(ShapeError, match="out of range for axis 0"):
            device.array.gather(device.zeros(3), (device.put(np.array([5])),)).get()
        with pytest.raises(cb.UnsupportedOp, match="kind is 'xorwow', whose words follow from each other"):
            device.rng.generator(kind="xorwow").uniform(3)
        assert device.put(np.ones(2)).get().tolist() == [1, 1]


def test_words_are_those_of_the_cpu() -> None:
    found = []
    for name in ("cpu", "torch:cpu"):
        with cb.sync.device(name, isolation="thread", standby=None) as device:
            found.append(device.rng.generator(seed=7).uniform(1000).get())
    np.testing.assert_array_equal(*found)


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.timeout(180)
def test_a_lost_host_is_replaced() -> None:
    async def run() -> None:
        async with cb.device("torch:cpu", isolation="process", standby=None) as device:
            old = device.put(np.ones((2, 2)))
            assert (await device.blas.gemm(old, old).get()).tolist() == [[2, 2], [2, 2]]
            pid = device.health().host_pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            with pytest.raises((cb.ContextPoisoned, cb.GpuRefStale)):
                await device.blas.gemm(old, old).get()
            new = device.put(np.ones((2, 2)))
            assert (await device.blas.gemm(new, new).get()).tolist() == [[2, 2], [2, 2]]
            assert "generation 2" in repr(device)

    asyncio.run(run())


def test_names() -> None:
    assert registry.backend("torch:cpu").name == "torch:cpu"
    _, info = registry.resolve("torch:cpu:0")
    assert (info.backend, info.index, info.uuid) == ("torch:cpu", 0, "TORCH-CPU-0")
    assert registry.resolve("TORCH-CPU-0")[1] == info
    with pytest.raises(BackendUnavailable, match=r"torch has several kinds of devices: name one; there are torch:cpu"):
        registry.resolve("torch")
    with pytest.raises(BackendUnavailable, match="torch has no devices called 'tpu'"):
        registry.resolve("torch:tpu")
    with pytest.raises(BackendUnavailable, match="there is no device 'torch:cpu:7'; there are: torch:cpu:0"):
        registry.resolve("torch:cpu:7")
    with pytest.raises(BackendUnavailable, match="backend 'cpu' has no kinds of devices"):
        registry.resolve("cpu:fast")
    if sys.platform != "darwin":
        with pytest.raises(BackendUnavailable, match="finds no Apple GPUs by Metal"):
            registry.resolve("torch:mps")


def test_what_is_listed_is_not_imported() -> None:
    """A program that only asks what a device could do does not wait for PyTorch."""
    program = (
        "import sys; from callboard.core import registry; b = registry.backend('torch:cpu'); b.devices(); "
        "print(len([c.launch_table for c in b.libraries().values()]), 'torch' in sys.modules)"
    )
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["11", "False"]
