"""Small ops on a device of another node beside calls of a Ray actor there, and beside ops on a device of this machine.

    python benchmarks/cluster.py --json cluster.json
    python benchmarks/cluster.py --quick

A Ray cluster of two nodes is started on this machine: the head, and the node that the device and the actors are on. The
work is a sum of two arrays of 1,000 f32, so that the calls are what is measured:

* ``y += x``: the op writes an array that is there; the actor has both arrays, its method names nothing and gives
  nothing, which is the least that Ray can do. Its calls are waited for by ``ray.wait``, or by ``ray.get``.
* ``x + y``: the op takes refs and gives a ref; so does the call, whose operands and result are Ray's refs. Sums are not
  fused (``fuse=False``): each is an op of its own.

Pipelined: the next 1,024 calls are made before the last of the 1,024 before them is waited for. Awaited: each is waited
for before the next. "This machine" is a device with isolation by process: what a remote op could cost at best. The
processor time of a call is that of this process and all below it: application, relaying process and host, or
application, Ray's daemons and the actor. All processes have the same priority. It needs the extra ``ray``.
"""

import asyncio
import importlib.util
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

from _harness import Bar, Figures, arguments, interleave, ratios, table, tell_bars
from _record import Record

ONE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
EQUAL = {"RAY_worker_niceness": "0"}  # Ray gives its workers, the node's host among them, a low priority
os.environ.update({**ONE, **QUIET, **EQUAL})

import numpy as np  # noqa: E402

import callboard as cb  # noqa: E402

SHAPE = 25, 40
WINDOW = 1024
STORE = 100 << 20
LEAST = 10.0
HERE, THERE = "callboard, this machine", "callboard, a node"
RAY, GOT = "Ray", "Ray, ray.get"


class Adder:
    """What an actor of Ray does: the same sums."""

    def __init__(self) -> None:
        self._x, self._y = np.ones(SHAPE, "f4"), np.zeros(SHAPE, "f4")

    def of(self, one: Any, other: Any) -> Any:
        return one + other

    def keep(self) -> None:
        self._y += self._x


