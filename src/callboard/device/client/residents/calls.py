"""A call of a resident actor, in the application: from its arguments to its reply."""

import asyncio
import functools
import math
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import numpy as np

from callboard.actors.errors import ReplyError
from callboard.core.errors import AccelError, AskTimeout, DeviceMismatch, GpuRefStale
from callboard.core.operand import In, Role
from callboard.core.ref import GpuRef
from callboard.core.reply import Cause, OpFailure, Reply
from callboard.device.client.line.refusals import marked
from callboard.device.client.residents.line import End
from callboard.device.protocol.arena import Slot
from callboard.device.protocol.residents.classes import known_class
from callboard.device.protocol.residents.values import Packer, Unpacker, Unsendable, decode, encode
from callboard.events.concerns import TRACE
from callboard.events.ring import EVENTS

if TYPE_CHECKING:
    from callboard.device.client.residents.caller import Caller
    from callboard.device.client.residents.lent import LentArguments, LentRoom
    from callboard.device.client.residents.registry import Resident
    from callboard.device.client.residents.reply import CallsMade

__all__ = ["Arguments", "CallEnd", "read_only"]

Array = np.ndarray[Any, Any]

CURE = (
    "pass numbers, text, bytes, lists, tuples, dicts, Structs, dataclasses, NumPy arrays or GpuRefs; make everything "
    "else in the actor's prepare() or setup()"
)


class Arguments:
    """The arguments of one call, taken apart and checked.

    Args:
        tag: Tag of the call, for errors.
        method: Name of the method, or a step of a stream; None for a message, which is the only argument.
        positional: Names of the parameters that take positional arguments; none if they are not known.
        frozen: Names of the parameters whose device arrays are only read.

    Attributes:
        given: The arguments, by position and by name; None for a step of a stream but the first.

    Raises:
        TypeError: An argument that cannot travel, by its name.
        ValueError: They are too many.
    """

    def __init__(
        self,
        tag: str,
        method: str | list[Any] | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        positional: Sequence[str],
        frozen: frozenset[str],
    ) -> None:
        self.tag = tag
        self.given: tuple[Sequence[Any], Mapping[str, Any]] | None = args, kwargs
        self.packer = packer = Packer(_is_ref, with_code=True, cure=CURE)
        self.refs: list[GpuRef[Any]] = packer.refs
        self.names: list[str] = []  # names of the arguments that contain the refs
        pack, refs, packed, named = packer.pack, packer.refs, [], {}
        keyword: str | None = None
        try:
            for value in args:
                packed.append(pack(value))
                if refs:
                    self._name(_name_of(len(packed) - 1, method, positional))
            for keyword, value in kwargs.items():
                named[keyword] = pack(value)
                if refs:
                    self._name(keyword)
        except Unsendable as e:
            name = _name_of(len(packed), method, positional) if keyword is None else keyword
            raise TypeError(f"{tag}: {name}{e.path}: {e.why}") from None
        except RecursionError:
            raise TypeError(f"{tag}: an argument contains itself, or is nested too deeply") from None
        self.writes = [name not in frozen for name in self.names] if self.names else []
        trace = None if EVENTS.ring is None else TRACE.get()
        parts = [method, packed, named] if trace is None else [method, packed, named, trace]
        self.body = encode(parts, f"{tag}: the arguments")

    def _name(self, name: str) -> None:
        """The refs that have been found since the last call are in the argument of this name."""
        self.names += [name] * (len(self.refs) - len(self.names))

    def check(self, port: Any) -> None:
        """Check that the device arrays can be used now.

        Raises:
            GpuRefStale, DeviceMismatch: An array cannot be used; names the argument.
        """
        for name, ref in zip(self.names, self.refs, strict=True):
            if ref._port is not port:
                where = ref.device if ref.device != port.name else f"another handle of {port.name}, opened separately"
                raise marked(
                    DeviceMismatch(
                        f"{self.tag}: {name} {ref.layout!r} is on {where}, the actor on {port.name}; "
                        "copy it through the host (get, put)"
                    ),
                    port.name,
                    port.generation,
                    self.tag,
                )
            reason = ref._why_stale()
            if reason is not None:
                cure = "use it before free()" if reason == "freed" else "put or compute it again in this generation"
                error = GpuRefStale(f"{self.tag}: {name} {ref.layout!r} on {ref.device}: {reason}; {cure}", reason)
                error.generation = ref.generation
                raise marked(error, port.name, port.generation, self.tag)


def _name_of(at: int, method: str | list[Any] | None, positional: Sequence[str]) -> str:
    if positional:
        return positional[min(at, len(positional) - 1)]
    return "message" if method is None else f"args[{at}]"


def _is_ref(value: Any) -> bool:
    return isinstance(value, GpuRef)


@functools.lru_cache(maxsize=4096)
def read_only(method: Callable[..., Any]) -> frozenset[str]:
    """Names of the parameters annotated ``cb.In``."""
    try:
        hints = get_type_hints(method, include_extras=True)
    except Exception:  # an annotation that only a type checker can resolve
        hints = getattr(method, "__annotations__", {})
    return frozenset(name for name, hint in hints.items() if hint is In or Role.IN in get_args(hint))


