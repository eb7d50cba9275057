"""Scripts that do not fit are refused: what comes over the wire is not believed."""

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

import callboard as cb
from callboard.core.reply import Reply
from callboard.device.protocol.messages import Call, ProtocolError
from callboard.device.protocol.recording import MARK, Script, read_script, write_script


def offset(script: Script) -> None:
    script.steps[0].bindings[1] += 64


def operand(script: Script) -> None:
    script.operands[1].high = 1 << 40


def missing(script: Script) -> None:
    del script.steps[0].bindings[:2]


def numbers(script: Script) -> None:
    script.steps[0].numbers.append(1.0)


def drawn(script: Script) -> None:
    script.steps[0].drawn = [7]


def unknown(script: Script) -> None:
    script.steps[0].bindings[0] = 9


def signature(script: Script) -> None:
    script.steps[0].signature = b"\x93\xa4what\x90\x90"


@pytest.mark.parametrize("change", [offset, operand, missing, numbers, drawn, unknown, signature])
async def test_a_script_that_does_not_fit_is_refused(change: Callable[[Script], None]) -> None:
    async with cb.device("cpu") as dev:
        a = await dev.put(np.eye(4, dtype="f4"))
        with dev.record() as rec:
            dev.blas.gemm(a, a)
        await rec.replay()
        script = read_script(rec._ready().signature)
        change(script)
        script.id = dev._port.mint()
        reply: Reply[None] = Reply(dev._port)
        call = Call(dev._port.mint(), write_script(script), rec._places, [1], [])
        dev._port.send(call, "graph.replay", lambda: reply)
        with pytest.raises((cb.ShapeError, cb.UnsupportedOp)):
            await reply
        await rec.replay()


def test_a_script_that_cannot_be_read() -> None:
    for body in (b"", b"\xc1", msgspec.msgpack.encode([1, [], 5])):
        with pytest.raises(ProtocolError):
            read_script(MARK + body)
