"""Devices on a real GPU that lose their contexts: the steps common to all tests of this folder."""

import asyncio
import importlib.util
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from tests.faults.load import lost_and_recovered

import callboard as cb
from callboard.cli.demo.fault import standby_ready

BOUND = 60.0
"""Seconds within which anything of these tests must end; torch may be imported by a fresh host in between."""

N = 64

Options = dict[str, Any]


@asynccontextmanager
async def cuda(**options: Any) -> AsyncIterator[cb.Device]:
    """A CUDA device in a process of its own; skipped with the reason where there is none."""
    settings: Options = {"isolation": "process", "standby": None, "max_restarts": None, **options}
    async with cb.System("faults") as system:
        try:
            dev = await system.device("cuda", **settings)
        except cb.BackendUnavailable as e:
            if os.environ.get("CALLBOARD_REQUIRE") == "cuda":
                pytest.fail(f"CALLBOARD_REQUIRE=cuda, and it cannot be used: {e}")
            pytest.skip(f"cuda cannot be used: {e}")
        async with asyncio.timeout(BOUND):
            await dev.ready()
        yield dev


def needs(package: str) -> None:
    """Skip where a package is missing; it is imported in hosts only."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


def chain(dev: cb.Device, number: float) -> Any:
    """``put -> gemm -> get`` whose value is this number twice, everywhere."""
    x = dev.put(np.full((N, N), number, np.float32))
    y = dev.put(2 * np.eye(N, dtype=np.float32))
    return dev.blas.gemm(x, y).get()


async def is_right(reply: Any, number: float) -> None:
    """The chain ends in its value."""
    async with asyncio.timeout(BOUND):
        np.testing.assert_array_equal(await reply, np.full((N, N), 2 * number, np.float32))


async def right_or_lost(reply: Any, number: float) -> bool:
    """The chain ends in its value, or in the loss of its context; whether it was the loss."""
    try:
        await is_right(reply, number)
    except cb.ContextPoisoned:
        return True
    return False


async def error_of(reply: Any) -> BaseException:
    """The typed error that a reply ends in."""
    async with asyncio.timeout(BOUND):
        with pytest.raises(cb.AccelError) as caught:
            await reply
    return caught.value


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", ()))


async def armed(dev: cb.Device) -> None:
    """Wait for the standby that was asked for."""
    if dev.config.standby is not None:
        assert await standby_ready(dev), dev.health()


def kill(dev: cb.Device, number: int = signal.SIGKILL) -> None:
    pid = dev.health().host_pid
    assert pid is not None
    assert pid != os.getpid()
    os.kill(pid, number)


async def loss(dev: cb.Device, cause: Callable[[], Any]) -> tuple[cb.Lost, cb.Recovered]:
    """Cause a loss, and wait until the device has recovered."""
    async with asyncio.timeout(BOUND):
        return await lost_and_recovered(dev, cause)
