"""Guarantees for every op of every library: a trace shows it; a failing library is recreated, and no other."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.device.backends import backend
from tests.kernel.probing import accepts, messages_of

import callboard as cb
from callboard.core import registry
from callboard.core.dtype import DTYPES
from callboard.core.layout import Layout
from callboard.core.library import Library
from callboard.core.op import Op, info_of, outputs_of
from callboard.core.operand import Placeholder, StructOperand, operands_of
from callboard.kernel.collective import Join, Look, Run
from callboard.kernel.dnn import RnnBackward
from callboard.kernel.event import GetIpcHandle, OpenIpcHandle
from callboard.kernel.ipc import GetMemHandle, OpenMemHandle
from callboard.kernel.managed import Advise, Prefetch
from callboard.kernel.memory import Download, Upload
from callboard.kernel.sparse_lt.structured import StructuredRef
from gpu_check.groups import ops_of

BOUND = 60.0
LIBS = sorted({library.name for library in ops_of("cpu").values()})
ARRAYS = (Upload, Download)
"""They have an end in host memory: what ``put`` and ``get`` send."""

NAMED = (GetIpcHandle, OpenIpcHandle, GetMemHandle, OpenMemHandle, Prefetch, Advise, Join, Look, Run, RnnBackward)
"""They name events, memory of another kind than what is made here, worlds, and what a training pass kept."""

LOAD = "__device__ real load(const real *x, unsigned long long i, const void *data) { return x[i]; }"
"""Of a transform with a function of the user's."""

AnyOp = Op[Any, Any]

__all__ = ["backend"]


@pytest.fixture
async def dev(backend: str) -> AsyncIterator[cb.Device]:
    async with cb.device(backend, isolation="thread") as opened:
        yield opened


# -- a message of each op, with operands that can be computed with -----------------------------------------------------


def array_of(layout: Layout) -> "np.ndarray[Any, Any]":
    """Matrices are the identity, indices count upwards, all other vectors and numbers are 1.

    Struct operands of such arrays are identities too, permutations permute nothing, and every system has a solution.
    """
    kind = layout.dtype.np
    if len(layout.shape) >= 2:
        return np.broadcast_to(np.eye(*layout.shape[-2:]), layout.shape).astype(kind)
    if layout.dtype.name == "i32":
        return np.arange(layout.size, dtype=kind).reshape(layout.shape)
    return np.ones(layout.shape).astype(kind)


def filled(dev: cb.Device, value: Any) -> Any:
    """The same with arrays of the device in place of placeholders."""
    if isinstance(value, StructuredRef):
        return dev.sparse_lt.compress(dev.put(np.eye(*value.shape), dtype=value.dtype))
    if isinstance(value, StructOperand):
        return msgspec.structs.replace(value, **{n: filled(dev, x) for n, x in operands_of(value).items()})
    if isinstance(value, tuple):
        return tuple(filled(dev, one) for one in value)
    if not isinstance(value, Placeholder):
        return value
    whole = array_of(value.layout)
    column_major = len(value.layout.shape) == 2 and value.layout.strides[0] == 1 != value.layout.strides[1]
    return dev.put(whole.T).T if column_major else dev.put(whole)


def fits(library: type[Library], message: AnyOp) -> bool:
    try:
        outputs_of(message)
    except (cb.AccelError, TypeError):
        return False
    return library.why_not(message) is None


def message_of(dev: cb.Device, op: type[AnyOp], library: type[Library]) -> AnyOp:
    """Of the first dtype that the library takes."""
    dtype = next(d for d in map(DTYPES.__getitem__, ("f16", "f32", "c64", "i32", "f8_e4m3")) if accepts(op, library, d))
    message = next(m for m in messages_of(op, dtype) if fits(library, m))
    fields = {name: filled(dev, value) for name, value in msgspec.structs.asdict(message).items()}
    if "offsets" in fields:  # of segments: they begin at 0 and end with the array
        values = next(value for value in fields.values() if isinstance(value, cb.GpuRef))
        ends = np.linspace(0, values.size, fields["offsets"].size).astype(fields["offsets"].dtype.np)
        fields["offsets"] = dev.put(ends)
    if fields.get("seqlens_k") is not None:
        fields["seqlens_k"] = dev.put(np.ones(fields["seqlens_k"].size, "i4"))
    if "targets" in fields:  # pages that are no sources
        fields["targets"] = dev.put(np.arange(fields["sources"].size, dtype="i4") + fields["sources"].size)
    if "upper" in fields:  # of a range, which ends at 1
        fields["lower"] = 0.0
    if fields.get("load") is not None:
        fields["load"] = LOAD
    return msgspec.structs.replace(message, **fields)


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
