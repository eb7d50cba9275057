"""Findings from context hosts: each device is opened in one, and each library is tried with one op."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from callboard.cli.doctor.findings import BackendFinding, DeviceFinding, LibraryFinding
from callboard.cli.doctor.machine import has_nvidia_gpu
from callboard.core import registry
from callboard.core.backend import AccelBackend, DeviceInfo
from callboard.core.errors import AccelError, BackendUnavailable
from callboard.device.client.handle import Device
from callboard.device.config import standbys
from callboard.device.configure import device_config
from callboard.kernel.cutlass import EpilogueVisitorTree
from callboard.kernel.nvrtc import kernel
from callboard.kernel.sparse import CsrRef
from callboard.multi_device.worlds import world
from callboard.system import System

__all__ = ["PROBES", "backend_findings"]


async def _try_array(device: Device) -> None:
    x = np.arange(6, dtype=np.int32).reshape(3, 2)
    found = await device.array.cast(device.put(x)[device.array([2, 0])], "f32").get()
    if not (found == x[[2, 0]]).all():
        raise ValueError(f"rows came back as {found.tolist()}")


async def _try_memory(device: Device) -> None:
    found = await device.full((3, 5), 2.5, "f64").get()
    if not (found == 2.5).all():
        raise ValueError(f"an array of 2.5 came back as {found.ravel()[:3]}")


async def _try_attention(device: Device) -> None:
    x = np.eye(8, dtype=np.float32).reshape(1, 8, 1, 8)
    found = await device.attention.forward(device.put(x), device.put(100 * x), device.put(x)).out.get()
    if not np.allclose(found, x, atol=1e-5):
        raise ValueError(f"attention to one key each came back as {found.tolist()}")


async def _try_blas(device: Device) -> None:
    a = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    found = await device.blas.gemm(device.put(a), device.put(a), transpose_b=True).get()
    if not np.allclose(found, a @ a.T):
        raise ValueError(f"a product came back as {found.tolist()}")


async def _try_blas_lt(device: Device) -> None:
    a = np.arange(64.0, dtype=np.float32).reshape(8, 8) - 30
    bias = np.full(8, -50, np.float32)
    x = device.put(a)
    found = await device.blas_lt.matmul(x, x, bias=device.put(bias), epilogue="relu_bias").get()
    if not np.allclose(found, np.maximum(a @ a + bias, 0)):
        raise ValueError(f"a product came back as {found.tolist()}")


async def _try_dnn(device: Device) -> None:
    x = np.arange(16.0, dtype=np.float32).reshape(1, 1, 4, 4)
    found = await device.dnn.avg_pool(device.put(x), 2).get()
    if not np.allclose(found, x.reshape(2, 2, 2, 2).mean((1, 3))):
        raise ValueError(f"averages came back as {found.tolist()}")


async def _try_elementwise(device: Device) -> None:
    a = np.arange(6.0, dtype=np.float32)
    found = await device.elementwise.map("2 * x + 1", device.put(a)).get()
    if not (found == 2 * a + 1).all():
        raise ValueError(f"2 * x + 1 came back as {found.tolist()}")


DOUBLED = """
extern "C" __global__ void doubled(const float *x, float *y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
"""
DECLARED = "in x: f32[n], out y: f32[n], n: i32"


@kernel(DECLARED, cuda=DOUBLED)
def doubled(x: Any, y: Any) -> None:
    np.multiply(x, 2, out=y)


async def _try_nvrtc(device: Device) -> None:
    x = np.arange(6, dtype=np.float32)
    found = await doubled(device.put(x)).get()
    if not (found == 2 * x).all():
        raise ValueError(f"a kernel in CUDA C++ made {found.tolist()} of {x.tolist()}")


async def _try_module(device: Device) -> str | None:
    if device.backend == "cpu":
        return "a CPU runs no binaries of a GPU"
    x = np.arange(6, dtype=np.float32)
    compiled = await device.nvrtc.compile(DOUBLED, form="ptx")
    loaded = device.module.load(compiled.image).kernel("doubled", DECLARED)
    found = await loaded(1, 32, device.put(x), None).get()
    if not (found == 2 * x).all():
        raise ValueError(f"a kernel in PTX made {found.tolist()} of {x.tolist()}")
    return None


async def _try_engine(device: Device) -> str | None:
    from callboard.kernel.engine.onnxfile import field_bytes, info_bytes

    parts = [field_bytes(1, "x"), field_bytes(2, "y"), field_bytes(4, "Relu")]
    graph = [field_bytes(1, b"".join(parts)), field_bytes(2, "g")]
    graph += [field_bytes(number, info_bytes(name, "f32", [2])) for number, name in ((11, "x"), (12, "y"))]
    model = field_bytes(1, 9) + field_bytes(7, b"".join(graph)) + field_bytes(8, field_bytes(2, 20))
    plan = await device.engine.build(model)
    found = await device.engine.context(plan)(x=np.array([-1, 2], np.float32)).get()
    if found.tolist() != [0, 2]:
        raise ValueError(f"a model of one node gave {found.tolist()}")
    return None if plan.engine == "onnxruntime" or device.backend != "cpu" else plan.reason


async def _try_event(device: Device) -> None:
    start, end = device.event.create(), device.event.create()
    start.record()
    end.record(device.full((4,), 1.0))
    seconds = await start.elapsed(end)
    if not 0 <= seconds < 60:
        raise ValueError(f"a fill took {seconds} s of the device's time")


async def _try_fft(device: Device) -> None:
    x = np.arange(6.0, dtype=np.float32)
    found = await device.fft.rfft(device.put(x)).get()
    if not np.allclose(found, np.fft.rfft(x), atol=1e-5):
        raise ValueError(f"a transform came back as {found.tolist()}")


async def _try_collective(device: Device) -> None:
    async with world([device]) as alone:
        total = await alone.all_reduce([device.full((4,), 2.0)])
        if not (await total[0].get() == 2.0).all():
            raise ValueError("a sum over one rank is another number")


async def _try_ipc(device: Device) -> None:
    x = device.ipc.empty((4,))
    handle = await device.ipc.export(device.fill(x, 2.0))
    if handle.nbytes != 16:
        raise ValueError(f"4 numbers of f32 were exported as {handle.nbytes} bytes")


async def _try_managed(device: Device) -> None:
    x = device.managed.allocate((4,))
    device.fill(x, 2.0)
    found = await device.managed.prefetch(x, to="host").get()
    if not (found == 2.0).all():
        raise ValueError(f"an array of 2.0 came back as {found.tolist()}")


async def _try_solver(device: Device) -> str | None:
    a = np.array([[4.0, 2.0], [2.0, 3.0]])
    found = await device.solver.cholesky(device.put(a)).get()
    if not np.allclose(found @ found.T, a):
        raise ValueError(f"a Cholesky factor came back as {found.tolist()}")
    values, indices, offsets = (device.put(np.array(x)) for x in ([2.0], [0], [0, 1]))
    matrix = CsrRef(values=values, indices=indices, indptr=offsets, shape=(1, 1))
    try:
        found = await device.solver.sparse_lu(matrix, device.put(np.array([3.0]))).get()
    except BackendUnavailable as e:
        return f"no sparse_lu: {e}"
    if not np.allclose(found, 1.5):
        raise ValueError(f"half of 3 came back as {found.tolist()}")
    return None


async def _try_cub(device: Device) -> None:
    x = np.array([3, 1, 2, 1], np.float32)
    found = await (await device.cub.unique(device.cub.sort(device.put(x)))).get()
    if found.tolist() != [1, 2, 3]:
        raise ValueError(f"sorted numbers came back as {found.tolist()}")


async def _try_cutlass(device: Device) -> None:
    x = np.array([[1, -2], [3, 4]], np.float32)
    tree = EpilogueVisitorTree().relu().quantize("i8")
    found = await device.cutlass.gemm(device.put(x), device.put(np.eye(2, dtype=np.float32)), epilogue=tree).get()
    if found.tolist() != [[1, 0], [3, 4]]:
        raise ValueError(f"a product came back as {found.tolist()}")


async def _try_rng(device: Device) -> None:
    found = await device.rng.philox64(seed=1).uniform(5, dtype="f64").get()
    expected = np.random.Generator(np.random.Philox(key=np.array([1, 0], np.uint64))).random(5)
    if not (found == expected).all():
        raise ValueError(f"random numbers came back as {found.tolist()}, NumPy has {expected.tolist()}")


async def _try_tensor(device: Device) -> None:
    a = np.arange(12.0, dtype=np.float32).reshape(2, 2, 3)
    found = await device.tensor.einsum("bij,bkj->ibk", device.put(a), device.put(a)).get()
    if not np.allclose(found, np.einsum("bij,bkj->ibk", a, a)):
        raise ValueError(f"a contraction came back as {found.tolist()}")


async def _try_sparse(device: Device) -> None:
    a = np.array([[0, 2, 0], [1, 0, 3]], np.float32)
    matrix = await device.sparse.from_dense(device.put(a))
    found = await device.sparse.sp_mv(matrix, device.put(np.ones(3, np.float32))).get()
    if not np.allclose(found, a.sum(1)):
        raise ValueError(f"a product came back as {found.tolist()}")


async def _try_sparse_lt(device: Device) -> None:
    w = np.tile(np.array([1, -4, 3, 2], np.float16), (32, 8))
    pruned = np.where(abs(w) > 2, w, 0)
    layer = device.sparse_lt.compress(device.sparse_lt.prune(device.put(w)))
    found = await device.sparse_lt.linear(device.put(np.eye(32, dtype=np.float16)), layer).get()
    if not (found == pruned.T).all():
        raise ValueError(f"a product came back as {found.tolist()}")


PROBES: dict[str, Callable[[Device], Awaitable[str | None]]] = {
    "array": _try_array,
    "attention": _try_attention,
    "blas": _try_blas,
    "blas_lt": _try_blas_lt,
    "collective": _try_collective,
    "cub": _try_cub,
    "cutlass": _try_cutlass,
    "dnn": _try_dnn,
    "elementwise": _try_elementwise,
    "engine": _try_engine,
    "event": _try_event,
    "fft": _try_fft,
    "ipc": _try_ipc,
    "managed": _try_managed,
    "memory": _try_memory,
    "module": _try_module,
    "nvrtc": _try_nvrtc,
    "rng": _try_rng,
    "solver": _try_solver,
    "sparse": _try_sparse,
    "sparse_lt": _try_sparse_lt,
    "tensor": _try_tensor,
}
"""One op of each library, by its name: raises when it fails or its result is wrong; returns which part is missing."""


async def backend_findings(isolation: str | None = None) -> list[BackendFinding]:
    """Open every device of every backend, one after the other.

    Args:
        isolation: ``"process"`` or ``"thread"``; None: as each backend prefers, CUDA never in this process.
    """
    return [await _backend(name, isolation) for name in registry.kinds()]


async def _backend(name: str, isolation: str | None) -> BackendFinding:
    try:
        backend = registry.backend(name)
        devices = backend.devices()
    except BackendUnavailable as e:
        return BackendFinding(name=name, error=str(e), needed=has_nvidia_gpu() if name == "cuda" else ":" not in name)
    return BackendFinding(name=name, devices=[await _device(backend, info, isolation) for info in devices])


async def _device(backend: AccelBackend, info: DeviceInfo, isolation: str | None) -> DeviceFinding:
    name = f"{backend.name}:{info.index}"
    started = time.monotonic()
    options: dict[str, Any] = {"standby": None, "isolation": isolation or backend.isolation}
    try:
        async with System("doctor") as system:
            device = await system.device(name, **options)
            opened = time.monotonic() - started
            stats = await device.stats()
            detail = f"{info.name}, {stats.free_bytes / 2**30:.1f} of {stats.total_bytes / 2**30:.1f} GiB free, "
            if stats.compute_capability > (0, 0):
                detail += "compute capability {}.{}, ".format(*stats.compute_capability)
            detail += f"isolation {device.isolation}, opened in {opened:.2f} s"
            if device.isolation == "process":  # opened here without, and by an application with these
                kind, count = standbys(device_config("process", None, {}).standby)
                detail += f", standbys of an application: {f'{count} {kind}' if count else 'none'}"
            libraries = [await _library(device, name) for name in sorted(backend.libraries())]
            return DeviceFinding(name=name, uuid=info.uuid, detail=detail, libraries=libraries)
    except AccelError as e:
        return DeviceFinding(name=name, uuid=info.uuid, detail=info.name, error=f"{type(e).__name__}: {e}")


async def _library(device: Device, name: str) -> LibraryFinding:
    probe = PROBES.get(name)
    if probe is None:
        return LibraryFinding(name=name, detail="not tried: the doctor has no op for it")
    try:
        missing = await probe(device)
    except (AccelError, ValueError) as e:
        return LibraryFinding(name=name, error=f"{type(e).__name__}: {e}")
    return LibraryFinding(name=name, detail=missing or (await device.stats()).libraries.get(name, ""))
