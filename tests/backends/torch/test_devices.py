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


def test_rolls_that_an_expression_reads_are_rolled() -> None:
    with cb.sync.device("torch:cpu", isolation="thread", standby=None) as device:
        for dtype in ("f8", "u8", "i2"):
            a = np.arange(12).reshape(3, 4).astype(dtype)
            x = device.put(a)
            np.testing.assert_array_equal(device.xp.roll(x, 1, axis=0).get(), np.roll(a, 1, 0))
            np.testing.assert_array_equal(
                (device.xp.roll(x, (2, -1), axis=(0, 1)) - x).get(), np.roll(a, (2, -1), (0, 1)) - a
            )
        np.testing.assert_allclose(device.xp.fft.fftfreq(5).get(), np.fft.fftfreq(5))


class Foreign(cb.ResidentActor):
    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = ctx

    def ones(self) -> Any:
        import torch

        return self.ctx.ref(torch.ones(3))

    def doubled(self, x: cb.InOut) -> None:
        np.asarray(x)[:] *= 2


@pytest.mark.parametrize("isolation", ["thread", pytest.param("process", marks=pytest.mark.slow)])
def test_memory_of_others_is_read_where_it_lies(isolation: Any) -> None:
    with (
        cb.sync.device("cpu", isolation=isolation, standby=None) as other,
        cb.sync.device("torch:cpu", isolation=isolation, standby=None) as device,
    ):
        there = other.put(np.arange(3.0)).to(device)
        np.testing.assert_array_equal(there.get(), [0, 1, 2])
        np.testing.assert_array_equal((there + 1).to(other).get(), [1, 2, 3])
        actor = device.actor_of(cb.Props(Foreign), "foreign")
        np.testing.assert_array_equal((actor.call(Foreign.ones) + 1).get(), [2, 2, 2])
        actor.call(Foreign.doubled, there)
        np.testing.assert_array_equal(there.get(), [0, 2, 4])


def test_adopted_tensors_and_arrays_are_operands() -> None:
    import torch

    with cb.sync.device("torch:cpu", isolation="thread", standby=None) as device:
        for mine in (torch.arange(4.0), np.arange(4.0)):
            ref = device.adopt(mine)
            np.testing.assert_array_equal((ref * 2).get(), [0, 2, 4, 6])
            ref[0] = 9
            ref.get()
            assert mine[0] == 9


def test_what_f8_e4m3_cannot_hold_is_nan() -> None:
    with cb.sync.device("torch:cpu", isolation="thread", standby=None) as device:
        found = device.xp.astype(device.put(np.array([464, 465, -1000, np.inf])), "f8_e4m3").get()
        np.testing.assert_array_equal(found.astype("f4"), [448, np.nan, np.nan, np.nan])
