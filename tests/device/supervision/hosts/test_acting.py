"""The loop's thread acts for a host's thread that only waits: the work done there, the work left, and the end."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest
from tests.device.probes import EVENTS, Add, Bump, ProbeBackend, ProbeLibrary, Slow

import callboard as cb
from callboard.core import registry
from callboard.core.errors import ContextPoisoned
from callboard.device.host.context.admission import admission

pytestmark = [pytest.mark.leaves_nothing]

BOUND = 20.0


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that launched probe ops, in order."""
    threads: list[int] = []

    def told(method: Callable[..., Any]) -> Callable[..., Any]:
        def launch(*arguments: Any) -> Any:
            threads.append(threading.get_ident())
            return method(*arguments)

        return launch

    for name in ("add", "bump"):
        monkeypatch.setattr(ProbeLibrary, name, told(getattr(ProbeLibrary, name)))
    return threads


@pytest.fixture
async def dev(launched: list[int]) -> AsyncIterator[cb.Device]:
    EVENTS.clear()
    undo = registry.register("probe", ProbeBackend())
    async with cb.System("test") as system:
        yield await system.device("probe", isolation="thread", completion="polled", linger=0.01)
        for event in EVENTS.values():
            event.set()
    undo()


def ones(n: int = 4) -> np.ndarray:
    return np.ones(n, np.float32)


async def settled(dev: cb.Device, x: cb.GpuRef) -> None:
    """Until the host's thread has nothing to do: what it does itself shows that it waits."""
    async with asyncio.timeout(BOUND):
        await x
        await dev.stats()
        channel: Any = dev._port.outbox.host._channel
        # Between both steps of its wait it is not to be taken over yet.
        while not channel._waiting or channel._acting.locked():  # noqa: ASYNC110 - another thread: nothing says when
            await asyncio.sleep(0)


async def test_a_call_of_a_known_kind_is_launched_by_its_caller(dev: cb.Device, launched: list[int]) -> None:
    x = dev.put(ones())
    await dev.ask(Bump(x=x))
    assert launched[0] != threading.get_ident()  # the library's handle is made there
    for _ in range(3):
        await settled(dev, x)
        await dev.ask(Bump(x=x))
    assert launched[1:] == [threading.get_ident()] * 3
    np.testing.assert_array_equal(await x.get(), ones() * 5)


async def test_what_has_to_be_made_is_left_to_the_thread(dev: cb.Device, launched: list[int]) -> None:
    x = dev.put(ones())
    kept = [await dev.ask(Add(x=x))]
    for _ in range(3):
        await settled(dev, x)
        kept.append(await dev.ask(Add(x=x)))  # needs memory from the device, or a wait for somebody's
    assert threading.get_ident() not in launched
    del kept
    await settled(dev, x)
    await dev.ask(Add(x=x))
    assert launched[-1] == threading.get_ident()  # in memory that is kept


async def test_a_long_op_does_not_hold_the_loop_and_is_seen_by_the_thread(dev: cb.Device, launched: list[int]) -> None:
    x = dev.put(ones())
    EVENTS["go"].set()
    await dev.ask(Bump(x=x, after="go"))
    EVENTS["go"].clear()
    await settled(dev, x)
    reply = dev.ask(Bump(x=x, after="go"))
    assert launched[-1] == threading.get_ident()
    waiting = asyncio.ensure_future(_value(reply))
    for _ in range(50):
        await asyncio.sleep(0)  # the loop has its turns meanwhile
    assert not waiting.done()
    EVENTS["go"].set()
    await asyncio.wait_for(waiting, BOUND)
    np.testing.assert_array_equal(await x.get(), ones() * 3)


async def _value(reply: Any) -> Any:
    return await reply


async def test_what_is_long_to_launch_is_left_to_the_thread(
    dev: cb.Device, launched: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "LONG", 0.0)
    x = dev.put(ones())
    for _ in range(6):
        await dev.ask(Bump(x=x))
        await settled(dev, x)
    here = threading.get_ident()
    assert [thread == here for thread in launched] == [False, True, True, True, False, False]


async def test_while_something_is_prepared_all_is_left_to_the_thread(dev: cb.Device, launched: list[int]) -> None:
    x, y = dev.put(ones()), dev.put(ones())
    await dev.ask(Bump(x=x))
    await settled(dev, x)
    slow = dev.ask(Slow(x=y, plan="ready"))
    async with asyncio.timeout(BOUND):
        while not (await dev.stats()).parked:
            pass
    await dev.ask(Bump(x=x))
    assert launched[-1] != threading.get_ident()
    EVENTS["ready"].set()
    await asyncio.wait_for(_value(slow), BOUND)
    await settled(dev, x)
    await dev.ask(Bump(x=x))
    assert launched[-1] == threading.get_ident()


async def test_order_is_kept_beside_what_is_parked(dev: cb.Device) -> None:
    x = dev.put(ones())
    await dev.ask(Bump(x=x))
    await settled(dev, x)
    slow = dev.ask(Slow(x=x, plan="ready"))  # its prepare waits: it parks, and who writes x parks behind it
    await asyncio.sleep(0)
    after = dev.ask(Bump(x=x, n=10))
    EVENTS["ready"].set()
    np.testing.assert_array_equal(await slow.get(), ones() * 3)
    np.testing.assert_array_equal(await after.get(), ones() * 12)


async def test_a_context_that_dies_under_the_caller_is_lost() -> None:
    async with cb.device("faulty+cpu?poison_at=40", isolation="thread", completion="polled", linger=0.01) as dev:
        x = await dev.put(ones())

        async def for_ever() -> None:
            while True:
                await dev.blas.scal(x, alpha=1.0)

        with pytest.raises(cb.Unrecoverable, match="isolation='process'"):
            await asyncio.wait_for(for_ever(), BOUND)


@pytest.mark.parametrize("error", [ContextPoisoned("it is dead"), ZeroDivisionError("a bug"), KeyboardInterrupt()])
async def test_what_is_raised_under_the_caller_ends_the_host(
    dev: cb.Device, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    x = dev.put(ones())
    await dev.ask(Bump(x=x))
    await settled(dev, x)
    host: Any = dev._port.outbox.host
    events = dev.events()

    def launch_inline(call: Any) -> bool:
        raise error

    monkeypatch.setattr(host._channel._host, "launch_inline", launch_inline)
    if isinstance(error, Exception):
        with pytest.raises(cb.AccelError):
            await asyncio.wait_for(_value(dev.ask(Bump(x=x))), BOUND)
    else:
        with pytest.raises(KeyboardInterrupt):
            dev.ask(Bump(x=x))
    async with asyncio.timeout(BOUND):
        assert [type(e).__name__ async for e in events] == ["Lost", "Stopped"]
