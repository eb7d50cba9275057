"""Deferred element-wise functions, fused into one kernel with the op that reads them.

``a * x + y`` is two calls. Each returns a deferred ref (:class:`callboard.core.ref.DeferredRef`); the second holds the
first as a :class:`Part <callboard.arrays.parts.Part>`. When the sum is needed, both become one expression of
:mod:`callboard.kernel.elementwise`. The value of each part is rounded to its own dtype, so results equal those of
separate calls, except where a compiler contracts a product and a sum.
"""

import functools
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callboard.arrays.handles import Ref, numbers_of, submit
from callboard.arrays.indexing.rolling import Rolled
from callboard.arrays.parts import Part, Text, Typed, written
from callboard.core.dtype import DType
from callboard.core.errors import MailboxFull, ShapeError
from callboard.core.layout import OpenLayout, layout_of
from callboard.core.ref import Allocation, DeferredRef, GpuRef, HeldRef
from callboard.kernel.elementwise.program import compiled
from callboard.kernel.elementwise.promotion import ELEMENTS, Weak
from callboard.kernel.elementwise.shapes import broadcast

__all__ = ["Call", "call_of", "deferred", "fused", "rewritten"]

Made = Callable[[str, tuple[Ref, ...], dict[str, Any]], Any]
"""Makes an op of a text, its arrays and the fields of its numbers."""
KINDS: dict[type, Weak] = {bool: "bool", int: "int", float: "float", complex: "complex"}
TYPED = 1024
"""Kinds of arguments cached for one call; when there are more, the cache is cleared."""

_held = GpuRef.__dict__["allocation"].__get__  # the allocation of a ref; for a deferred ref, its future allocation


class Call:
    """A text that is called with arguments.

    Args:
        text: An expression, or a reduction of one.
        names: Names of the arguments, in the order in which they first appear in ``text``.

    Attributes:
        known: Typed forms by the key of :meth:`typed`.
    """

    __slots__ = ("known", "names", "template", "text")

    def __init__(self, text: str, names: tuple[str, ...]) -> None:
        places = {name: f"{{{at}}}" for at, name in enumerate(names)}
        self.text = text
        self.names = names
        self.template = re.sub(r"\b[A-Za-z_]\w*\b", lambda word: places.get(word[0], word[0]), text)
        self.known: dict[tuple[Any, ...], Typed] = {}

    def typed(self, key: tuple[Any, ...], values: Sequence[Any]) -> Typed | None:
        """Return the expression for these arguments; None if it cannot be called with them.

        Args:
            key: Wire forms of the arrays' layouts, types of the numbers.
            values: The arguments; only arrays are read.
        """
        found = self.known.get(key)
        if found is None:
            layouts = iter([x.layout for x in values if isinstance(x, GpuRef)])
            kinds = [KINDS.get(one) if isinstance(one, type) else next(layouts) for one in key]
            found = self._compiled(kinds, key)
            if found is not None:
                if len(self.known) >= TYPED:
                    self.known.clear()
                self.known[key] = found
        return found

    def _compiled(self, kinds: Sequence[Any], types: Sequence[Any]) -> Typed | None:
        layouts = [kind for kind in kinds if kind is not None and not isinstance(kind, str)]
        shape = broadcast([layout.shape for layout in layouts])
        if shape is None or None in kinds or any(layout.dtype not in ELEMENTS for layout in layouts):
            return None
        weak = tuple((name, kind) for name, kind in zip(self.names, kinds, strict=True) if isinstance(kind, str))
        try:
            program = compiled(self.text, tuple(layout.dtype for layout in layouts), weak)
        except ShapeError:
            return None
        dtype: DType = program.steps[program.results[0]].dtype
        halves = dtype.itemsize == 2 and dtype.is_float
        arrays = itertools.count()
        places = [type_ if isinstance(kind, str) else next(arrays) for kind, type_ in zip(kinds, types, strict=True)]
        return Typed(
            self.template,
            f"{dtype.name}({self.template})" if halves else self.template,
            program,
            layout_of(dtype, shape),
            any(program.steps[at].dtype.is_integer for at in program.numbers),
            tuple(at for at, kind in enumerate(kinds) if not isinstance(kind, str) and kind.shape != shape),
            written((self.template, *places)),
        )


@functools.lru_cache(maxsize=1024)
def call_of(text: str, names: tuple[str, ...]) -> Call:
    """A call of an expression, with its cached analysis."""
    return Call(text, names)


