"""cuDNN's graphs through NVIDIA's frontend: the only module of attention that uses the package.

The package's ``pygraph`` wraps the class used here, ``backend_graph`` of its compiled module, to offer engines in
Python besides cuDNN's, and inspects every buffer of every call.
"""

import contextlib
import ctypes
import hashlib
import importlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.kernelcache import KernelCache
from callboard.core.dtype import DType
from callboard.core.errors import AccelError, BackendUnavailable, LibraryError, OutOfMemory, UnsupportedOp

if TYPE_CHECKING:
    from callboard.backends.cuda.stream import CudaStream
    from callboard.backends.cuda.workspace import Workspace

__all__ = ["CudnnGraphs", "GraphPlan"]

_log = logging.getLogger("callboard.cuda")

INSTALL = "pip install --no-deps nvidia-cudnn-frontend==1.32.0 (and the wheel nvidia-cudnn-cu13)"
NAMES = {
    "f16": "HALF",
    "bf16": "BFLOAT16",
    "f32": "FLOAT",
    "i32": "INT32",
    "f8_e4m3": "FP8_E4M3",
    "f8_e5m2": "FP8_E5M2",
}
DESCRIPTIONS = 1
"""Counted up when a graph of the same key is described otherwise: plans that were kept are then made again."""
KNOWN_WRONG = (91000, 91001, 91400)
"""Versions of cuDNN whose attention is wrong (the frontend refuses them, too, in part)."""


class CudnnGraphs:
    """Handles of cuDNN, and graphs that are planned with them.

    One handle enqueues, on the admitting thread; the other plans, on the thread that prepares.

    Args:
        workspace: Workspace of all plans.
        gpu: Name and compute capability; a plan that was kept is for one kind of GPU.
        module: A substitute for the package, for tests.
        cache: The cache of plans that persists over restarts.

    Raises:
        BackendUnavailable: The package or the library is missing, or of another kind.
    """

    def __init__(
        self, workspace: "Workspace", gpu: str = "", module: Any = None, cache: KernelCache | None = None
    ) -> None:
        try:
            self.module = module or importlib.import_module("cudnn")
            self._native = self.module._pybind_module
            self._native.backend_graph  # noqa: B018 - of a version that has it
            self.version = int(self.module.backend_version())
            self._launching = self.module.create_handle()
            self._preparing = self.module.create_handle()
        except Exception as e:  # ImportError, AttributeError, and RuntimeError of its own where libcudnn is missing
            raise BackendUnavailable(f"cuDNN's frontend cannot be used: {e}; {INSTALL}") from e
        if self.version in KNOWN_WRONG:
            raise BackendUnavailable(f"cuDNN {self.version} computes attention wrongly; install another version")
        self.workspace = workspace
        self._gpu, self._cache = gpu, KernelCache() if cache is None else cache
        self._lock = threading.Lock()
        self._stream = -1

    def on(self, stream: "CudaStream") -> int:
        """The handle that enqueues, on this stream."""
        if stream.native != self._stream:
            self.module.set_stream(handle=self._launching, stream=stream.native)
            self._stream = stream.native
        handle: int = self._launching.backend_handle
        return handle

    def plan(self, describe: "Callable[[Graph], None]", tag: str, key: bytes) -> "GraphPlan":
        """Plan a graph, by cuDNN's heuristics; read from the disk if it was planned before.

        Args:
            describe: Describes it.
            tag: The name of the op in errors.
            key: All that the plan depends on: the signature of the message.

        Raises:
            UnsupportedOp: No engine takes it.
            OutOfMemory, LibraryError
        """
        module, name = self.module, self._name(key)
        with self._lock:
            try:
                raw = self._raw(tag)
                graph = Graph(module, raw)
                describe(graph)
                kept = self._kept(name, tag, graph.count)
                if kept is not None:
                    return kept
                raw.validate()
                raw.build_operation_graph()
                raw.create_execution_plans([module.heur_mode.A, module.heur_mode.FALLBACK])
                raw.check_support()
                raw.build_plans(module.build_plan_policy.HEURISTICS_CHOICE)
                planned = GraphPlan(self, raw, tag, graph.count)
            except AccelError:
                raise
            except Exception as e:  # RuntimeError and the frontend's own, from C++
                raise failure(e, tag) from None
            with contextlib.suppress(Exception):  # an engine that has no form for the disk is planned anew
                self._cache.keep(name, bytes(raw.serialize(as_bytes=True)))
            return planned

    def _raw(self, tag: str) -> Any:
        single = self.module.data_type.FLOAT
        return self._native.backend_graph(
            name=tag,
            intermediate_data_type=single,
            compute_data_type=single,
            handle=self._preparing.backend_handle,
        )

    def _kept(self, name: str, tag: str, operands: int) -> "GraphPlan | None":
        content = self._cache.get(name)
        if content is None:
            return None
        raw = self._raw(tag)
        try:
            raw.deserialize(self._preparing.backend_handle, content)
            return GraphPlan(self, raw, tag, operands)
        except OutOfMemory:
            raise
        except Exception as e:  # of another driver, for example
            _log.info("%s: the plan that was kept is made again: %s", tag, e)
            return None

    def _name(self, key: bytes) -> str:
        versions = f"{DESCRIPTIONS} {self.version} {self.module.__version__} {self._gpu} "
        return f"cudnn-{hashlib.sha256(b'attention ' + versions.encode() + key).hexdigest()}"

    def close(self) -> None:
        """Destroy the handles; nothing runs."""
        for handle in (self._launching, self._preparing):
            self.module.destroy_handle(handle)


