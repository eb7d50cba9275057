"""Parts: calls that have not been computed, and the kernels' texts that they become parts of.

A text is written once for all kernels that are alike: a kernel is looked up by the templates of its calls and by which
arrays and calls each of them reads.
"""

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from callboard.arrays.handles import Ref
from callboard.arrays.indexing.rolling import Rolled
from callboard.core.layout import Layout
from callboard.core.op import Repeated, info_of
from callboard.core.ref import Allocation, DeferredRef, GpuRef, RefPort, deferral_of
from callboard.kernel.elementwise import Map
from callboard.kernel.elementwise.program import Program
from callboard.kernel.elementwise.tree import Number

__all__ = ["Part", "Text", "Typed", "written"]

repeated = tuple.__new__  # a NamedTuple's own constructor costs twice as much

PARTS = 48
"""Calls in one kernel."""
OPERANDS = 12
"""Arrays that one kernel reads: beyond that, addresses and steps take registers that the values need."""
AGAIN = 2
"""The number of kernels that may compute a shared result before it is stored: a kernel is as fast as memory, so that
computing once more costs less than storing and reading. More often it would cost whatever the call costs."""
TEXTS = 8192
"""Texts that are kept; beyond that it begins anew."""
KNOWN = 256
"""Kinds of arrays and numbers cached for one text."""


class Typed(NamedTuple):
    """A call of arrays of certain layouts and numbers of certain kinds.

    Attributes:
        template: Its text, with a place for each argument.
        rounded: The text of its value as it would be stored.
        program: The typed text alone.
        layout: Layout of the result.
        integers: True if a number takes an integer dtype, which may not hold it.
        spread: Indices of the array arguments whose shape differs from the result's.
        alone: A kernel of this call alone whose arrays are different ones.
    """

    template: str
    rounded: str
    program: Program
    layout: Layout
    integers: bool
    spread: tuple[int, ...]
    alone: "Written"


class Part:
    """A call that has not been computed (:class:`callboard.core.ref.Deferral`).

    Args:
        port: Port of the device.
        generation: Generation that the arrays belong to.
        call: The call and the types of its arguments.
        arguments: Arrays that have memory, parts of the same shape, rolled arrays, and numbers.

    Attributes:
        rolls: An array that it reads is rolled.
        spreads: One that it reads has another shape. Not both: such an array cannot be rolled beside others.
    """

    __slots__ = (
        "_arguments",
        "_arrays",
        "_call",
        "_generation",
        "_port",
        "_ref",
        "_size",
        "layout",
        "origin",
        "recording",
        "result",
        "rolls",
        "spreads",
        "trace",
        "uses",
    )

    _size: int
    _arrays: int

    def __init__(
        self, port: RefPort, generation: int, call: Typed, arguments: "Sequence[Ref | Part | Rolled | Number]"
    ) -> None:
        self._port = port
        self._generation = generation
        self._call = call
        self._arguments: Sequence[Any] = arguments
        self._ref: weakref.ref[GpuRef[Any]] | None = None
        self.layout = call.layout
        self.origin: Any = None
        self.trace: str | None = None
        self.recording: Any = None
        self.uses = 0
        self.result: Ref | None = None  # once it has been computed
        self.rolls, self.spreads = False, bool(call.spread)
        size, arrays = 1, 0  # calls and arrays, which are bounded: an operand read twice counts twice
        for one in arguments:
            if type(one) is Part:
                size += one._size
                arrays += one._arrays
                self.rolls = self.rolls or one.rolls
                self.spreads = self.spreads or one.spreads
            elif type(one) is Rolled:
                arrays += 1
                self.rolls = True
            elif isinstance(one, GpuRef):
                arrays += 1
        self._size = size
        self._arrays = arrays

    def pending_for(self, ref: Ref) -> "Part":
        """The ref that it becomes."""
        self._ref = weakref.ref(ref)
        return self

    @property
    def too_large(self) -> bool:
        """True if the expression is too large for one kernel."""
        if self._size <= PARTS and self._arrays <= OPERANDS:
            return False
        there = self._all({})
        return len(there) > PARTS or len(_arrays(there)) > OPERANDS

    def _all(self, found: "dict[Part, None]") -> "dict[Part, None]":
        found[self] = None
        for one in self._arguments:
            if type(one) is Part and one not in found:
                one._all(found)
        return found

    def reads(self, allocation: Allocation) -> bool:
        """True if it would read this memory."""
        return any(one.allocation is allocation for one in _arrays(self._all({})).values())

    def message(self) -> Map | Repeated:
        """The op that computes it."""
        arguments = self._arguments
        if self._size > 1 or self.rolls or (len(arguments) > 1 and _repeats(arguments)):
            text = Text()
            text.line(self._call.template, arguments)
            whole, operands, scalars = text.whole()
            return whole.message(operands, scalars, text.shifts)
        operands, scalars = [], []  # the usual one is put together at once
        for one in arguments:
            (operands if isinstance(one, GpuRef) else scalars).append(one)
        return self._call.alone.message(operands, scalars)

    def made(self, ref: Ref) -> None:
        """It is this array from now on, for the parts that read it."""
        self.result = ref
        self._arguments, self._size, self._arrays = (), 0, 1
        self.rolls = self.spreads = False

    def store(self) -> Ref:
        """Return its array; computes it with a kernel of its own if it has none."""
        deferrals = self._port.deferrals
        assert deferrals is not None  # it is one of them
        with deferrals.lock:
            if self.result is not None:
                return self.result
            ref = None if self._ref is None else self._ref()
            if ref is None or deferral_of(ref) is not self:  # dropped, or written since
                ref = DeferredRef(self._port, self, self.layout, self._generation)
            deferrals.submit(ref)
            return ref


