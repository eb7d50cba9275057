"""Selection of the fastest engine by timing on a separate stream, on temporary operands."""

import ctypes
import logging
from ctypes import c_float, c_void_p
from typing import TYPE_CHECKING, Any

from callboard.core.errors import AccelError, OutOfMemory, UnsupportedOp

if TYPE_CHECKING:
    from callboard.backends.cuda.dnn.frontend import Frontend, GraphBuilder, Planned
    from callboard.core.backend import Memory
    from callboard.core.layout import Layout

__all__ = ["fastest"]

RUNS = 5
FILL = 0x3A
"""A byte that makes small positive numbers of every floating type: operands of zeros would draw less power."""

_log = logging.getLogger("callboard.cuda")


def fastest(frontend: "Frontend", g: "GraphBuilder", tag: str, most: int) -> int:
    """The engine that has the smallest time of several runs among the first that can be made: its index in the graph.

    One that fails is passed over. Where there is nothing to choose, or no room to time them, it is the first.

    Raises:
        UnsupportedOp: None can be made, or none runs.
    """
    plans = _made(frontend, g, tag, most)
    if len(plans) == 1:
        return next(iter(plans))
    device, driver = frontend.device, frontend.device.driver
    stream = device.stream()
    held: list[Memory] = []
    events: list[int] = []
    times: dict[int, float] = {}
    why: AccelError | None = None
    try:
        addresses = [_filled(frontend, layout, held, stream.native) for layout in g.operands]
        room = device.allocate(max(1, *(plan.workspace for plan in plans.values())))
        held.append(room)
        for _ in range(2):
            event = c_void_p()
            driver.event_create(ctypes.byref(event), 0)
            events.append(event.value or 0)
        handle = frontend.cudnn.preparing_on(stream.native)
        for index, plan in plans.items():
            try:
                times[index] = _seconds(driver, plan, handle, addresses, room.address, stream.native, events)
            except AccelError as e:
                why = e
                _log.info("%s: engine %s is passed over: %s", tag, g.raw.get_plan_name_at_index(index), e)
    except OutOfMemory as e:
        _log.info("%s: heuristics choose, there is no room to time engines: %s", tag, e)
    finally:
        stream.synchronize()
        frontend.cudnn.preparing_on(0)
        for made in events:
            driver.event_destroy(made)
        for memory in held:
            device.release(memory)
        stream.close()
    if not times and why is not None:
        raise UnsupportedOp(f"cuda, {tag}: cuDNN has no engine that runs: {why}")
    return min(times or plans, key=lambda index: times.get(index, 0.0))


def _made(frontend: "Frontend", g: "GraphBuilder", tag: str, most: int) -> "dict[int, Planned]":
    from callboard.backends.cuda.dnn.frontend import Planned

    plans: dict[int, Planned] = {}
    why = ""
    for index in range(int(g.raw.get_execution_plan_count())):
        if len(plans) == most:
            break
        try:
            g.raw.build_plan_at_index(index)
            plans[index] = Planned(frontend, g.raw, tag, len(g.operands), g.scalars, index)
        except OutOfMemory:
            raise
        except Exception as e:  # an engine that heuristics name need not take the graph
            why = str(e)
    if not plans:
        raise UnsupportedOp(f"cuda, {tag}: cuDNN has no engine for it: {why}")
    return plans


def _filled(frontend: "Frontend", layout: "Layout", held: "list[Memory]", stream: int) -> int:
    low, high = layout.span
    memory = frontend.device.allocate(max(high - low, 1))
    held.append(memory)
    driver = frontend.device.driver
    driver.check(driver.memset_8(memory.address, FILL, max(high - low, 1), stream), "cuMemsetD8Async")
    return memory.address - low


def _seconds(
    driver: Any, plan: "Planned", handle: int, addresses: list[int], workspace: int, stream: int, events: list[int]
) -> float:
    plan.enqueue(handle, addresses, workspace)
    best = float("inf")
    for _ in range(RUNS):
        driver.check(driver.event_record(events[0], stream), "cuEventRecord")
        plan.enqueue(handle, addresses, workspace)
        driver.check(driver.event_record(events[1], stream), "cuEventRecord")
        driver.event_synchronize(events[1])
        elapsed = c_float()
        driver.event_elapsed(ctypes.byref(elapsed), *events)
        best = min(best, elapsed.value)
    return best
