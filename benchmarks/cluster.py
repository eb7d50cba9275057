"""Ops on a device of another node beside calls of a Ray actor there, with the same product of NumPy.

    python benchmarks/cluster.py --json cluster.json
    python benchmarks/cluster.py --quick

A Ray cluster of two nodes is started on this machine: the head, and the node that the device and the actors are on. The
product is of f32, 64 by 64, of one BLAS thread. An op takes refs and gives a ref; so does the call that it is compared
with, whose operands and result are Ray's refs. A second actor keeps its arrays to itself: its calls name nothing and
give nothing, the least that Ray can do. Pipelined: the next 1,024 calls are made before the last of the 1,024 before
them is waited for. Awaited: each is waited for before the next. It needs the extra ``ray``.
"""

import asyncio
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from _harness import Bar, arguments, interleave, ratios, table, tell_bars
from _record import Record

ONE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
os.environ.update({**ONE, **QUIET})

import numpy as np  # noqa: E402

import callboard as cb  # noqa: E402

N = 64
WINDOW = 1024
STORE = 100 << 20
LEAST = 10.0
PIPELINED, AWAITED = "pipelined", "awaited"


class Product:
    """What an actor of Ray does: the same product."""

    def __init__(self) -> None:
        self._x = np.ones((N, N), "f4")
        self._y = np.empty_like(self._x)

    def of(self, one: Any, other: Any) -> Any:
        return one @ other

    def keep(self) -> None:
        np.matmul(self._x, self._x, out=self._y)


async def ours(device: cb.Device, x: cb.GpuRef, count: int, window: int) -> float:
    """Seconds of one product."""
    began = time.perf_counter()
    before: cb.GpuRef | None = None
    for _ in range(count // window):
        for _ in range(window):
            last = device.blas.gemm(x, x)
        if before is not None:
            await before
        if window == 1:
            await last
        before = last
    await last
    return (time.perf_counter() - began) / count


def theirs(ray: Any, call: Callable[[], Any], count: int, window: int) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    before: list[Any] = []
    for _ in range(count // window):
        made = [call() for _ in range(window)]
        if before:
            ray.wait(before, num_returns=len(before))
        if window == 1:
            ray.wait(made)
        before = made
    ray.wait(before, num_returns=len(before))
    return (time.perf_counter() - began) / count


async def opened(cluster: cb.Cluster, node: str) -> tuple[cb.Device, cb.GpuRef]:
    device = await cluster.device("cpu", node=node)
    x = device.put(np.ones((N, N), "f4"))
    await device.blas.gemm(x, x)
    return device, x


def main() -> None:
    given = arguments(__doc__, rounds=9)
    record = Record("cluster", given)
    bar = f"ops per second beside a Ray actor's calls, {PIPELINED}"
    if importlib.util.find_spec("ray") is None:
        print("Ray is not installed: pip install 'callboard[ray]'", file=sys.stderr)
        record.done(tell_bars([Bar(bar, None, LEAST, at_least=True)]))
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
        opening = cb.cluster("auto")
        cluster = runner.run(opening.__aenter__())
        stack.callback(lambda: runner.run(opening.__aexit__(None, None, None)))
        device, x = runner.run(opened(cluster, node))
        actor = ray.remote(Product).options(num_cpus=1).remote()
        operand = ray.put(np.ones((N, N), "f4"))
        ray.get(actor.of.remote(operand, operand))
        bars = []
        for what, window, count in ((PIPELINED, WINDOW, WINDOW * (2 if given.quick else 4)), (AWAITED, 1, 200)):
            subjects: dict[str, Callable[[], float]] = {
                "callboard": lambda c=count, w=window: runner.run(ours(device, x, c, w)),  # type: ignore[misc]
                "Ray": lambda c=count, w=window: theirs(  # type: ignore[misc]
                    ray, lambda: actor.of.remote(operand, operand), c, w
                ),
                "Ray, no operands": lambda c=count, w=window: theirs(ray, actor.keep.remote, c, w),  # type: ignore[misc]
            }
            title = f"a product of {N} x {N}, {what}"
            found = interleave(subjects, given.rounds, title)
            record[title] = table(title, found, micros, "Ray")
            ratio = ratios(found, "Ray", "callboard")
            if what == PIPELINED:
                bars.append(Bar(bar, None if ratio is None else ratio["median"], LEAST, at_least=True))
        record.done(tell_bars(bars))


def micros(value: float) -> str:
    return f"{value * 1e6:.1f} us"


if __name__ == "__main__":
    main()
