"""Functions of elements that wait for what reads them, to be one kernel with it.

``a * x + y`` is two calls. The first gives a ref that is deferred (:class:`callboard.core.ref.DeferredRef`), and so
does the second, which knows the first as a :class:`Part` of it; when the sum is needed, both are one expression of
:mod:`callboard.kernel.elementwise`. What a part gives is rounded to its own dtype, so results are those of the calls
one by one, but for products and sums that a compiler joins.
"""

import functools
import re
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from callboard.arrays.handles import Ref, numbers_of
from callboard.core.dtype import DType
from callboard.core.errors import ShapeError
from callboard.core.layout import Layout, OpenLayout, layout_of
from callboard.core.ref import Allocation, DeferredRef, GpuRef, RefPort
from callboard.kernel.elementwise import Map
from callboard.kernel.elementwise.program import Program, compiled
from callboard.kernel.elementwise.promotion import Weak
from callboard.kernel.elementwise.shapes import broadcast
from callboard.kernel.elementwise.tree import Number

__all__ = ["Part", "deferred", "fused", "rewritten"]

PARTS = 48
"""Calls in one kernel."""
OPERANDS = 12
"""Arrays that one kernel reads: beyond that, addresses and steps take registers that the values need."""
AGAIN = 2
"""How many kernels compute a result that others read before it is stored: a kernel is as fast as memory, so that
computing once more costs less than storing and reading. More often it would cost whatever the call costs."""

KINDS: dict[type, Weak] = {bool: "bool", int: "int", float: "float", complex: "complex"}


class Typed(NamedTuple):
    """A call's text with its dtypes.

    Attributes:
        template: The text with a place for each argument.
        program: The typed text alone.
        dtype: Of the result.
        integers: Whether a number takes an integer dtype, which may not hold it.
    """

    template: str
    program: Program
    dtype: DType
    integers: bool


@functools.lru_cache(maxsize=4096)
def typed(text: str, names: tuple[str, ...], kinds: tuple[DType | Weak, ...]) -> Typed:
    """A text with the dtypes of its arrays and the kinds of its numbers.

    Raises:
        ShapeError: These dtypes have not the functions that it calls.
    """
    numbers = tuple((name, kind) for name, kind in zip(names, kinds, strict=True) if isinstance(kind, str))
    program = compiled(text, tuple(kind for kind in kinds if isinstance(kind, DType)), numbers)
    places = {name: f"{{{at}}}" for at, name in enumerate(names)}
    template = re.sub(r"\b[A-Za-z_]\w*\b", lambda word: places.get(word[0], word[0]), text)
    integers = any(program.steps[at].dtype.is_integer for at in program.numbers)
    return Typed(template, program, program.steps[program.results[0]].dtype, integers)