def deferred(call: Call, values: Sequence[Any]) -> Ref | None:
    """The result of a call, deferred; None if it has to be submitted now, or will be refused then.

    Args:
        call: The call; its text is an expression.
        values: Arrays and numbers, and whatever a user may pass for one.
    """
    for x in values:
        if isinstance(x, GpuRef):
            port: Any = x._port
            break
    else:
        return None
    deferrals = port.deferrals
    if deferrals is None or not deferrals.accepts():
        return None
    with deferrals.lock:  # another thread may need what it reads
        part = _part_of(call, values, port)
        if part is None:
            return None
        ref: DeferredRef[Any] = DeferredRef(port, part, part.layout, part._generation)
        part.pending_for(ref)
        deferrals.add(ref)
    return ref


def _part_of(call: Call, values: Sequence[Any], port: Any) -> Part | None:
    """A call as a part; None if it cannot be one."""
    generation = port.generation
    recording = port.deferrals.recording
    key: list[Any] = []
    arguments: list[Any] = []
    for x in values:
        if isinstance(x, GpuRef):
            layout = x.layout
            if x._port is not port or x.generation != generation or type(layout) is OpenLayout:
                return None
            key.append(layout.wire)
            held = x.allocation if type(x) is HeldRef else _held(x)
            if type(held) is Part or type(held) is Rolled:
                if held.recording is recording:
                    x, held = held, None
                else:  # of no recording, or of another one
                    held = x.allocation
            if held is not None and (held.foreign or (held.freed and (recording is None or not recording.makes(held)))):
                return None
        else:
            if isinstance(x, np.generic):
                x = x.item()
            key.append(type(x))
            if type(x) is int and not -(2**63) <= x < 2**64:
                return None
        arguments.append(x)
    kinds = tuple(key)
    typed = call.known.get(kinds) or call.typed(kinds, values)
    if typed is None:
        return None
    if typed.integers:
        try:
            typed.program.values([x for x in arguments if type(x) in KINDS])
        except ShapeError:
            return None
    for at in typed.spread:
        if type(arguments[at]) is Part or type(arguments[at]) is Rolled:
            arguments[at] = arguments[at].store()
    part = Part(port, generation, typed, arguments)
    if part.too_large or (part.rolls and part.spreads):
        kept = [one.store() if type(one) is Part or type(one) is Rolled else one for one in arguments]
        part = Part(port, generation, typed, kept)
    return part


def fused(call: Call, values: Sequence[Any], made: Made, written: Allocation | None = None) -> Any:
    """Submit a call now, with the parts that it reads; its reply.

    Args:
        call: The call; its text is an expression or a reduction of one.
        values: Arrays and numbers.
        made: Makes the op of a text, its arrays and the fields of its numbers.
        written: Memory that the op writes: parts that read it are computed first.

    Raises:
        OverflowError: An integer of more than 64 bits.
    """
    given = dict(zip(call.names, values, strict=True))
    arrays = [one for one in values if isinstance(one, GpuRef)]
    if DeferredRef in map(type, arrays):
        numbers_of({name: one for name, one in given.items() if not isinstance(one, GpuRef)})  # refuses large ones
        try:
            return _with_parts(call, values, made, written, broadcast([x.shape for x in arrays]), arrays[0]._port)
        except MailboxFull:
            pass  # a blocking device waits for room below, without the lock
    operands, fields = numbers_of(given)
    return submit(arrays[0], made(call.text, operands, fields))


def _with_parts(
    call: Call, values: Sequence[Any], made: Made, written: Allocation | None, shape: Any, port: Any
) -> Any:
    """Submit a call whose arrays have this shape together, with the parts that it reads."""
    deferrals = port.deferrals
    apart, recording = not deferrals.accepts(), deferrals.recording
    with deferrals.lock:  # until the op is queued: another thread may write what the parts read
        arguments: list[Any] = []
        for x in values:
            part = _held(x) if isinstance(x, GpuRef) and not apart else None
            if (
                type(part) is Part
                and part.recording is recording  # another's would be computed at each replay
                and x.shape == shape
                and not part.rolls
                and not (written and part.reads(written))
            ):
                arguments.append(part)
            else:
                arguments.append(x.item() if isinstance(x, np.generic) else x)
        text = Text()
        text.line(call.template, arguments)
        whole, read, scalars = text.whole()
        fields = {"scalars": tuple(scalars), "numbers": whole.names, "bools": whole.bools} if scalars else {}
        return port.submit(made(whole.expression, tuple(read), fields))


def rewritten(x: Ref, call: Call, values: Sequence[Any]) -> bool:
    """Write a call's result into ``x`` where that is deferred itself: it becomes that result. Says whether it has."""
    deferrals = x._port.deferrals
    if deferrals is None or not isinstance(x, DeferredRef) or not deferrals.accepts():
        return False
    with deferrals.lock:
        part = _part_of(call, values, x._port)
        if part is None or part.layout != x.layout:
            return False
        return deferrals.replace(x, part.pending_for(x))
