"""The checks of ``smoke_gpu.py`` on the GPU of this machine, and behaviour visible only with many ops in flight."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import callboard as cb
from callboard.backends.cuda import backend
from callboard.core.errors import BackendUnavailable


@pytest.fixture
def gpu() -> None:
    """There is one; skips with the reason, fails where CALLBOARD_REQUIRE=cuda."""
    try:
        backend.devices()
    except BackendUnavailable as e:
        if os.environ.get("CALLBOARD_REQUIRE") == "cuda":
            raise
        pytest.skip(str(e))


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("gpu")
def test_smoke(record_property: Callable[[str, object], None]) -> None:
    program = Path(__file__).with_name("smoke_gpu.py")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=580, check=False)
    for line in done.stdout.splitlines():
        if "cost of" in line:
            record_property("sized", line)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
async def test_batches_in_flight_keep_their_own_addresses() -> None:
    """Calls of one plan, with other matrices each time, enqueued far ahead of the device."""
    n, batch, calls = 64, 200, 60
    values = np.random.default_rng(3).integers(-3, 4, (batch, n, n)).astype("f4")  # products of these are exact
    async with cb.device("cuda", isolation="process", standby=None) as dev:
        x = dev.put(values)
        busy = dev.put(np.ones((4096, 4096), "f4"))
        dev.blas.gemm(busy, busy)
        results = []
        for k in range(calls):
            one = [x[(i + k) % batch] for i in range(batch)]
            other = [x[(i * 7 + k) % batch] for i in range(batch)]
            results.append(dev.blas.gemm_batched(one, other))
        order = np.arange(batch)
        for k, got in enumerate(results):
            async with asyncio.timeout(60):
                value = await got.get()
            np.testing.assert_array_equal(value, values[(order + k) % batch] @ values[(order * 7 + k) % batch])


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
async def test_norms_in_flight_do_not_disturb_each_other() -> None:
    """They share one scratch memory, in the order of their stream."""
    async with cb.device("cuda", isolation="process", standby=None) as dev:
        vectors = [np.full(n, 0.25, "f2") for n in (10, 5_000, 100_000, 77, 200_000)]
        refs = [dev.put(v) for v in vectors]
        asked = [(v, dev.blas.nrm2(r), dev.blas.asum(r)) for _ in range(20) for v, r in zip(vectors, refs, strict=True)]
        for v, length, total in asked:
            async with asyncio.timeout(60):
                assert await length == pytest.approx(0.25 * len(v) ** 0.5, rel=1e-3)
                assert await total == pytest.approx(0.25 * len(v), rel=1e-3)