def _repeats(arguments: Sequence[Any]) -> bool:
    """True if an argument occurs twice."""
    if len(arguments) == 2:
        return arguments[0] is arguments[1]
    return len(set(map(id, arguments))) < len(arguments)


def _arrays(parts: "dict[Part, None]") -> dict[int, Ref]:
    """The arrays that these parts read or are, by identity: refs compare by elements."""
    found = {id(one): one for part in parts for one in part._arguments if isinstance(one, GpuRef)}
    found |= {id(one): one.source for part in parts for one in part._arguments if type(one) is Rolled}
    return found | {id(part.result): part.result for part in parts if part.result is not None}


class Written(NamedTuple):
    """A text that has been written.

    Attributes:
        expression: The text, shared by all kernels of this form.
        names: Names of the numbers in the text.
        bools: The names of numbers that are bools.
        known: Signatures by the layouts of the arrays and the types of the numbers.
    """

    expression: str
    names: tuple[str, ...]
    bools: tuple[str, ...]
    known: dict[tuple[Any, ...], bytes]

    def message(
        self, operands: list[Ref], scalars: list[Number], shifts: tuple[tuple[int, ...], ...] = ()
    ) -> Map | Repeated:
        """The op of these checked arrays and numbers; a :class:`Repeated` if there was one like it."""
        names, bools = self.names, self.bools

        def made() -> Map:
            arrays, numbers = tuple(operands), tuple(scalars)
            given = {"scalars": numbers, "numbers": names, "bools": bools, "shifts": shifts}
            return Map(expression=self.expression, operands=arrays, **given)  # type: ignore[arg-type]

        if scalars:
            if bools or complex in map(type, scalars):
                return made()
            key = (*[one.layout.wire for one in operands], *map(type, scalars))
        else:
            key = tuple([one.layout.wire for one in operands])
        if shifts:
            key = (*key, shifts)
        signature = self.known.get(key)
        if signature is not None:
            return repeated(Repeated, (signature, operands, scalars, made))
        message = made()
        if len(self.known) < KNOWN:
            self.known[key] = info_of(Map).split(message).signature
        return message