class Part:
    """A call that has not been computed (:class:`callboard.core.ref.Deferral`).

    Args:
        port: Of the device.
        template: Its text, with a place for each argument.
        arguments: Arrays that have memory, parts of the same shape, and numbers.
        layout: Of the result.
    """

    __slots__ = (
        "__weakref__",
        "_arguments",
        "_generation",
        "_leaves",
        "_port",
        "_ref",
        "_template",
        "layout",
        "origin",
        "result",
        "size",
        "uses",
    )

    size: int
    _leaves: frozenset[Ref]

    def __init__(
        self, port: RefPort, template: str, arguments: "tuple[Ref | Part | Number, ...]", layout: Layout
    ) -> None:
        self._port = port
        self._generation = port.generation
        self._template = template
        self._arguments: tuple[Any, ...] = arguments
        self._ref: weakref.ref[GpuRef[Any]] | None = None
        self.layout = layout
        self.origin: Any = None
        self.uses = 0
        self.result: Ref | None = None  # once it has been computed
        size, leaves = 1, frozenset[Ref]()
        for one in arguments:
            if type(one) is Part:
                size += one.size
                leaves |= one._leaves
            elif isinstance(one, GpuRef):
                leaves |= {one}
        self.size = size
        self._leaves = leaves

    def owed_to(self, ref: Ref) -> "Part":
        """The ref that it becomes."""
        self._ref = weakref.ref(ref)
        return self

    @property
    def too_large(self) -> bool:
        """Whether it is more than one kernel should compute."""
        return len(self._leaves) > OPERANDS or (self.size > PARTS and len(self._all({})) > PARTS)

    def _all(self, found: "dict[Part, None]") -> "dict[Part, None]":
        found[self] = None
        for one in self._arguments:
            if type(one) is Part and one not in found:
                one._all(found)
        return found

    def reads(self, allocation: Allocation) -> bool:
        """Whether it would read this memory."""
        if any(one.allocation is allocation for one in self._leaves):
            return True
        return any(part.result is not None and part.result.allocation is allocation for part in self._all({}))

    def message(self) -> Map:
        """The op that computes it."""
        text = Text()
        last = text.line(self, self._template)
        return Map(expression=text.ending(last), operands=tuple(text.operands), **text.fields())

    def made(self, ref: Ref) -> None:
        """It is this array from now on, for the parts that read it."""
        self.result = ref
        self._arguments, self._leaves, self.size = (), frozenset(), 0

    def store(self) -> Ref:
        """Its array, computed by a kernel of its own if there is none."""
        if self.result is not None:
            return self.result
        ref = None if self._ref is None else self._ref()
        if not isinstance(ref, DeferredRef) or ref.deferral is not self:  # dropped, or written since
            ref = DeferredRef(self._port, self, self.layout, self._generation)
        self._port.deferrals.submit(ref)  # type: ignore[union-attr] # there are some: it is one of them
        return ref


class Text:
    """The text of a kernel, as it is written.

    Attributes:
        operands: Its arrays, in the order of their first places.
    """

    def __init__(self) -> None:
        self.operands: list[Ref] = []
        self._lines: list[str] = []
        self._names: dict[Any, str] = {}
        self._numbers: list[Number] = []

    def line(self, part: Part, template: str) -> str:
        """What a part computes of its arguments, which have names before."""
        for one in part._arguments:
            if type(one) is Part:
                self.inline(one)
        return self.filled(template, part._arguments)

    def inline(self, part: Part) -> None:
        """Have a part computed, or read if it has been stored."""
        if part in self._names:
            return
        if part.result is None and part.uses >= AGAIN:
            part.store()
        if part.result is not None:
            return
        part.uses += 1
        line = self.line(part, part._template)
        dtype = part.layout.dtype
        if dtype.itemsize == 2 and dtype.is_float:
            line = f"{dtype.name}({line})"  # as it would have been stored
        name = self._names[part] = f"t{len(self._lines)}"
        self._lines.append(f"{name} = {line}")

    def filled(self, template: str, arguments: Any) -> str:
        """A template with the names of its arguments."""
        return template.format(*map(self._name, arguments))

    def _name(self, one: "Ref | Part | Number") -> str:
        if type(one) is Part:
            if one in self._names:
                return self._names[one]
            assert one.result is not None
            one = one.result
        if isinstance(one, GpuRef):
            name = self._names.get(id(one))
            if name is None:
                name = self._names[id(one)] = f"x{len(self.operands)}"
                self.operands.append(one)
            return name
        self._numbers.append(one)  # type: ignore[arg-type] # what is left is a number
        return f"n{len(self._numbers) - 1}"

    def ending(self, last: str) -> str:
        """The whole text."""
        return "; ".join([*self._lines, f"out = {last}"])

    def fields(self) -> dict[str, Any]:
        """What the numbers fill of a message."""
        if not self._numbers:
            return {}
        bools = tuple(f"n{i}" for i, x in enumerate(self._numbers) if isinstance(x, bool))
        names = tuple(f"n{i}" for i in range(len(self._numbers)))
        return {"scalars": tuple(self._numbers), "numbers": names, "bools": bools}


def deferred(text: str, given: Mapping[str, Any]) -> Ref | None:
    """The result of a call, deferred; None where it has to be submitted now, or will be refused then.

    Args:
        text: An expression of the arguments.
        given: Arrays and numbers, by name, in the order of their first places in the text.
    """
    first = next(x for x in given.values() if isinstance(x, GpuRef))
    port = first._port
    deferrals = port.deferrals
    if deferrals is None or not deferrals.accepts():
        return None
    part = part_of(text, given, port)
    if part is None:
        return None
    ref: DeferredRef[Any] = DeferredRef(port, part, part.layout, port.generation)
    part.owed_to(ref)
    deferrals.add(ref)
    return ref


