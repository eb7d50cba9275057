"""Arrays on the device that arrive as NumPy arrays: ``ctx.host``."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.device.residents.lab import Unknown, enter, local, made

import callboard as cb

pytestmark = pytest.mark.leaves_nothing

SIZES = (0, 1, 1000, 100_000)


class Reading(cb.ResidentActor):
    """Gives arrays of its device to the caller."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = enter(ctx)

    def counted(self, n: int) -> Any:
        return self.ctx.host(made(self.ctx, np.arange(n, dtype=np.float32)))

    def turned(self, n: int) -> Any:
        return self.ctx.host(made(self.ctx, np.arange(2 * n, dtype=np.int32)).reshape(2, n).T)

    def several(self, n: int) -> Any:
        array = made(self.ctx, np.arange(n, dtype=np.float64))
        return {"twice": [self.ctx.host(array), self.ctx.host(array)], "n": n, "here": np.arange(n)}

    def of_ref(self, n: int) -> Any:
        return self.ctx.host(self.ctx.device.put(np.arange(n, dtype=np.float32)))

    def bare(self, n: int) -> Any:
        return self.ctx.device.put(np.arange(n, dtype=np.float32))

    def small(self, n: int) -> Any:
        return self.ctx.host(self.ctx.device.put(np.arange(n), dtype="bf16"))

    def given(self, x: cb.In) -> Any:
        return self.ctx.host(x)

    def added(self, x: cb.In) -> Any:
        return self.ctx.host(local(x) + local(x))

    def later(self, n: int) -> Any:
        self.kept = self.ctx.host(self.ctx.device.put(np.arange(n, dtype=np.float32)))

    def now(self) -> Any:
        return self.kept

    def wrong(self) -> Any:
        return self.ctx.host(Unknown())

    def failed(self) -> Any:
        device: Any = self.ctx.device
        return self.ctx.host(device.solver.cholesky(np.full((300, 300), -1.0)))


async def test_arrays_of_all_sizes(anywhere: cb.Device) -> None:
    actor = anywhere.actor_of(cb.Props(Reading))
    for n in SIZES * 3:  # memory for a result is asked for, or comes with the call
        got = await actor.call(Reading.counted, n)
        assert type(got) is np.ndarray
        assert got.flags.writeable
        np.testing.assert_array_equal(got, np.arange(n, dtype=np.float32), strict=True)
        np.testing.assert_array_equal(
            await actor.call(Reading.turned, n), np.arange(2 * n, dtype=np.int32).reshape(2, n).T, strict=True
        )


async def test_several_in_one_result(anywhere: cb.Device) -> None:
    actor = anywhere.actor_of(cb.Props(Reading))
    for n in SIZES:
        got = await actor.call(Reading.several, n)
        assert got["n"] == n
        for array in (*got["twice"], got["here"]):
            np.testing.assert_array_equal(array, np.arange(n))


async def test_refs_of_the_actors_device_and_arrays_that_it_was_given(anywhere: cb.Device) -> None:
    actor = anywhere.actor_of(cb.Props(Reading))
    x = np.arange(100_000, dtype=np.float32)
    np.testing.assert_array_equal(await actor.call(Reading.of_ref, x.size), x, strict=True)
    np.testing.assert_array_equal(
        await actor.call(Reading.small, 100), np.arange(100).astype(ml_dtypes.bfloat16), strict=True
    )
    ref = anywhere.put(x)
    np.testing.assert_array_equal(await actor.call(Reading.given, ref), x, strict=True)
    np.testing.assert_array_equal(await actor.call(Reading.given, ref[::2]), x[::2], strict=True)
    np.testing.assert_array_equal(await actor.call(Reading.added, ref), x + x, strict=True)


async def test_it_is_read_when_it_is_returned(anywhere: cb.Device) -> None:
    actor = anywhere.actor_of(cb.Props(Reading))
    await actor.call(Reading.later, 50_000)
    for _ in range(2):
        np.testing.assert_array_equal(await actor.call(Reading.now), np.arange(50_000, dtype=np.float32))


async def test_no_array_is_refused_and_an_operation_that_failed_is_told(anywhere: cb.Device) -> None:
    actor = anywhere.actor_of(cb.Props(Reading))
    with pytest.raises(TypeError, match="Unknown"):
        await actor.call(Reading.wrong)
    with pytest.raises(cb.AccelError, match="cholesky"):
        await actor.call(Reading.failed)
    assert actor.restarts == 0


@pytest.mark.slow
async def test_from_a_process_of_the_actors_own(backend: str) -> None:
    async with cb.device(backend, isolation="process", standby=None, close_timeout=5.0) as dev:
        actor = await dev.actor_of(cb.Props(Reading), own_process=True, wait=True)
        x = np.arange(100_000, dtype=np.float32)
        np.testing.assert_array_equal(await actor.call(Reading.counted, x.size), x)
        np.testing.assert_array_equal(await actor.call(Reading.added, dev.put(x)), x + x)


@pytest.mark.slow
async def test_a_handle_of_the_host_is_no_result(anywhere: cb.Device) -> None:
    actor = anywhere.actor_of(cb.Props(Reading))
    with pytest.raises(TypeError, match=r"GpuRef cannot travel; return .*ctx\.ref\(array\)"):
        await actor.call(Reading.bare, 3)