class Text:
    """The text of a kernel, as it is composed."""

    __slots__ = ("_key", "_lines", "_operands", "_places", "_rolled", "_scalars")

    def __init__(self) -> None:
        self._operands: list[Ref] = []
        self._scalars: list[Number] = []
        self._places: dict[int, int] = {}  # of arrays and parts, by identity
        self._rolled: dict[tuple[int, tuple[int, ...]], int] = {}  # places of rolled arrays
        self._lines: list[Part | None] = []  # the part of each line; held because it is keyed by identity
        self._key: list[Any] = []

    def line(self, template: str, arguments: Sequence[Any], part: Part | None = None) -> None:
        """Add the text of a call; the parts that it reads precede it."""
        places = self._places
        for one in arguments:
            if type(one) is Part and id(one) not in places:
                self.inline(one)
        key = self._key
        key.append(template)
        for one in arguments:
            place = places.get(id(one))
            if place is None:
                if type(one) is Part:
                    place = self._operand(one.result)
                elif type(one) is Rolled:
                    place = self._rolling(one)
                elif isinstance(one, GpuRef):
                    place = self._operand(one)
                else:
                    self._scalars.append(one)
                    key.append(type(one))
                    continue
            key.append(place)
        self._lines.append(part)

    def inline(self, part: Part) -> None:
        """Have a part computed, or read if it has been stored."""
        if id(part) in self._places:
            return
        if part.result is None and part.uses >= AGAIN:
            part.store()
        if part.result is not None:
            return
        part.uses += 1
        self.line(part._call.rounded, part._arguments, part)
        self._places[id(part)] = -len(self._lines)

    def _operand(self, x: Any) -> int:
        place = self._places.get(id(x))
        if place is None:
            place = self._places[id(x)] = len(self._operands)
            self._operands.append(x)
        return place

    def _rolling(self, one: Rolled) -> int:
        if one.result is not None:
            return self._operand(one.result)
        one.uses += 1
        key = id(one.source), one.by
        place = self._rolled.get(key)
        if place is None:
            place = self._rolled[key] = len(self._operands)
            self._operands.append(one.source)
        return place

    @property
    def shifts(self) -> tuple[tuple[int, ...], ...]:
        """By how much each of the arrays is rolled; empty if none is."""
        if not self._rolled:
            return ()
        by = {place: key[1] for key, place in self._rolled.items()}
        none = (0,) * len(next(iter(by.values())))
        return tuple(by.get(place, none) for place in range(len(self._operands)))

    def whole(self) -> tuple[Written, list[Ref], list[Number]]:
        """The expression text, its arrays in order of first use, and its numbers."""
        return written(tuple(self._key)), self._operands, self._scalars


_written: dict[tuple[Any, ...], Written] = {}


def written(key: tuple[Any, ...]) -> Written:
    """The text of these lines.

    Args:
        key: For each line its template and its arguments; an argument is an array's number, ``~`` and the number of a
            line, or the type of a number.
    """
    found = _written.get(key)
    if found is None:
        if len(_written) >= TEXTS:
            _written.clear()
        found = _written[key] = _write(key)
    return found


def _write(key: tuple[Any, ...]) -> Written:
    starts = [at for at, one in enumerate(key) if type(one) is str]
    lines: list[str] = []
    bools: list[str] = []
    numbers = 0
    for start, end in zip(starts, [*starts[1:], len(key)], strict=True):
        names = []
        for one in key[start + 1 : end]:
            if type(one) is int:
                names.append(f"x{one}" if one >= 0 else f"t{-one - 1}")
                continue
            names.append(f"n{numbers}")
            if one is bool:
                bools.append(names[-1])
            numbers += 1
        target = f"t{len(lines)}" if end < len(key) else "out"
        lines.append(f"{target} = {key[start].format(*names)}")
    return Written("; ".join(lines), tuple(f"n{i}" for i in range(numbers)), tuple(bools), {})
