"""Malformed messages of the application, read by a context host.

The messages of one session are recorded, and replayed with changes to a host each time. The host must end: in good
order, because its stream ended, or as lost with a reason.
"""

import asyncio
import faulthandler
import logging
import os
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import msgspec
from tests.device.tampered import served, tampering
from tests.faults.wire.answering import LIMIT, Round, Violation, outcome
from tests.faults.wire.mutations import Mutator, read_frame

import callboard as cb
from callboard.device.host import socketchannel
from callboard.device.host.context.serve import POISONED
from callboard.device.host.socketchannel import SocketChannel
from callboard.device.protocol.messages import (
    ActorCall,
    Calls,
    Close,
    Closed,
    Completions,
    ContextDied,
    MapArena,
    ProtocolError,
    StartActor,
    ToHost,
)
from callboard.device.protocol.wire import HEADER, FrameError, FrameReader, encode_frame

__all__ = ["fuzz_calls"]

BOUND = 30.0
THREADS = 200


class Session(NamedTuple):
    """What a host was sent.

    Attributes:
        frames: In order, up to the last before it was closed.
        arenas: Size of each arena, by id.
    """

    frames: list[bytes]
    arenas: dict[int, int]


@cache
def recorded() -> Session:
    """One session with calls of all kinds."""
    heard = bytearray()

    async def record() -> None:
        with tampering() as line:
            line.heard = heard.extend
            options: dict[str, Any] = {"standby": None, "memory_limit": LIMIT, "linger": 0.0}
            async with cb.device("cpu", isolation="process", **options) as dev:
                line.arenas = dev._actor.arenas
                calls = Round(dev, Random(0), residents=True)
                for kind in calls.kinds:
                    await asyncio.gather(*(outcome(ask) for ask in kind()))

    asyncio.run(record())
    frames = []
    while heard:
        length = HEADER.size + HEADER.unpack_from(heard)[0]
        frames.append(bytes(heard[:length]))
        del heard[:length]
    messages = read_frame(ToHost, b"".join(frames))
    assert messages is not None
    arenas = {message.arena: message.nbytes for message in messages if isinstance(message, MapArena)}
    return Session([frame for frame in frames if frame[4] != Close.__struct_config__.tag], arenas)


def fuzz_calls(seed: str, messages: int) -> int:
    """Change so many messages of the application to hosts; gives how many there were.

    Raises:
        Violation: A host hung, or ended without a reason, or answered what it was not asked.
    """
    logging.getLogger("callboard").setLevel(logging.CRITICAL)
    session = recorded()
    random = Random(seed)
    mutator = Mutator(ToHost, random, code=False)  # a host runs the application's code: that is what it is for
    codes = _codes(b"".join(session.frames))
    changed = 0
    channels: deque[SocketChannel] = deque(maxlen=100)
    threads = _threads()
    with (
        _memory(session) as arenas,
        mock.patch.object(socketchannel, "PAUSE", 0.002),
        mock.patch.object(socketchannel, "ARENA_TIME", 0.002),
        mock.patch.object(SocketChannel, "unmap_arena"),  # it may be in use, which would end the process
    ):
        while changed < messages:
            frames, wrong = list(session.frames), []
            for at in random.sample(range(len(frames)), random.choice([1, 2, 4])):
                frames[at] = _changed(mutator, frames[at], codes)
                wrong.append(frames[at])
            changed += len(wrong)
            end = [bytes(encode_frame(Close()))] if random.randrange(4) else []
            faulthandler.dump_traceback_later(BOUND, exit=True)
            try:
                _check(*served([*frames, *end], arenas, keep=channels.append), frames)
            except Exception as e:
                text = "\n".join(frame.hex() for frame in wrong)
                raise Violation(f"seed {seed}, after {changed} changed messages: {e!r}; the last:\n{text}") from e
            finally:
                faulthandler.cancel_dump_traceback_later()
    for thread in _threads() - threads:
        thread.join(BOUND)
        if thread.is_alive():
            raise Violation(f"seed {seed}: {thread.name} of a host that has ended does not end")
    return changed


@contextmanager
def _memory(session: Session) -> Iterator[dict[int, int]]:
    """Descriptors of memory of the size of each arena, by id."""
    with ExitStack() as stack:
        arenas = {}
        for arena, nbytes in session.arenas.items():
            arenas[arena] = descriptor = os.memfd_create("callboard-fuzz", os.MFD_CLOEXEC)
            stack.callback(os.close, descriptor)
            os.ftruncate(descriptor, nbytes)
        yield arenas


def _changed(mutator: Mutator, frame: bytes, codes: set[bytes]) -> bytes:
    """The frame made wrong; code is none but the session's, which a host trusts."""
    while True:
        wrong = mutator(frame)
        if _codes(wrong) <= codes:
            return wrong


def _codes(data: bytes) -> set[bytes]:
    """Code of the actors that a host which reads this would start, up to where it cannot be read."""
    codes = set()
    with suppress(ProtocolError):
        for message in FrameReader[Any](ToHost).feed(data):
            if isinstance(message, StartActor) and isinstance(message.recipe, bytes):
                codes.add(message.recipe)
    return codes


def _check(code: int, said: list[Any], frames: list[bytes]) -> None:
    losses = [message for message in said if isinstance(message, ContextDied)]
    if code not in (0, POISONED) or len(losses) != (code == POISONED):
        raise Violation(f"exit code {code} after {len(losses)} losses")
    if losses and not losses[0].error.message.strip():
        raise Violation(f"lost without a reason: {losses}")
    in_order = isinstance(said[-1] if said else None, Closed)
    if code == 0 and not in_order and _is_broken(b"".join(frames)):
        raise Violation("the stream was broken, and the host said nothing")
    asked = Counter[int]()
    sound = True
    for frame in frames:
        messages = read_frame(ToHost, frame)
        sound = sound and messages is not None
        for message in messages or ():
            if isinstance(message, Calls):
                asked.update(call.id for call in message.calls if call.id or call.signature)
            elif isinstance(message, ActorCall):
                asked[message.id] += 1
    answered = Counter[int]()
    for message in said:
        if isinstance(message, Completions):
            answered.update(_settled(message))
    if answered - asked and sound:
        raise Violation(f"answers to {answered - asked}, which were not asked")
    if len(_threads()) > THREADS:
        raise Violation(f"{len(_threads())} threads")


def _threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def _is_broken(data: bytes) -> bool:
    try:
        for _ in FrameReader[Any](ToHost).feed(data):
            pass
    except FrameError:
        return True
    return False


def _settled(completions: Completions) -> list[int]:
    """Ids of the ops that have a completion, whatever form failures have."""
    body = msgspec.to_builtins(completions)
    return [*completions.done, *(op for op, _ in completions.values), *(failure[0] for failure in body[3])]
