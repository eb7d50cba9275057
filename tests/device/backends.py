"""The backends that tests of devices run over: the CPU everywhere, CUDA where there is a GPU."""

import asyncio
import os

import numpy as np
import pytest

import callboard as cb

BACKENDS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """One that can be used, with what is kept for good there.

    The CUDA runtime that comes with cuBLASLt and cuSOLVER keeps the first context that it meets as long as the process
    lives. It meets one here, before a test's descriptors are counted.
    """
    name: str = request.param
    if name == "cpu":
        return name

    async def meet() -> None:
        async with cb.device(name, isolation="thread") as dev:
            a = dev.put(np.eye(8, dtype=np.float32))
            await dev.blas_lt.matmul(a, a).get()
            await dev.solver.cholesky(a).get()

    try:
        asyncio.run(meet())
    except cb.BackendUnavailable as e:
        if os.environ.get("CALLBOARD_REQUIRE") == name:
            pytest.fail(f"CALLBOARD_REQUIRE={name}, and it cannot be used: {e}")
        pytest.skip(f"{name} cannot be used: {e}")
    return name