class Graph:
    """A graph under description; operands are numbered in the order of a launch's addresses."""

    def __init__(self, module: Any, raw: Any) -> None:
        self.module, self.raw = module, raw
        self.count = 0

    def dtype(self, dtype: DType | str) -> Any:
        """The frontend's name of a dtype."""
        return getattr(self.module.data_type, NAMES[dtype if isinstance(dtype, str) else dtype.name])

    def input(self, shape: Sequence[int], strides: Sequence[int], dtype: DType | str, ragged: Any = None) -> Any:
        """An operand that is read; ``ragged``: where its sequences begin."""
        self.count += 1
        made = self.raw._make_tensor(dim=list(shape), stride=list(strides), data_type=self.dtype(dtype), uid=self.count)
        return made if ragged is None else made.set_ragged_offset(ragged)

    def output(
        self, tensor: Any, shape: Sequence[int], strides: Sequence[int], dtype: DType | str, ragged: Any = None
    ) -> None:
        """Mark the value of a node as an output."""
        self.count += 1
        tensor.set_uid(self.count).set_output(True).set_data_type(self.dtype(dtype))
        tensor.set_dim(list(shape)).set_stride(list(strides))
        if ragged is not None:
            tensor.set_ragged_offset(ragged)


class GraphPlan:
    """A plan: ``plan(stream, *addresses)``, with the addresses in the order in which the operands were described."""

    def __init__(self, graphs: CudnnGraphs, raw: Any, tag: str, operands: int) -> None:
        self._graphs, self._tag, self._raw = graphs, tag, raw
        raw._prepare_variant_pack_template()
        uids: list[int] = list(raw._get_variant_pack_uids_sorted())
        if not set(uids) <= set(range(1, operands + 1)):
            raise LibraryError(f"{tag}: cuDNN asks for operands {uids} of {operands}", "cudnn", 0)
        self._places = [uid - 1 for uid in uids]
        self._pointers = (ctypes.c_void_p * max(1, len(uids)))()
        self._at = ctypes.addressof(self._pointers)
        self._room = graphs.workspace.lease(max(1, int(raw.get_workspace_size())))

    def __call__(self, stream: "CudaStream", addresses: Sequence[int]) -> None:
        for i, place in enumerate(self._places):
            self._pointers[i] = addresses[place]
        try:
            self._raw._execute_with_raw_ptrs(
                self._at, len(self._places), self._room.memory.address, self._graphs.on(stream), -1
            )
        except Exception as e:  # as above
            raise failure(e, self._tag) from None

    def close(self) -> None:
        """Free the workspace; no launch uses it any more."""
        self._graphs.workspace.leave(self._room)


def failure(error: Exception, tag: str) -> AccelError:
    """Translate an exception of the frontend."""
    text = f"{tag}: {error}"
    if type(error).__name__ == "cudnnGraphNotSupportedError" or "NOT_SUPPORTED" in str(error):
        return UnsupportedOp(f"cuda, {text}")
    if "ALLOCATION_FAILED" in str(error):
        return OutOfMemory(text)
    return LibraryError(text, "cudnn", 0)
