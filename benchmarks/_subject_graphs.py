"""Subject: a chain of products and ReLUs, recorded and not: callboard, torch, CuPy, NumPy.

callboard has the ReLU as an op of its own, or in the product (``fused``); the others have no fused form for it.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _worker import missing, serve, serve_async

clock = time.perf_counter
FACTOR = 0.06
"""Keeps the numbers of a chain near 1."""


def operands(n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    return rng.standard_normal((n, n), np.float32), rng.standard_normal((n, n), np.float32) * np.float32(FACTOR)


async def ours(isolation: Any, device: str) -> None:
    """``called``: op by op, with given outputs; ``replayed``: a message for each chain; ``at_once``: one for all.

    ``looped``: a loop around the chain that the device runs by itself; one message. ``"auto"`` is a process host whose
    device records chains by itself.
    """
    import callboard as cb

    auto = isolation == "auto"
    try:
        async with contextlib.AsyncExitStack() as stack:
            options: Any = {"isolation": "process" if auto else isolation, "auto_record": auto}
            dev = await stack.enter_async_context(cb.device(device, standby=None, **options))
            relu = cb.elementwise("z = max(x, 0)")
            made: dict[tuple[int, int, bool], Any] = {}

            def chain(n: int, links: int, fused: bool) -> Any:
                found = made.get((n, links, fused))
                if found is None:
                    x, w = map(dev.put, operands(n))
                    ys, zs = ([dev.empty((n, n)) for _ in range(2)] for _ in range(2))

                    def link(y: Any, z: Any, out: Any) -> Any:
                        if fused:
                            return dev.blas_lt.matmul(y, w, epilogue="relu", out=out)
                        return relu(dev.blas.gemm(y, w, out=z), out=out)

                    def call() -> Any:
                        y = x
                        for i in range(links):
                            y = link(y, zs[i % 2], ys[i % 2])
                        return y

                    with dev.record(x=x) as rec:
                        y = x
                        for _ in range(links):
                            y = link(y, None, None)
                        rec.returns(y)
                    found = made[n, links, fused] = call, rec
                return found

            async def timed(run: Callable[[], Any], count: int, per: int) -> float:
                for _ in range(3):
                    await run()
                began = clock()
                for _ in range(count):
                    last = run()
                await last
                return (clock() - began) / (count * per)

            async def called(n: int, links: int, count: int, fused: bool = False) -> float:
                return await timed(chain(n, links, fused)[0], count, 2 * links)

            async def replayed(n: int, links: int, count: int, fused: bool = False) -> float:
                return await timed(chain(n, links, fused)[1].replay, count, 2 * links)

            async def at_once(n: int, links: int, count: int, fused: bool = False) -> float:
                rec = chain(n, links, fused)[1]
                return await timed(lambda: rec.replay(count), 1, 2 * links * count)

            async def looped(n: int, links: int, count: int, fused: bool = False) -> float:
                rec = chain(n, links, fused)[1]
                go = dev.put(np.bool_(True))
                with dev.record() as loop, loop.while_(go, most=count):
                    rec.replay()
                return await timed(loop.replay, 1, 2 * links * count)

            async def submitted(n: int, links: int, count: int, fused: bool = False) -> float:
                """Seconds that a call of ``replay`` takes, all of them before the first is done or not."""
                rec = chain(n, links, fused)[1]
                await rec.replay()
                began = clock()
                for _ in range(count):
                    last = rec.replay()
                took = clock() - began
                await last
                return took / count

            async def differs(n: int, links: int, count: int, fused: bool = False) -> float:
                call, rec = chain(n, links, fused)
                a, b = await call().get(), await rec.replay().get()
                return float(np.abs(a - b).max() / np.abs(a).max())

            await serve_async({f.__name__: f for f in (called, replayed, at_once, looped, submitted, differs)})
    except cb.AccelError as e:
        missing(f"{type(e).__name__}: {e}")


def torch_subject() -> dict[str, Callable[..., float]]:
    import torch

    made: dict[tuple[int, int], Any] = {}

    def chain(n: int, links: int) -> Any:
        found = made.get((n, links))
        if found is None:
            x, w = (torch.from_numpy(a).cuda() for a in operands(n))

            def call() -> Any:
                y = x
                for _ in range(links):
                    y = torch.relu(torch.mm(y, w))
                return y

            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                for _ in range(3):
                    call()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                call()
            found = made[n, links] = call, graph.replay
        return found

    def timed(run: Callable[[], Any], n: int, links: int, count: int) -> float:
        run()
        torch.cuda.synchronize()
        began = clock()
        for _ in range(count):
            run()
        torch.cuda.synchronize()
        return (clock() - began) / (count * 2 * links)

    return {
        "called": lambda n, links, count: timed(chain(n, links)[0], n, links, count),
        "replayed": lambda n, links, count: timed(chain(n, links)[1], n, links, count),
    }


def cupy_subject() -> dict[str, Callable[..., float]]:
    """CuPy refuses cuBLAS while it captures, so it has no graph of this chain."""
    import cupy

    made: dict[int, Any] = {}

    def called(n: int, links: int, count: int) -> float:
        x, w = made.setdefault(n, [cupy.asarray(a) for a in operands(n)])

        def call() -> None:
            y = x
            for _ in range(links):
                y = cupy.maximum(cupy.matmul(y, w), 0)

        call()
        cupy.cuda.Device().synchronize()
        began = clock()
        for _ in range(count):
            call()
        cupy.cuda.Device().synchronize()
        return (clock() - began) / (count * 2 * links)

    return {"called": called}


def numpy_subject() -> dict[str, Callable[..., float]]:
    def called(n: int, links: int, count: int) -> float:
        x, w = operands(n)
        z = np.empty_like(x)
        ys = [np.empty_like(x) for _ in range(2)]
        began = clock()
        for _ in range(count):
            y = x
            for i in range(links):
                y = np.maximum(np.matmul(y, w, out=z), 0, out=ys[i % 2])
        return (clock() - began) / (count * 2 * links)

    return {"called": called}


OTHERS = {"torch": torch_subject, "CuPy": cupy_subject, "NumPy": numpy_subject}


if __name__ == "__main__":
    name, device = sys.argv[1:]
    if name in OTHERS:
        try:
            measures = OTHERS[name]()
        except ImportError as e:
            missing(str(e))
        serve(measures)
    else:
        asyncio.run(ours(name, device))
