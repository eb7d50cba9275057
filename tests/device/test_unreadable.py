"""Unreadable or invalid messages of a host: no ask waits for them, and the host is replaced."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.device.tampered import Tampering, served, tampering

import callboard as cb
from callboard.device.host import socketchannel
from callboard.device.host.context.serve import POISONED
from callboard.device.protocol import messages as p
from callboard.device.protocol.failures import as_error
from callboard.device.protocol.messages import FailureMessage
from callboard.device.protocol.wire import HEADER, encode_frame
from callboard.device.supervision.hosts import opline

pytestmark = [pytest.mark.leaves_nothing]

BOUND = 20.0
UNREADABLE = "the host sent a message that cannot be read"


class Echo(cb.ResidentActor):
    def echo(self, value: Any) -> Any:
        return value


Body = list[Any]
Change = Callable[[Body], Any]


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[tuple[cb.Device, Tampering]]:
    with tampering() as line:
        async with cb.device("cpu", isolation="process", standby=None, max_restarts=None, **options) as dev:
            line.arenas = dev._actor.arenas
            yield dev, line


def framed(kind: int, body: Any) -> bytes:
    data = msgspec.msgpack.encode(body)
    return HEADER.pack(len(data), kind) + data


def first(message: type[Any], change: Change, where: Callable[[Body], bool] = lambda body: True) -> Any:
    """Tampers with the first message of a class; ``change`` edits its fields, or returns the frame to be sent."""
    tag = message.__struct_config__.tag
    done = False

    def tamper(frame: bytes) -> bytes:
        nonlocal done
        _, kind = HEADER.unpack_from(frame)
        body = msgspec.msgpack.decode(frame[HEADER.size :])
        if done or kind != tag or not where(body):
            return frame
        done = True
        changed = change(body)
        return changed if isinstance(changed, bytes) else framed(kind, body)

    return tamper


def values(body: Body) -> bool:
    return bool(body[2])


def set_value(value: Any) -> Change:
    return lambda body: body[2][0].__setitem__(1, value)


def set_op(op: int) -> Change:
    return lambda body: body[2][0].__setitem__(0, op)


def move_to_done(body: Body) -> None:
    body[1] += [op for op, _ in body[2]]
    body[2] = []


def move_to_values(body: Body) -> None:
    body[2] += [[op, 1.0] for op in body[1]]
    body[1] = []


def done(body: Body) -> bool:
    return bool(body[1])


CASES: dict[str, Any] = {
    "a value that is text": (first(p.Completions, set_value("1"), values), "does not fit"),
    "a value that is nothing": (first(p.Completions, set_value(None), values), "does not fit"),
    "a complex value of one part": (first(p.Completions, set_value([1.0]), values), "does not fit"),
    "no value": (first(p.Completions, move_to_done, values), "does not fit"),
    "a value of an op without": (first(p.Completions, move_to_values, done), "does not fit"),
    "an op that is not in flight": (first(p.Completions, set_op(7 << 40), values), "not in flight"),
    "an unknown kind": (first(p.Completions, lambda body: framed(200, body), values), "unknown kind 200"),
    "a kind that does not fit": (first(p.Completions, lambda body: framed(12, body), values), "frame of kind 12"),
    "another message": (first(p.Completions, lambda body: bytes(encode_frame(p.Hello(p.VERSION, 1))), values), "Hello"),
    "an end that was not asked for": (
        first(p.Completions, lambda b: bytes(encode_frame(p.Closed())), values),
        "Closed",
    ),
    "a message that was unknown": (first(p.Completions, lambda b: bytes(encode_frame(p.Unknown(1))), values), "kind 1"),
    "a context of another generation": (
        first(p.Completions, lambda b: bytes(encode_frame(p.Ready(1 << 40, True, {}, {}))), values),
        "generation",
    ),
    "a field of another type": (first(p.Completions, lambda body: body.__setitem__(1, "x"), values), "Expected"),
    "bytes behind the message": (
        first(p.Completions, lambda body: HEADER.pack(99, 3) + msgspec.msgpack.encode(body) + bytes(99), values),
        "trailing",
    ),
}


@pytest.mark.parametrize("tamper, text", CASES.values(), ids=CASES)
async def test_an_op_fails_with_the_host(tamper: Any, text: str) -> None:
    async with opened() as (dev, line), asyncio.timeout(BOUND):
        x = dev.put(np.ones(8, np.float32))
        await x
        line.tamper = tamper
        copy, norm = dev.copy(x), dev.blas.nrm2(x)
        with pytest.raises(cb.ContextPoisoned, match=f"(?s){UNREADABLE}.*{text}"):
            await asyncio.gather(copy, norm)
        assert await dev.blas.nrm2(dev.put(np.ones(4, np.float32))) == 2.0
        assert line.started == 2


@pytest.mark.parametrize("longer", [1, 300, 1 << 20])
async def test_a_false_length_below_the_limit(longer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opline, "PAUSE", 0.001)

    def lengthen(body: Body) -> bytes:
        data = msgspec.msgpack.encode(body)
        return HEADER.pack(len(data) + longer, 3) + data

    async with opened() as (dev, line), asyncio.timeout(BOUND):
        x = dev.put(np.ones(8, np.float32))
        line.tamper = first(p.Completions, lengthen, values)
        with pytest.raises(cb.ContextPoisoned, match=f"{UNREADABLE}.*its length is"):
            await dev.blas.nrm2(x)


async def test_a_frame_that_is_never_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opline, "PAUSE", 0.001)
    monkeypatch.setattr(opline, "FRAME_TIME", 0.01)

    async with opened() as (dev, line), asyncio.timeout(BOUND):
        x = dev.put(np.ones(8, np.float32))
        line.tamper = first(p.Completions, lambda body: framed(3, body)[:-3], values)
        with pytest.raises(cb.ContextPoisoned, match=f"{UNREADABLE}.*not complete after"):
            await dev.blas.nrm2(x)


@pytest.mark.parametrize("value", [b"\xc1", msgspec.msgpack.encode([1]), msgspec.msgpack.encode({"buffers": "x"})])
async def test_an_answer_that_is_none(value: bytes) -> None:
    async with opened() as (dev, line), asyncio.timeout(BOUND):
        line.tamper = first(p.Answer, lambda body: body.__setitem__(2, value))
        with pytest.raises(cb.ContextLost, match=UNREADABLE):
            await dev.stats()
        assert (await dev.stats()).restarts == 1


async def test_a_ready_of_another_generation() -> None:
    with tampering() as line:
        line.tamper = first(p.Ready, lambda body: body.__setitem__(1, 0))
        async with asyncio.timeout(BOUND), cb.device("cpu", isolation="process", standby=None) as dev:
            assert dev.health().restarts == 1


LOSSES = {
    "an error that cannot be made": ["UnicodeDecodeError", "gone", {}],
    "a control error": ["StopIteration", "gone", {}],
    "an attribute of the wrong kind": ["LibraryError", "gone", {"code": "x"}],
    "an attribute that cannot be set": ["ContextPoisoned", "gone", {"__class__": 1, "args": 2}],
    "no error": ["sys", "gone", {}],
}


@pytest.mark.parametrize("error", LOSSES.values(), ids=LOSSES)
async def test_a_loss_that_cannot_be_read_is_a_loss(error: list[Any]) -> None:
    async with opened() as (dev, line), asyncio.timeout(BOUND):
        lost = p.ContextDied(dev.generation, FailureMessage(0, "x", "", {}))
        x = dev.put(np.ones(8, np.float32))
        body = msgspec.to_builtins(lost)
        body[2][1:4] = error
        line.tamper = first(p.Completions, lambda _: framed(5, body), values)
        with pytest.raises(cb.ContextPoisoned, match="gone"):
            await dev.blas.nrm2(x)
        await dev.ready()
        assert dev.health().state == "ready"


@pytest.mark.parametrize("failure", LOSSES.values(), ids=LOSSES)
def test_an_error_is_always_made(failure: list[Any]) -> None:
    error = as_error(FailureMessage(7, *failure))
    assert isinstance(error, cb.AccelError)
    assert "gone" in str(error)


def test_attributes_come_back() -> None:
    error = as_error(FailureMessage(7, "LibraryError", "bad", {"lib": "cublas", "code": 3, "op": "gemm"}))
    assert (type(error), vars(error)) == (cb.LibraryError, {"lib": "cublas", "code": 3, "op": "gemm"})


TALES: dict[str, Any] = {
    "room for no turn": first(p.RoomWanted, lambda body: body.__setitem__(1, 1 << 40)),
    "room of no size": first(p.RoomWanted, lambda body: body.__setitem__(2, -1)),
    "an unknown event": first(p.ActorEvent, lambda body: body.__setitem__(2, "vanished")),
    "a number for a result": first(p.Completions, set_value(5), values),
}


@pytest.mark.parametrize("tamper", TALES.values(), ids=TALES)
async def test_a_call_of_a_resident_actor_fails_with_the_host(tamper: Any) -> None:
    async with opened() as (dev, line), asyncio.timeout(BOUND):
        events = dev.events()
        line.tamper = tamper
        echo = dev.actor_of(cb.Props(Echo), name="echo")
        big = np.ones(1 << 17)
        with contextlib.suppress(cb.ContextPoisoned):  # an event tells of no call
            await echo.call(Echo.echo, big)
        lost = await anext(events)
        assert isinstance(lost, cb.Lost)
        assert UNREADABLE in str(lost.error)
        np.testing.assert_array_equal(await echo.call(Echo.echo, big), big)
        await events.aclose()  # type: ignore[attr-defined]


async def test_a_trace_hook_that_fails_is_no_loss() -> None:
    loop = asyncio.get_running_loop()
    fault: asyncio.Future[Any] = loop.create_future()
    loop.set_exception_handler(lambda _, context: fault.set_result(context["exception"]))
    async with opened() as (dev, line), asyncio.timeout(BOUND):
        remove = await dev.trace(lambda record: 1 / 0)
        await dev.put(np.ones(8, np.float32))
        assert isinstance(await fault, ZeroDivisionError)
        await remove()
        assert line.started == 1


# -- the other direction -----------------------------------------------------------------------------------------------


def calls(*each: p.Call) -> bytes:
    return bytes(encode_frame(p.Calls(list(each))))


def opening() -> bytes:
    from callboard.core import registry
    from callboard.device.config import HostConfig

    info = msgspec.to_builtins(registry.backend("cpu").devices()[0])
    return bytes(encode_frame(p.Open(list(info), 1, msgspec.msgpack.encode(HostConfig()))))


BROKEN = {
    "garbage": b"\x05\x00\x00\x00\x01garbage",
    "a false length": HEADER.pack(100, 1) + msgspec.msgpack.encode([1, []]),
    "a length above the limit": b"\xff\xff\xff\xff\x01",
}


@pytest.mark.parametrize("frame", BROKEN.values(), ids=BROKEN)
@pytest.mark.few(1)
def test_a_host_says_that_it_was_sent_what_it_cannot_read(frame: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socketchannel, "PAUSE", 0.001)
    code, said = served([opening(), frame], ends=False)
    assert code == POISONED
    assert [type(message) for message in said] == [p.Ready, p.ContextDied]
    assert "the application sent a message that cannot be read: " in said[-1].error.message


def test_a_host_fails_an_op_without_a_signature() -> None:
    code, said = served([opening(), calls(p.Call(7, b"", [], [], [8])), bytes(encode_frame(p.Close()))])
    assert code == 0
    (completions,) = (message for message in said if isinstance(message, p.Completions))
    assert [op for op, _ in completions.failed] == [7]


def test_a_host_misses_an_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socketchannel, "ARENA_TIME", 0.001)
    code, said = served([opening(), bytes(encode_frame(p.MapArena(3, 4096)))])
    assert code == POISONED
    assert "the descriptor of arena 3 did not arrive" in said[-1].error.message


def test_a_host_is_sent_ops_before_its_context_is_open() -> None:
    code, said = served([calls(p.Call(7, b"x", [], [], []))])
    assert code == POISONED
    assert "Calls before a context is open" in said[-1].error.message
