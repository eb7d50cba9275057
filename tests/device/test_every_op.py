"""Guarantees for every op of every library: a trace shows it; a failing library is recreated, and no other."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from tests.device.backends import backend
from tests.kernel.computed import message_of

import callboard as cb
from callboard.core import registry
from callboard.core.library import Library
from callboard.core.op import Op, info_of
from callboard.kernel.collective import Join, Look, Run
from callboard.kernel.dnn import RnnBackward
from callboard.kernel.engine.messages import Build, Execute, Release
from callboard.kernel.event import GetIpcHandle, OpenIpcHandle
from callboard.kernel.ipc import GetMemHandle, OpenMemHandle
from callboard.kernel.managed import Advise, Prefetch
from callboard.kernel.memory import Download, Upload
from gpu_check.groups import ops_of

BOUND = 60.0
ARRAYS = (Upload, Download)
"""They have an end in host memory: what ``put`` and ``get`` send."""

NAMED = (
    *(GetIpcHandle, OpenIpcHandle, GetMemHandle, OpenMemHandle, Prefetch, Advise, Join, Look, Run, RnnBackward),
    *(Build, Execute, Release),
)
"""They name events, memory of another kind than what is made here, worlds, what a training pass kept, and models."""

LIBS = sorted({library.name for op, library in ops_of("cpu").items() if op not in NAMED})

AnyOp = Op[Any, Any]

__all__ = ["backend"]


@pytest.fixture
async def dev(backend: str) -> AsyncIterator[cb.Device]:
    async with cb.device(backend, isolation="thread") as opened:
        yield opened


async def ended(reply: Any) -> None:
    async with asyncio.timeout(BOUND):
        for one in reply if isinstance(reply, tuple) else (reply,):
            if one is not None:  # a gradient by what was not given
                await one


# -- what is promised --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lib", LIBS)
async def test_a_trace_shows_it(dev: cb.Device, lib: str) -> None:
    ops = {op: library for op, library in ops_of(dev.backend).items() if library.name == lib and op not in NAMED}
    seen: list[Any] = []
    await dev.trace(seen.append)
    left_out: set[type[AnyOp]] = set()
    for op, library in ops.items():
        if op not in ARRAYS:
            try:
                await ended(dev.ask(message_of(dev, op, library)))
            except cb.BackendUnavailable:  # of an optional package (cuDSS), which is not installed here
                left_out.add(op)
    await dev.put(np.ones(3)).get()
    await dev.stats()  # comes behind the records
    assert {record.tag for record in seen if record.ok} >= {info_of(op).tag for op in ops.keys() - left_out}


@pytest.mark.parametrize("lib", LIBS)
async def test_a_library_that_fails_is_made_again_alone(
    dev: cb.Device, lib: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an exception that no library should let out, in one launch."""
    libraries = registry.backend(dev.backend).libraries()
    op = next(op for op in libraries[lib].launch_table if op not in ARRAYS)
    other = libraries["sparse" if lib == "blas" else "blas"]
    made: Counter[str] = Counter()
    fail = False

    def count(cls: type[Library]) -> None:
        make = cls.__init__

        def init(self: Library, *given: Any) -> None:
            made[cls.name] += 1
            make(self, *given)

        monkeypatch.setattr(cls, "__init__", init)

    for cls in libraries.values():
        count(cls)
    launch = getattr(libraries[lib], method := libraries[lib].launch_table[op].method)

    def launched(*given: Any) -> Any:
        nonlocal fail
        if fail:
            fail = False
            raise ArithmeticError("a fault of ours")
        return launch(*given)

    monkeypatch.setattr(libraries[lib], method, launched)

    async def both() -> None:
        for cls, one in ((libraries[lib], op), (other, next(iter(other.launch_table)))):
            await ended(dev.ask(message_of(dev, one, cls)))

    generation = dev.generation
    await both()
    before = Counter(made)
    failing = message_of(dev, op, libraries[lib])
    fail = True
    with pytest.raises(cb.LibraryError, match="ArithmeticError: a fault of ours") as caught:
        await ended(dev.ask(failing))
    assert caught.value.lib == lib
    await both()
    assert made - before == {lib: 1}
    assert (dev.generation, dev.health().restarts) == (generation, 0)
