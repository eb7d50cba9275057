"""An ONNX file as a model: a plan of ``dev.engine``.

Two kinds of files have a session of ONNX Runtime in a resident actor instead: those with texts, which no ref can hold,
and those that ONNX Runtime is to execute on a device whose ``dev.engine`` does not have it, on CUDA where its build is
for CPUs.
"""

import asyncio
import functools
import importlib.util
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import callboard as cb
from callboard.core.errors import BackendUnavailable, BudgetSpent
from callboard.kernel.engine.files.rewrites import switched_off
from callboard.kernel.engine.files.rewriting import whole
from callboard.kernel.engine.inputs.budget import BUDGET, check_budget
from callboard.kernel.engine.inputs.overtime import Overtime
from callboard.kernel.engine.inputs.refused import runtime_error
from callboard.kernel.engine.onnxfile import Model, OnnxError, model_of
from callboard.patterns.contract.checks import check_whole
from callboard.serve.bundled.joined import Joined
from callboard.serve.bundled.onnxfile import OnnxFile, Opened, RunOptions
from callboard.serve.bundled.onnxplan import opened_plan

__all__ = ["OnnxModel", "RunOptions", "check_budget", "onnx_replicas", "onnx_version", "opened"]

TYPES = {
    "tensor(bool)": "BOOL",
    "tensor(double)": "FP64",
    "tensor(float)": "FP32",
    "tensor(float16)": "FP16",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(int8)": "INT8",
    "tensor(string)": "TEXT",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(uint8)": "UINT8",
}
"""Datatypes of the protocol, by ONNX Runtime's names. Sequences, maps and bfloat16 have no NumPy array there."""
TEXTS = "a tensor of strings"


_log = logging.getLogger("callboard.serve")


class OnnxModel(cb.ResidentActor):
    """ONNX Runtime's session of a file. On CUDA it computes on the actor's stream, if the installed build can.

    Args:
        path: Path of the file.
        threads: Threads of a call on a CPU; 0: ONNX Runtime's default.
        budget: Seconds of a call.
    """

    def __init__(self, path: str, threads: int = 0, budget: float = BUDGET) -> None:
        self._path = path
        self._threads = threads
        self._budget = budget

    def prepare(self) -> None:
        """Import ONNX Runtime and read the file."""
        import onnxruntime

        self._runtime: Any = onnxruntime
        # Reading it brings it into the system's cache, and finds a wrong path or file here.
        self._switched_off = switched_off(whole(self._path))

    def setup(self, ctx: cb.HostContext) -> None:
        """Open the session."""
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = self._threads
        providers: list[Any] = ["CPUExecutionProvider"]
        if ctx.is_cuda and "CUDAExecutionProvider" in self._runtime.get_available_providers():
            stream = {"device_id": ctx.ordinal, "user_compute_stream": str(int(ctx.stream.native))}
            providers.insert(0, ("CUDAExecutionProvider", stream))
        self._session: Any = self._runtime.InferenceSession(
            self._path, options, providers=providers, disabled_optimizers=self._switched_off
        )
        self._overtime = Overtime()
        self._names = [each.name for each in self._session.get_outputs() if each.type in TYPES]
        self._inputs = [each.name for each in self._session.get_inputs()]

    def describe(self) -> OnnxFile:
        """The inputs and outputs of the file."""
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        wrong = [each for each in inputs if each.type not in TYPES]
        if wrong or not self._names:
            what = [f"{each.name} is {each.type}" for each in wrong or outputs]
            raise ValueError(f"{self._path} cannot be served: {', '.join(what)}")
        return OnnxFile(
            inputs=[(each.name, TYPES[each.type], _shape(each.shape)) for each in inputs],
            outputs=[(each.name, TYPES[each.type], _shape(each.shape)) for each in outputs if each.type in TYPES],
            left_out=[f"{each.name} is {each.type}" for each in outputs if each.type not in TYPES],
            provider=self._session.get_providers()[0],
        )

    def run(self, arrays: list[Any]) -> list[Any]:
        """The outputs, in the file's order.

        Args:
            arrays: The inputs in the file's order.

        Raises:
            ShapeError: On a CPU: a node cannot be computed of these inputs; names node and value.
            BudgetSpent: It takes longer than it may.
            LibraryError: On a CPU: all else that ONNX Runtime says. On CUDA, its errors are passed on.
        """
        given = dict(zip(self._inputs, arrays, strict=True))
        options = self._runtime.RunOptions()
        try:
            with self._overtime.watch(Path(self._path).name, self._budget, options):
                found: list[Any] = self._session.run(self._names, given, options)
        except BudgetSpent:
            raise
        except Exception as e:  # ONNX Runtime's own errors have no common base
            if self._session.get_providers() == ["CPUExecutionProvider"]:
                raise runtime_error(e, Path(self._path).name, self._inputs) from e
            raise
        return found


def _shape(dims: Sequence[Any]) -> list[int]:
    return [dim if isinstance(dim, int) and dim >= 0 else -1 for dim in dims]


