"""The context is current where the device is called, whatever others have made current on that thread meanwhile."""

from typing import Any

import msgspec
import numpy as np
import pytest
from host_backend import INFO, HostCudaBackend
from host_cublas import HostCublas
from host_driver import HostDriver

import callboard as cb
from callboard.core import registry
from callboard.core.backend import DeviceInfo

OTHERS = 0xBAD


class Watched(HostCudaBackend):
    """In this process, on the loop of the caller."""

    name = "watched"

    def devices(self) -> list[DeviceInfo]:
        return [msgspec.structs.replace(INFO, backend=self.name)]

    def preload(self) -> None:
        """There is no driver to load."""


@pytest.mark.usefixtures("binding")
async def test_on_the_callers_own_loop(driver: HostDriver, binding: HostCublas) -> None:
    """A device beside it, or torch, leaves another context there: memory would be taken on another GPU."""
    seen: list[Any] = []
    allocate = driver.mem_alloc

    def mem_alloc(out: Any, nbytes: int) -> None:
        seen.append(driver.current)
        allocate(out, nbytes)

    driver.mem_alloc = mem_alloc  # type: ignore[method-assign]
    undo = registry.register("watched", Watched(driver))
    try:
        async with cb.device("watched", isolation="thread", dispatcher="caller") as dev:
            for n in (10, 5_000, 100_000):  # a block each
                driver.current = OTHERS
                x = dev.put(np.full((n,), n, np.float32))
                driver.current = OTHERS
                assert await dev.blas.asum(x) == float(n) * n
    finally:
        undo()
    assert len(seen) >= 3
    assert set(seen) == {0xC0}