class CallEnd(End):
    """Puts the result together and settles the reply; gives the result's slot back.

    Attributes:
        slot: Slot for the result's arrays: granted with the call, or when the host asked for one.
        asked: The host has asked.
        lent: Loans to an actor in a process of its own for the call; notified when the call ends.
        room: Memory for the device arrays of its result, likewise.
        timer: Its time limit.
        overdue: Timer that runs once the caller has left (``abandoned_after``).
        made: Is told when the call began, if it had waited.
    """

    __slots__ = (
        *("__weakref__", "_told", "actor", "asked", "caller", "id", "lent", "made", "overdue", "reply", "room", "slot"),
        "timer",
    )

    def __init__(self, caller: "Caller", actor: "Resident", reply: Reply[Any], id: int = 0) -> None:
        self.caller = caller
        self.actor = actor
        self.id = id
        self.reply: Callable[[], Any] = weakref.ref(reply)
        self.slot: Slot | None = None
        self.asked = False
        self.lent: list[LentArguments | LentRoom] = []
        self.room: LentRoom | None = None
        self._told = False
        self.timer: asyncio.TimerHandle | None = None
        self.overdue: asyncio.TimerHandle | None = None
        self.made: CallsMade | None = None

    def _answer(self, value: Any) -> None:
        if type(value) is not bytes:
            raise TypeError(f"{value!r:.80} is not an encoded result")
        self.caller.ended(self)
        if self.lent:
            self._return_lent(None)
        try:
            parts: Any = decode(value)
            staged = parts[-1]
        except Exception as e:  # reported in place of the result, which cannot be decoded
            parts, staged = e, None
        slot = self.slot
        if type(staged) is int and staged >= 0:
            if staged or self.actor.expected.nbytes:
                self.actor.expected.saw(staged)
            if staged == 0 and slot is None and len(parts) == 3 and not parts[1] and type(parts[0]) is not list:
                reply = self.reply()  # a number, a truth value, a short text, or None
                if reply is not None and not reply.done():
                    reply._resolve(parts[0])
                return
        if slot is None or type(staged) is not int or not 0 < staged <= slot.nbytes:
            self._settle(parts, None)
            return
        own = np.empty(staged, np.uint8)
        self.caller.copy(own, slot.array[:staged], lambda: self._settle(parts, own))

    def _settle(self, parts: Any, memory: Array | None) -> None:
        """Runs also when the result is no longer awaited: its refs must be created in order to be freed."""
        if self.slot is not None:
            self.give_slot()
        result: Any = None
        error: Exception | None = None
        try:
            if isinstance(parts, Exception):
                raise parts
            if len(parts) == 4:  # the result itself is in the arena
                assert memory is not None
                offset, length, _, _ = parts
                parts = decode(memory[offset : offset + length].tobytes())
            packed, refs, _ = parts
            made: list[GpuRef[Any]] = []
            if refs:
                ref = self.caller.ref if self.room is None else self.room.ref
                made = [ref(*wire) for wire in refs]
            result = Unpacker(None if memory is None else _Own(memory), made, known_class).unpack(packed)
        except Exception as e:  # of a user's class that is made again here, or because a host's message is malformed
            error = ReplyError(f"the result cannot be put together here: {type(e).__name__}: {e}")
            e.add_note("".join(traceback.format_tb(e.__traceback__)))
            error.__cause__ = e.with_traceback(None)  # as text only: its frames hold the result's memory
        reply = self.reply()
        if reply is None or reply.done():
            return
        if error is None:
            reply._resolve(result)
        else:
            reply._reject(OpFailure(Cause(reply._port, functools.partial(_unreadable, error))))

    def _reject(self, failure: OpFailure) -> None:
        self.caller.ended(self, failed=True)
        self._return_lent(failure)
        self.give_slot()
        if self._told:
            failure.cause.told += 1
        reply = self.reply()
        if reply is not None and not reply.done():
            reply._reject(failure)

    def _return_lent(self, failure: OpFailure | None) -> None:
        lent, self.lent = self.lent, []
        for one in lent:
            one.over(failure)

    def fail_from(self, failure: OpFailure) -> None:
        """Fail the reply because its device arrays cannot be used; the call will not run, or not count."""
        self._told = True
        reply = self.reply()
        if reply is not None and not reply.done():
            reply._reject(failure)

    def expire(self, timeout: float, tag: str) -> None:
        """Fail the reply because its time limit has passed; the call is cancelled."""
        self.fail(AskTimeout(f"{tag}: no answer within {timeout:g} s; the call is cancelled"))
        self.caller.cancel(self.id)  # behind that: a host on the loop's thread answers at once

    def fail(self, error: AccelError) -> None:
        """Fail the reply here; later messages of the host are ignored."""
        reply = self.reply()
        if reply is not None and not reply.done():
            self._told = True
            reply._reject(OpFailure(Cause(reply._port, lambda _op, _ops: type(error)(*error.args))))

    def give_slot(self) -> None:
        """The memory for the result is not needed, or has been read."""
        slot, self.slot = self.slot, None
        if slot is not None:
            self.caller.give(slot)


def _unreadable(error: Exception, _op: object, _ops: int) -> ReplyError:
    unreadable = ReplyError(f"the result cannot be put together here: {type(error).__name__}: {error}")
    unreadable.__cause__ = error
    return unreadable


class _Own:
    """The arrays of one result, in memory of the asker's own."""

    __slots__ = ("_memory",)

    def __init__(self, memory: Array) -> None:
        self._memory = memory

    def array(self, dtype: "np.dtype[Any]", shape: tuple[int, ...], offset: int) -> Array:
        size = math.prod(shape) * dtype.itemsize
        if offset < 0 or offset + size > self._memory.nbytes:
            raise ValueError(f"an array reaches bytes {offset}..{offset + size} of a result of {self._memory.nbytes}")
        return self._memory[offset : offset + size].view(dtype).reshape(shape)