async def opened(device: cb.Device, path: Path, options: RunOptions) -> Opened:
    """The file as a plan, or as a session in an actor, with its inputs and outputs.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no model, or takes or gives something else than tensors.
        BackendUnavailable: The engine is not installed.
        LibraryError, ActorStopped: ONNX Runtime refuses the file.
        UnsupportedOp: The engine lacks operators of the model; names all of them.
    """
    data, model = await asyncio.to_thread(_read, path)
    texts = [each.name for each in (*model.graph.inputs, *model.graph.outputs) if each.kind == TEXTS]
    if not texts and (options.engine != "onnxruntime" or device.backend in ("cpu", "cuda")):
        try:
            return await opened_plan(device, path, data, model, options)
        except BackendUnavailable:
            if options.engine != "onnxruntime" or device.backend == "cpu":
                raise
    if options.engine == "callboard":
        raise ValueError(f"{path}: {texts[0]} has texts, which only ONNX Runtime takes; leave engine out")
    return await _opened_session(device, path, options)


def _read(path: Path) -> tuple[bytes, Model]:
    try:
        data = whole(path)
        return data, model_of(data)
    except OnnxError as e:
        raise OnnxError(f"{path}: {e}") from e


async def _opened_session(device: cb.Device, path: Path, options: RunOptions) -> Opened:
    if importlib.util.find_spec("onnxruntime") is None:
        raise BackendUnavailable(f"{path} needs ONNX Runtime; install it with: pip install 'callboard[onnx]'")
    actor = await device.actor_of(cb.Props(OnnxModel, str(path), options.threads, options.budget), wait=True)
    try:
        file = await actor.call(OnnxModel.describe)
    except BaseException:  # cancelled, too: nothing else would stop it
        actor.stop()
        raise
    return Opened(file, functools.partial(actor.call, OnnxModel.run), actor.stop, actor.stop_and_wait)


async def onnx_version(
    device: cb.Device,
    path: Path,
    options: RunOptions,
    *,
    max_batch: int,
    max_queue: int,
) -> tuple[cb.ModelVersion, OnnxFile]:
    """The file as a loadable version, reloaded when it has changed.

    Args:
        device: Device that the model computes on.
        path: Path of the file.
        options: How it is executed.
        max_batch: Rows of a batch at most, over which requests are joined; 1: they are not.
        max_queue: Requests that wait at most.

    Raises:
        ValueError: ``max_batch`` is above 1, and a first extent is not open; as :func:`opened`.
        OSError, BackendUnavailable, LibraryError, ActorStopped, UnsupportedOp: As for :func:`opened`.
    """

    async def open_file() -> Opened:
        return await opened(device, path, options)

    first = await open_file()
    file = first.file
    if max_batch > 1 and not file.joins:
        first.stop()
        raise ValueError(f"{path}: the first extent of each tensor must be open for batches; use max_batch=1")
    if file.left_out:
        _log.warning("%s: outputs that are not tensors are left out: %s", path, ", ".join(file.left_out))
    if device.backend == "cuda" and file.provider == "CPUExecutionProvider":
        _log.warning("%s runs on the CPU: this build of ONNX Runtime lacks CUDA; install onnxruntime-gpu", path)
    ready = [first]
    held: dict[Any, Opened] = {}

    async def load() -> Any:
        now = ready.pop() if ready else await open_file()
        try:
            if (now.file.inputs, now.file.outputs) != (file.inputs, file.outputs):
                raise ValueError(f"{path} has other inputs or outputs than when it was loaded first")
            joined = Joined(now.run, file.inputs, file.outputs, path.name, max_batch)
            if max_batch > 1:
                await joined.probe()
        except BaseException:  # cancelled, too: nothing else would stop it
            now.stop()
            raise
        server = cb.DynamicBatchingServer(
            joined,
            max_batch=max_batch,
            bucket=joined.key if max_batch > 1 else None,
            cost=joined.rows if max_batch > 1 else None,
            max_batch_cost=max_batch if max_batch > 1 else None,
            max_queue=max(max_queue, max_batch),
            idempotent=True,
            name=path.stem,
        )
        held[server] = now
        return server

    async def unload(server: Any) -> None:
        await server.stop()
        await held.pop(server).end()

    return cb.ModelVersion("1", load, unload=unload), file


async def onnx_replicas(
    device: cb.Device | Sequence[cb.Device],
    path: Path,
    options: RunOptions,
    *,
    max_batch: int,
    max_queue: int,
) -> tuple[cb.ModelVersion, OnnxFile]:
    """As :func:`onnx_version`; on several devices, as a pool with a replica on each."""
    check_whole(1, max_batch=max_batch, max_queue=max_queue)
    if isinstance(device, cb.Device):
        return await onnx_version(device, path, options, max_batch=max_batch, max_queue=max_queue)
    devices = list(device)
    if not devices:
        raise ValueError(f"{path}: there is no device; give at least one")
    limits = {"max_batch": max_batch, "max_queue": max_queue}
    found = [await onnx_version(each, path, options, **limits) for each in devices]
    ends: dict[Any, AsyncExitStack] = {}

    async def load() -> Any:
        async with AsyncExitStack() as stack:
            replicas: list[cb.Replica] = []
            for each, (version, _) in zip(devices, found, strict=True):
                server = await version.load()
                if version.unload is not None:
                    stack.push_async_callback(version.unload, server)
                await server.start()
                replicas.append(cb.Replica(server.submit, device=each))
            pool = cb.ModelReplicaPool[Any, Any](
                replicas,
                max_ongoing=2 * max_batch,  # the next batch gathers while one runs
                max_queue=max(max_queue, max_batch),
                idempotent=False,  # the servers behind it repeat what a loss fails
                name=path.stem,
            )
            ends[pool] = stack.pop_all()
            return pool

    async def unload(pool: Any) -> None:
        await pool.stop()
        await ends.pop(pool).aclose()

    return cb.ModelVersion("1", load, unload=unload), found[0][1]