def part_of(text: str, given: Mapping[str, Any], port: Any) -> Part | None:
    """A call as a part; None where it cannot be one."""
    kinds: list[Any] = []
    shapes: list[tuple[int, ...]] = []
    values: list[Any] = []
    for x in given.values():
        if isinstance(x, GpuRef):
            if x._port is not port or x.generation != port.generation or type(x.layout) is OpenLayout:
                return None
            kinds.append(x.dtype)
            shapes.append(x.shape)
        else:
            x = x.item() if isinstance(x, np.generic) else x
            kinds.append(KINDS.get(type(x)) if type(x) is not int or -(2**63) <= x < 2**64 else None)
        values.append(x)
    shape = shapes[0] if len(shapes) == 1 or shapes.count(shapes[0]) == len(shapes) else broadcast(shapes)
    if shape is None or None in kinds:
        return None
    try:
        call = typed(text, tuple(given), tuple(kinds))
        if call.integers:
            call.program.values([x for x in values if not isinstance(x, GpuRef)])
    except ShapeError:
        return None
    arguments: list[Any] = []
    for x in values:
        one = x
        if isinstance(x, GpuRef):
            known = x.deferral if isinstance(x, DeferredRef) else None
            if type(known) is Part and x.shape == shape:
                one = known
            elif (memory := x.allocation).freed or memory.foreign:
                return None
        arguments.append(one)
    part = Part(port, call.template, tuple(arguments), layout_of(call.dtype, shape))
    if part.too_large:
        stored = tuple(one.store() if type(one) is Part else one for one in arguments)
        part = Part(port, call.template, stored, part.layout)
    return part


def fused(
    text: str, given: Mapping[str, Any], written: Allocation | None = None
) -> tuple[str, tuple[Ref, ...], dict[str, Any]]:
    """A call that is submitted now, with the parts that it reads: its text, arrays, and the fields of its numbers.

    Args:
        text: An expression of the arguments, or a reduction of one.
        given: Arrays and numbers, by name, in the order of their first places in the text.
        written: Memory that the op writes: what reads that is computed before.
    """
    parts: dict[Ref, Any] = {x: x.deferral for x in given.values() if isinstance(x, DeferredRef)}
    if not parts:
        operands, fields = numbers_of(given)
        return text, operands, fields
    shape = broadcast([x.shape for x in given.values() if isinstance(x, GpuRef)])
    arguments: list[Any] = []
    into = Text()
    deferrals = next(iter(parts))._port.deferrals
    apart = (
        deferrals is None or not deferrals.accepts()
    )  # in a recording: a part of it would be computed at each replay
    for x in given.values():
        part = parts.get(x) if isinstance(x, GpuRef) and not apart else None
        if type(part) is Part and x.shape == shape and not (written and part.reads(written)):
            into.inline(part)
            arguments.append(part)
        else:
            arguments.append(x.item() if isinstance(x, np.generic) else x)
    numbers_of({name: x for name, x in given.items() if not isinstance(x, GpuRef)})  # refuses those of over 64 bits
    template = _template(text, tuple(given))
    return into.ending(into.filled(template, arguments)), tuple(into.operands), into.fields()


@functools.lru_cache(maxsize=1024)
def _template(text: str, names: tuple[str, ...]) -> str:
    places = {name: f"{{{at}}}" for at, name in enumerate(names)}
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda word: places.get(word[0], word[0]), text)


def rewritten(x: Ref, text: str, given: Mapping[str, Any]) -> bool:
    """Write a call's result into ``x`` where that is deferred itself: it becomes that result. Says whether it has."""
    deferrals = x._port.deferrals
    if deferrals is None or not isinstance(x, DeferredRef) or not deferrals.accepts():
        return False
    part = part_of(text, given, x._port)
    if part is None or part.layout != x.layout:
        return False
    return deferrals.replace(x, part.owed_to(x))
