"""The subjects of a maths benchmark, each as the process that serves it: who enqueues, who waits, and how."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from _worker import missing, serve, serve_async

import callboard as cb

clock = time.perf_counter

Array = np.ndarray[Any, Any]


class Run(NamedTuple):
    """A problem with its operands in place.

    Attributes:
        enqueue: Does it once; may return before it is done. What it returns, callboard's subject awaits in the end.
        result: What the last call made, as a host array (callboard's: awaited); None: not to be compared.
    """

    enqueue: Callable[[], Any]
    result: Callable[[], Any] | None = None


class Subjects(NamedTuple):
    """Who solves the problems: a function each from the settings to a :class:`Run`.

    Attributes:
        ours: ``async ours(device, **settings)``: callboard.
        direct: ``direct(**settings)``: what the CPU backend calls, called directly.
        raw: ``raw(cuda, **settings)``: the vendor's library through its bindings, on a :class:`Cuda`.
        cupy: ``cupy(cupy, **settings)``, ``torch`` likewise: on the current stream; None: left out.
    """

    ours: Callable[..., Awaitable[Run]]
    direct: Callable[..., Run]
    raw: Callable[..., Run]
    cupy: Callable[..., Run] | None = None
    torch: Callable[..., Run] | None = None

    def names(self, kind: str) -> list[str]:
        """Those that run on this kind of device."""
        if kind != "cuda":
            return ["process", "thread", "direct"]
        others = [name for name in ("cupy", "torch") if getattr(self, name) is not None]
        return ["process", "thread", "raw", *others]


def serve_subject(library: str, subjects: Subjects, name: str, device: str) -> None:
    """Serve one subject until the benchmark has ended; says so if it cannot run here."""
    if name in ("process", "thread"):
        asyncio.run(_serve_callboard(library, subjects.ours, device, name))  # type: ignore[arg-type]
        return
    try:
        make, synchronize = _blocking(subjects, name)
    except Exception as e:  # whatever is missing is the reason
        missing(f"{type(e).__name__}: {e}")
    cases = Cases(make)

    def pipelined(calls: int, **settings: Any) -> float:
        enqueue = cases.of(settings).enqueue
        enqueue()
        synchronize()
        start = clock()
        for _ in range(calls):
            enqueue()
        synchronize()
        return (clock() - start) / calls

    def fingerprint(**settings: Any) -> float:
        run = cases.of(settings)
        run.enqueue()
        synchronize()
        return _fingerprint(None if run.result is None else run.result())

    serve({"pipelined": pipelined, "fingerprint": fingerprint})


class Cases:
    """The problem at hand; the operands of the one before go."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        self._key = ""
        self._run: Any = None

    def of(self, settings: dict[str, Any]) -> Any:
        key = json.dumps(settings, sort_keys=True)
        if key != self._key:
            self._run = None
            self._run, self._key = self._make(**settings), key
        return self._run


def _fingerprint(result: Array | None) -> float:
    """One number that a wrong result would change; NaN where there is no result."""
    if result is None:
        return float("nan")
    wide = np.asarray(result).astype(np.complex128 if np.iscomplexobj(result) else np.float64).ravel()
    return float(np.linalg.norm(wide + np.linspace(0, np.abs(wide).max(initial=1.0), wide.size)))


async def _serve_callboard(
    library: str, ours: Callable[..., Awaitable[Run]], device_name: str, isolation: Literal["process", "thread"]
) -> None:
    try:
        async with cb.device(device_name, isolation=isolation, standby=None, max_staged_bytes=16 << 30) as device:
            cases = Cases(lambda **settings: asyncio.ensure_future(ours(device, **settings)))

            async def pipelined(calls: int, **settings: Any) -> float:
                enqueue = (await cases.of(settings)).enqueue
                last = enqueue()
                await last
                start = clock()
                for _ in range(calls):
                    last = enqueue()
                await last
                await device.drain()
                return (clock() - start) / calls

            async def fingerprint(**settings: Any) -> float:
                run = await cases.of(settings)
                await run.enqueue()
                return _fingerprint(None if run.result is None else await run.result())

            async def plans(figure: str) -> float:
                return float(getattr((await device.stats()).plans[library], figure))

            await serve_async({"pipelined": pipelined, "fingerprint": fingerprint, "plans": plans})
    except cb.AccelError as e:
        missing(f"{type(e).__name__}: {e}")


def _blocking(subjects: Subjects, name: str) -> tuple[Callable[..., Run], Callable[[], None]]:
    """How this subject makes a problem, and how it waits."""
    if name == "direct":
        return subjects.direct, lambda: None
    if name == "raw":
        cuda = Cuda()
        return lambda **settings: cuda.fresh(subjects.raw, settings), cuda.synchronize
    if name == "cupy":
        import cupy

        found, stream = subjects.cupy, cupy.cuda.Stream(non_blocking=True)
        stream.use()
        assert found is not None
        # For the device, not the stream: where get() has to copy first, it leaves the null stream as the current one.
        return lambda **settings: found(cupy, **settings), cupy.cuda.runtime.deviceSynchronize
    import torch

    torch.zeros(1, device="cuda")
    other = subjects.torch
    assert other is not None
    return lambda **settings: other(torch, **settings), torch.cuda.synchronize


class Cuda:
    """Memory and a stream of the CUDA runtime, for calls of the vendor's libraries.

    Attributes:
        stream: The ``cudaStream_t``.
    """

    def __init__(self) -> None:
        from cuda.bindings import runtime

        self._runtime = runtime
        self._checked(runtime.cudaSetDevice(0))
        self.stream = int(self._checked(runtime.cudaStreamCreateWithFlags(1)))  # not blocked by the null stream
        self._memory: list[int] = []

    def fresh(self, make: Callable[..., Run], settings: dict[str, Any]) -> Run:
        """A new problem, in the memory of the one before."""
        self.synchronize()
        while self._memory:
            self._checked(self._runtime.cudaFree(self._memory.pop()))
        return make(self, **settings)

    def empty(self, nbytes: int) -> int:
        """Device memory; it lives as long as the problem."""
        address = int(self._checked(self._runtime.cudaMalloc(max(nbytes, 1))))
        self._memory.append(address)
        return address

    def put(self, array: Array) -> int:
        """A copy of a row-major host array on the device."""
        address = self.empty(array.nbytes)
        kind = self._runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._checked(self._runtime.cudaMemcpy(address, np.ascontiguousarray(array).ctypes.data, array.nbytes, kind))
        return address

    def get(self, address: int, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """The array at an address, on the host."""
        out = np.empty(shape, dtype)
        kind = self._runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._checked(self._runtime.cudaMemcpy(out.ctypes.data, address, out.nbytes, kind))
        return out

    def synchronize(self) -> None:
        self._checked(self._runtime.cudaStreamSynchronize(self.stream))

    def _checked(self, answer: Any) -> Any:
        status, *rest = answer
        if int(status):
            raise RuntimeError(f"{status}")
        return rest[0] if rest else None
