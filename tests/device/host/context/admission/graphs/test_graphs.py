"""Scripts that do not fit are rejected: data from the wire is not trusted."""

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

import callboard as cb
from callboard.core.reply import Reply
from callboard.device.protocol.messages import Call, ProtocolError
from callboard.device.protocol.recording import (
    MARK,
    Script,
    ScriptBlock,
    ScriptOperand,
    Step,
    read_script,
    write_script,
)


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
        script = read_script(rec._ready().built.signature)
        change(script)
        script.id = dev._port.mint()
        reply: Reply[None] = Reply(dev._port)
        call = Call(dev._port.mint(), write_script(script), rec._ready()._places, [1], [])
        dev._port.send(call, "graph.replay", lambda: reply)
        with pytest.raises((cb.ShapeError, cb.UnsupportedOp)):
            await reply
        await rec.replay()


def test_a_script_that_cannot_be_read() -> None:
    for body in (b"", b"\xc1", msgspec.msgpack.encode([1, [], 5])):
        with pytest.raises(ProtocolError):
            read_script(MARK + body)


GOOD = ScriptBlock("while", 0, 8, "i64", [0, 0], 5, [[1, 4]])
BLOCKS: dict[str, list[ScriptBlock]] = {
    "kind": [msgspec.structs.replace(GOOD, kind="goto")],
    "no body": [msgspec.structs.replace(GOOD, bodies=[])],
    "no steps": [msgspec.structs.replace(GOOD, bodies=[[2, 2]])],
    "half a body": [msgspec.structs.replace(GOOD, bodies=[[2]])],
    "backwards": [msgspec.structs.replace(GOOD, bodies=[[3, 1]])],
    "two bodies": [msgspec.structs.replace(GOOD, bodies=[[1, 2], [2, 3]])],
    "apart": [msgspec.structs.replace(GOOD, kind="if", bodies=[[1, 2], [3, 4]])],
    "beyond": [msgspec.structs.replace(GOOD, bodies=[[1, 6]])],
    "across": [GOOD, msgspec.structs.replace(GOOD, bodies=[[3, 5]])],
    "before": [GOOD, msgspec.structs.replace(GOOD, bodies=[[0, 1]])],
    "operand": [msgspec.structs.replace(GOOD, operand=1)],
    "place": [msgspec.structs.replace(GOOD, offset=9)],
    "turns": [msgspec.structs.replace(GOOD, turns=[0, -8])],
    "turns, a number": [msgspec.structs.replace(GOOD, turns=[0])],
    "dtype": [msgspec.structs.replace(GOOD, dtype="object")],
    "most": [msgspec.structs.replace(GOOD, most=-1)],
}


def script_of(blocks: list[ScriptBlock]) -> Script:
    steps = [Step(b"", [0, 0], [], [], [], [], "here:1") for _ in range(5)]
    return Script(7, [ScriptOperand("x", True, True, -1, 0, 16)], steps, blocks, [])


@pytest.mark.parametrize("what", BLOCKS)
def test_a_block_that_does_not_fit_is_refused(what: str) -> None:
    with pytest.raises(ProtocolError, match="recording 7: a block"):
        read_script(write_script(script_of(BLOCKS[what])))


def test_what_a_replay_makes_is_large_enough() -> None:
    for makes in ([8], [-1], [16, 16]):
        script = script_of([])
        script.makes = makes
        with pytest.raises(ProtocolError, match="do not fit the buffers that it makes"):
            read_script(write_script(script))
    script.makes = [16]
    assert read_script(write_script(script)) == script


def test_blocks_lie_in_each_other_or_apart() -> None:
    nested = [msgspec.structs.replace(GOOD, bodies=[[1, 4]]), msgspec.structs.replace(GOOD, bodies=[[2, 3]])]
    both = msgspec.structs.replace(GOOD, kind="if", bodies=[[4, 4], [4, 5]])
    script = script_of([GOOD, *nested, both])
    assert read_script(write_script(script)) == script
