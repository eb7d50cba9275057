"""Replies and refs with the functions of asyncio and anyio: what takes them, and what to write for the others."""

import asyncio
import concurrent.futures
import contextvars
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from tests.device.residents.lab import Gate
from tests.multi_device.copies_lab import BOUND, Slow

import callboard as cb

pytestmark = pytest.mark.leaves_nothing


@pytest.fixture(params=["thread", "process"])
async def cpu(request: pytest.FixtureRequest) -> AsyncIterator[cb.Device]:
    async with cb.device("cpu", isolation=request.param, standby=None) as device, asyncio.timeout(BOUND):
        yield device


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.open_for_good()


async def test_what_takes_a_reply(cpu: cb.Device) -> None:
    ref: Any = cpu.full(3, 2.0)
    got: Any = ref.get()
    assert await asyncio.gather(ref, got) == [ref, await got]
    assert await asyncio.wait_for(cpu.copy(ref), BOUND) is not None
    assert (await asyncio.shield(ref.get()))[0] == 2.0
    assert await asyncio.ensure_future(ref) is ref
    assert {float((await each)[0]) for each in asyncio.as_completed([ref.get(), (ref + 1.0).get()])} == {2.0, 3.0}
    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        task = group.create_task(awaited(ref.get()))
    assert task.result()[0] == 2.0
    with anyio.fail_after(BOUND):
        assert (await ref.get())[0] == 2.0
    async with anyio.create_task_group() as several:
        several.start_soon(awaited, ref)


async def awaited(reply: Any) -> Any:
    return await reply


async def test_wait_takes_replies_and_gives_them_back(cpu: cb.Device, gate: Gate) -> None:
    slow = cpu.actor_of(cb.Props(Slow))
    x = await cpu.zeros(4)
    late: Any = slow.call(Slow.fill, x, 3.0, gate.path)
    held: Any = x.get()
    soon: Any = cpu.full(3, 1.0)
    bad: Any = cpu.solver.cholesky(cpu.put(-np.eye(3, dtype="f4")))
    done, pending = await asyncio.wait([late, held, soon], return_when=asyncio.FIRST_COMPLETED)
    assert (done, pending) == ({soon}, {late, held})
    done, pending = await asyncio.wait([late, bad], return_when=asyncio.FIRST_EXCEPTION)
    assert (done, pending) == ({bad}, {late})
    assert isinstance(bad.exception(), cb.NumericalError)
    done, pending = await asyncio.wait([late, held, bad], timeout=0.0)
    assert (done, pending) == ({bad}, {late, held})
    assert late._waiters is None or not late._waiters, "nothing is left of waits that are over"
    await gate.let_through()
    done, pending = await asyncio.wait([late, held, asyncio.ensure_future(held)])
    assert len(done) == 3
    assert not pending
    assert held.result()[0] == 3.0


async def test_what_takes_coroutines_only_says_so(cpu: cb.Device) -> None:
    ref: Any = cpu.full(3, 2.0)
    with pytest.raises(TypeError, match="coroutine"):
        asyncio.create_task(ref)  # noqa: RUF006 - none is made
    with pytest.raises(TypeError, match="coroutine"):
        asyncio.run_coroutine_threadsafe(ref, asyncio.get_running_loop())
    await ref


async def test_from_another_loop(cpu: cb.Device) -> None:
    ref: Any = cpu.full(3, 2.0)

    async def elsewhere() -> Any:
        done, _ = await asyncio.wait([ref, ref.get()], timeout=BOUND)
        return len(done)

    assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) == 2


def test_threads_wait_with_result() -> None:
    with cb.sync.device("cpu", isolation="thread", standby=None) as cpu:
        refs = [cpu.full(3, float(n)) for n in range(8)]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert [float(each[0]) for each in pool.map(lambda ref: ref.get(), refs)] == [float(n) for n in range(8)]


def test_functions_of_concurrent_futures_say_what_to_write() -> None:
    with cb.sync.device("cpu", isolation="thread", standby=None) as cpu:
        ref: Any = cpu.full(3, 2.0)
        for reply in (ref, cpu.blas.nrm2(ref)):
            with pytest.raises(AttributeError, match=r"`reply.result\(\)` of each"):
                concurrent.futures.wait([reply])
            with pytest.raises(AttributeError, match=r"`asyncio\.as_completed`"):
                list(concurrent.futures.as_completed([reply]))
            assert not hasattr(reply, "_condition")


async def test_callbacks_run_in_the_context_in_which_they_were_added(cpu: cb.Device, gate: Gate) -> None:
    name, told = contextvars.ContextVar("name", default="outside"), asyncio.Event()
    said: list[str] = []

    def called(reply: Any) -> None:
        said.append(name.get())
        if len(said) == 2:
            told.set()

    slow = cpu.actor_of(cb.Props(Slow))
    late: Any = slow.call(Slow.fill, await cpu.zeros(4), 3.0, gate.path)
    token = name.set("added")
    late.add_done_callback(called)
    name.reset(token)
    late.add_done_callback(called, context=contextvars.Context())
    late.add_done_callback(print)
    assert late.remove_done_callback(print) == 1
    await gate.let_through()
    await asyncio.wait_for(told.wait(), BOUND)
    assert said == ["added", "outside"]
