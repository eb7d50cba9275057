"""Autotune: the ways to lower one product are timed on the device, and the fastest is kept."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.tensor.cutensor import Refused
from callboard.backends.cuda.tensor.engine import Engine, Scratch
from callboard.core.errors import OutOfMemory
from callboard.core.layout import Layout
from callboard.kernel.tensor.lowering import Lowering

if TYPE_CHECKING:
    from callboard.backends.cuda.tensor.elementwise import Run
    from callboard.backends.cuda.tensor.products import Product
    from callboard.core.backend import Memory

__all__ = ["Make", "distinct", "fastest_first"]

TRIALS = 3
LAUNCHES = 4
MOST_WAYS = 8

Make = Callable[[Engine, Scratch], "Run"]
"""``make(engine, scratch)``: ``run(a, b, out, c, alpha, beta)``; may raise :class:`Refused`."""

_log = logging.getLogger("callboard.cuda")


def distinct(ways: Sequence[Lowering]) -> list[Lowering]:
    """One of those that copy the same operands and leave the matrices lying the same way, the first of each; a few."""
    found: dict[Any, Lowering] = {}
    for way in ways:
        stacks = (way.a, way.b, way.out)
        found.setdefault((way.outer, *(None if x is None else x.matrix.transposed for x in stacks)), way)
    return list(found.values())[:MOST_WAYS]


def fastest_first(engine: Engine, p: "Product", makes: Sequence[Make]) -> list[Make]:
    """The ways in the order of the time that they take, on operands of our own; as given if these find no room.

    It multiplies on a stream and a handle of its own: on the thread that prepares, beside the library's work.
    """
    bench = engine.bench()
    held: list[Memory] = []
    times: dict[Make, float] = {}
    try:
        addresses = [_room(engine, layout, held) for layout in (p.a.layout, p.b.layout, p.result.layout)]
        c = None if p.c is None else _room(engine, p.c.tensor.layout, held)
        alpha = _number(engine, p.alpha, held)
        beta = 0.0 if p.c is None else _number(engine, p.beta, held)
        for make in makes:
            scratch = Scratch()
            try:
                run = bench.cublas.guarded(make(bench, scratch), "autotune")
                scratch.base = bench.reserve(scratch.size)
                times[make] = _seconds(bench, lambda run=run: run(bench.cublas.stream, *addresses, c, alpha, beta))  # type: ignore[misc]
            except Refused:
                continue
            finally:
                scratch.close()
    except OutOfMemory as e:
        _log.info("autotune: the first way is taken, there is no room to try the others: %s", e)
        return list(makes)
    finally:
        bench.cublas.stream.synchronize()
        for memory in held:
            engine.device.release(memory)
    return sorted(times, key=times.__getitem__)


def _room(engine: Engine, layout: Layout, held: "list[Memory]") -> int:
    """Memory for an operand, all zeros; the address of its element 0."""
    low, high = layout.span
    memory = engine.device.allocate(max(high - low, 1))
    held.append(memory)
    bench = engine.bench().cublas
    bench.driver.check(bench.driver.memset_8(memory.address, 0, memory.nbytes, bench.stream.native), "cuMemsetD8Async")
    return memory.address - low


def _number(engine: Engine, field: Any, held: "list[Memory]") -> Any:
    """A factor: a 0-d array if the op has one."""
    return 1.0 if isinstance(field, int | float | complex) else _room(engine, field.layout, held)


def _seconds(bench: Engine, launch: Callable[[], None]) -> float:
    stream = bench.cublas.stream
    launch()  # performs one-time loading
    stream.synchronize()
    best = float("inf")
    for _ in range(TRIALS):
        started = time.perf_counter()
        for _ in range(LAUNCHES):
            launch()
        stream.synchronize()
        best = min(best, time.perf_counter() - started)
    return best
