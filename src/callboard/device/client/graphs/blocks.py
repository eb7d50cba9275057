"""Blocks of a recording: ops that run depending on a value on the device."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from callboard.core.dtype import as_dtype
from callboard.core.errors import GpuRefStale, ShapeError
from callboard.core.layout import layout_of
from callboard.core.operand import Role
from callboard.core.ref import GpuRef
from callboard.device.client.graphs.recorder import OpRecorder, where_called
from callboard.device.client.graphs.script import ArrayUse, Chosen
from callboard.device.protocol.recording import MOST_BODIES

if TYPE_CHECKING:
    from callboard.device.client.line.port import OpPort

INDICES = frozenset({"i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"})
VALUES = INDICES | {"bool", "f16", "bf16", "f32", "f64"}

__all__ = ["Cases", "else_block", "if_block", "switch_block", "while_block"]


@contextmanager
def if_block(taken: OpRecorder, value: GpuRef[Any]) -> Iterator[None]:
    """See :meth:`Recording.if_`."""
    with _body(taken, _begun(taken, "if", value)):
        yield


@contextmanager
def else_block(taken: OpRecorder) -> Iterator[None]:
    """See :meth:`Recording.else_`."""
    taken.flush()
    block, *here = taken.ended or (None,)
    if block is None or here != [len(taken.ops), len(taken.open)] or block.kind != "if" or len(block.bodies) > 1:
        raise RuntimeError("else_: it follows the block of an if_, with no op in between")
    with _body(taken, block):
        yield


@contextmanager
def while_block(taken: OpRecorder, port: "OpPort", value: GpuRef[Any], most: int | None) -> Iterator[GpuRef[Any]]:
    """See :meth:`Recording.while_`."""
    if most is not None and (type(most) is not int or most < 1):
        raise ValueError(f"while_: most is {most!r}; use a positive int, or None for any number of turns")
    layout = layout_of(as_dtype("i64"), ())
    allocation = taken.make(layout.nbytes)
    turns: GpuRef[Any] = GpuRef(port, allocation, layout, port.generation)
    turns._resolve()
    counted = ArrayUse(allocation.id, 0, layout, Role.OUT, "turns")
    with _body(taken, _begun(taken, "while", value, counted, most or 0)):
        yield turns


class Cases:
    """The cases of a switch: ``with case(0): …``."""

    def __init__(self, taken: OpRecorder, block: Chosen) -> None:
        self._taken = taken
        self._block = block
        self._next = 0

    @contextmanager
    def __call__(self, number: int) -> Iterator[None]:
        """Record ops that run if the value is ``number``. Cases are in ascending order; other numbers run nothing.

        Raises:
            ValueError: The number is not above that of the case before, or not less than 64.
        """
        if self._block not in self._taken.blocks:
            raise RuntimeError("case: an exception has left a case of this switch; begin it again")
        if not self._next <= number < MOST_BODIES:
            raise ValueError(f"case: {number}; use ascending numbers from {self._next} to {MOST_BODIES - 1}")
        self._taken.flush()
        at = len(self._taken.ops)
        self._block.bodies += [(at, at)] * (number - self._next)
        self._next = number + 1
        with _body(self._taken, self._block):
            yield


@contextmanager
def switch_block(taken: OpRecorder, value: GpuRef[Any]) -> Iterator[Cases]:
    """See :meth:`Recording.switch`."""
    block = _begun(taken, "switch", value)
    first = len(taken.ops)
    try:
        yield Cases(taken, block)
        taken.flush()
        if block not in taken.blocks or not block.bodies or block.first == block.end:
            raise ValueError("switch: no op was called in its cases")
        if sum(end - begin for begin, end in block.bodies) != len(taken.ops) - first:
            raise ValueError("switch: an op was called outside its cases; call it before the switch, or in a case")
    except BaseException:  # any exception: the block is abandoned, and it is raised again
        _forget(taken, block, first)
        raise


def _begun(taken: OpRecorder, kind: str, value: GpuRef[Any], turns: ArrayUse | None = None, most: int = 0) -> Chosen:
    what = "switch" if kind == "switch" else f"{kind}_"
    if not isinstance(value, GpuRef):
        raise TypeError(f"{what}: {type(value).__name__} is not a GpuRef; a number decides before the recording")
    if not taken.usable(value):
        raise GpuRefStale(f"{what}: {value.layout!r} cannot be used here", value._why_stale() or "context rebuilt")
    taken.flush()
    taken.check_block(value, what)
    if value.shape != () or value.dtype.name not in (INDICES if kind == "switch" else VALUES):
        wanted = "0-d array of integers" if kind == "switch" else "0-d array of real numbers or of bool"
        raise ShapeError(f"{what}: the value is {value.layout!r}; use a {wanted}")
    allocation = value.allocation
    if allocation.id not in taken.own:
        taken.given[allocation.id] = allocation
    use = ArrayUse(allocation.id, value.offset, value.layout, Role.IN, "value")
    block = Chosen(kind, use, turns, most, [], set(), where_called(f"graph.{kind}", 4))
    taken.blocks.append(block)
    return block


@contextmanager
def _body(taken: OpRecorder, block: Chosen) -> Iterator[None]:
    taken.flush()
    first = len(taken.ops)
    taken.open.append(block)
    try:
        yield
        taken.flush()
        if first == len(taken.ops) and block.kind != "switch":
            raise ValueError(f"{block.kind}: no op of this device was called in its block")
    except BaseException:  # any exception: the block is abandoned, and it is raised again
        taken.flush()
        taken.close_block(block)
        _forget(taken, block, first)
        raise
    taken.close_block(block)
    block.bodies.append((first, len(taken.ops)))


def _forget(taken: OpRecorder, block: Chosen, first: int) -> None:
    """An exception has left a block: nothing of it is recorded."""
    begin = block.first if block.bodies else first
    del taken.ops[begin:]
    taken.blocks = [b for b in taken.blocks if b is not block and (not b.bodies or b.end <= begin)]
    taken.ended = None