async def ours(call: Callable[[], cb.GpuRef], count: int, window: int) -> None:
    before: cb.GpuRef | None = None
    for _ in range(count // window):
        for _ in range(window):
            last = call()
        if before is not None:
            await before
        if window == 1:
            await last
        before = last
    await last


def theirs(call: Callable[[], Any], settle: Callable[[list[Any]], object], count: int, window: int) -> None:
    before: list[Any] = []
    for _ in range(count // window):
        made = [call() for _ in range(window)]
        if before:
            settle(before)
        if window == 1:
            settle(made)
        before = made
    settle(before)


def processor_time() -> float:
    """Seconds of this process and all below it."""
    spent, left = 0.0, deque([os.getpid()])
    while left:
        folder = Path(f"/proc/{left.popleft()}")
        try:
            fields = (folder / "stat").read_text("utf-8").rpartition(")")[2].split()
            children = [(task / "children").read_text("ascii") for task in (folder / "task").iterdir()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        spent += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        left.extend(int(pid) for line in children for pid in line.split())
    return spent


class Meter:
    """Measures subjects: seconds of a call, and beside them its processor time."""

    def __init__(self) -> None:
        self.processor: Figures = {}

    def subject(self, name: str, count: int, run: Callable[[int], None]) -> Callable[[], float]:
        """One that makes ``count`` calls."""
        spent = self.processor[name] = []

        def measure() -> float:
            before, began = processor_time(), time.perf_counter()
            run(count)
            took = time.perf_counter() - began
            spent.append((processor_time() - before) / count)
            return took / count

        return measure


async def opened(cluster: cb.Cluster, node: str, stack: AsyncExitStack) -> dict[str, tuple[cb.Device, Any, Any]]:
    """The devices, each with its arrays."""
    here = await stack.enter_async_context(cb.device("cpu", isolation="process", standby=None, fuse=False))
    there = await cluster.device("cpu", node=node, fuse=False)
    found = {}
    for name, device in ((HERE, here), (THERE, there)):
        x, y = device.put(np.ones(SHAPE, "f4")), device.put(np.zeros(SHAPE, "f4"))
        await (x + device.blas.axpy(x, y))
        found[name] = device, x, y
    return found


def main() -> None:
    given = arguments(__doc__, rounds=9)
    record = Record("cluster", given)
    bar = "ops per second beside {}, pipelined"
    least, usual = bar.format("a Ray actor's least call"), bar.format("a Ray actor's calls with refs")
    if importlib.util.find_spec("ray") is None:
        print("Ray is not installed: pip install 'callboard[ray]'", file=sys.stderr)
        record.done(tell_bars([Bar(least, None, LEAST, at_least=True)]))
        return
    import ray
    from ray.cluster_utils import Cluster

    with asyncio.Runner() as runner, ExitStack() as stack:
        head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
        machine = Cluster(initialize_head=True, head_node_args=head)
        stack.callback(machine.shutdown)
        node = machine.add_node(num_cpus=2, object_store_memory=STORE).node_id
        ray.init(address=machine.address, log_to_driver=False, logging_level="error")
        stack.callback(ray.shutdown)
        opening = AsyncExitStack()
        stack.callback(lambda: runner.run(opening.aclose()))
        cluster = runner.run(opening.enter_async_context(cb.cluster("auto")))
        devices = runner.run(opened(cluster, node, opening))
        actor = ray.remote(Adder).options(num_cpus=1).remote()
        operand = ray.put(np.ones(SHAPE, "f4"))
        ray.get([actor.of.remote(operand, operand), actor.keep.remote()])

        def wait(made: list[Any]) -> None:
            ray.wait(made, num_returns=len(made))

        def node_of(op: str, name: str, window: int) -> Callable[[int], None]:
            device, x, y = devices[name]
            call = {"y += x": lambda: device.blas.axpy(x, y), "x + y": lambda: x + y}[op]
            return lambda count: runner.run(ours(call, count, window))

        def actor_of(op: str, settle: Callable[[list[Any]], object], window: int) -> Callable[[int], None]:
            call = {"y += x": actor.keep.remote, "x + y": lambda: actor.of.remote(operand, operand)}[op]
            return lambda count: theirs(call, settle, count, window)

        many = WINDOW * (4 if given.quick else 16)
        found: dict[str, Figures] = {}
        spent: dict[str, Figures] = {}
        for op, how, window, count, count_of_ray in (
            ("y += x", "pipelined", WINDOW, many, many // 4),
            ("x + y", "pipelined", WINDOW, many, WINDOW),
            ("y += x", "awaited", 1, 400, 400),
        ):
            meter = Meter()
            subjects = {name: meter.subject(name, count, node_of(op, name, window)) for name in (HERE, THERE)}
            subjects[RAY] = meter.subject(RAY, count_of_ray, actor_of(op, wait, window))
            if op == "y += x" and window > 1:
                subjects[GOT] = meter.subject(GOT, count_of_ray, actor_of(op, ray.get, window))
            title = f"{op}, {how}"
            found[title] = interleave(subjects, given.rounds, title)
            record[title] = table(title, found[title], micros, THERE)
            rounds = len(found[title][THERE])  # fewer where it was told to end
            spent[title] = {name: values[:rounds] for name, values in meter.processor.items()}
            record[f"{title}: processor time"] = table(f"{title}: processor time", spent[title], micros, THERE)
        times = {
            least: ratios(found["y += x, pipelined"], RAY, THERE),
            f"{least}, by processor time": ratios(spent["y += x, pipelined"], RAY, THERE),
            usual: ratios(found["x + y, pipelined"], RAY, THERE),
        }
        record.done(tell_bars([Bar(what, r and r["median"], LEAST, at_least=True) for what, r in times.items()]))


def micros(value: float) -> str:
    return f"{value * 1e6:.1f} us"


if __name__ == "__main__":
    main()
