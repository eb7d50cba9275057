"""Every op of every library gives a resident actor what it gives the application."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
from tests.device.test_every_op import ARRAYS, LIBS, NAMED, backend, message_of

import callboard as cb
from callboard.core.op import info_of
from callboard.core.operand import StructOperand, operands_of
from callboard.kernel.ipc import Empty
from callboard.kernel.managed import Allocate
from gpu_check.groups import ops_of

__all__ = ["backend"]


@pytest.fixture
async def dev(backend: str) -> AsyncIterator[cb.Device]:
    async with cb.device(backend, isolation="thread") as opened:
        yield opened


ELSEWHERE = (Empty, Allocate)
"""Their memory is the device's own host's: an actor is refused."""


class Inside(cb.ResidentActor):
    """Runs the ops of a library."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.dev = ctx.device

    def make(self) -> list[str]:
        """What each op of :data:`ELSEWHERE` is refused with."""
        refused = []
        for op in ELSEWHERE:
            with pytest.raises(cb.UnsupportedOp) as caught:
                self.dev.ask(op(shape=(3,)))
            refused.append(str(caught.value))
        return refused

    def run(self, backend: str, lib: str) -> list[tuple[str, list[Any]]]:
        """Each op's results, by its tag."""
        found = []
        for op, library in ops_of(backend).items():
            if library.name == lib and op not in (*ARRAYS, *NAMED, *ELSEWHERE):
                try:
                    replies = list(replies_of(self.dev.ask(message_of(self.dev, op, library))))  # type: ignore[arg-type]
                except cb.BackendUnavailable:  # of an optional package, which is not installed here
                    continue
                found.append((info_of(op).tag, [_value(reply) for reply in replies]))
        return found


def replies_of(reply: Any) -> Iterator[Any]:
    """Refs and numbers."""
    for one in reply if isinstance(reply, tuple) else (reply,):
        if isinstance(one, StructOperand):
            yield from operands_of(one).values()
        elif one is not None:  # a gradient by what was not given
            yield one


def _value(reply: Any) -> Any:
    return reply.get() if isinstance(reply, cb.GpuRef) else reply.result()


@pytest.mark.parametrize("lib", [lib for lib in LIBS if lib not in ("ipc", "managed", "engine")])
async def test_an_op_gives_the_same_inside(dev: cb.Device, lib: str) -> None:
    inside = dev.actor_of(cb.Props(Inside))
    results = await inside.call(Inside.run, dev.backend, lib)
    ops = {info_of(op).tag: (op, library) for op, library in ops_of(dev.backend).items()}
    assert results
    for tag, values in results:
        replies = list(replies_of(dev.ask(message_of(dev, *ops[tag]))))
        assert len(values) == len(replies)
        for value, reply in zip(values, replies, strict=True):
            expected = await reply
            if isinstance(reply, cb.GpuRef):
                expected = await reply.get()
            # no two runs give the same bytes
            varies = lib == "rng" or tag in ("memory.empty", "sparse_lt.compress", "collective.offer")
            if varies or (tag == "dnn.rnn_forward_training" and np.asarray(value).dtype == np.uint8):  # the reserve
                assert np.shape(value) == np.shape(expected), tag
            elif isinstance(expected, str):
                assert value == expected, tag
            elif expected is not None:
                one, other = (np.asarray(x).astype(np.complex128) for x in (value, expected))
                np.testing.assert_allclose(one, other, rtol=1e-2, atol=1e-2, err_msg=tag)


async def test_memory_of_other_kinds_is_made_outside(dev: cb.Device) -> None:
    inside = dev.actor_of(cb.Props(Inside))
    refused = await inside.call(Inside.make)
    assert len(refused) == 2
    assert all("make the array outside, and pass it to a call" in text for text in refused)
