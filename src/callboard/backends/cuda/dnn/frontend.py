"""cuDNN's operation graphs, through NVIDIA's frontend: how one is described, planned, kept and enqueued.

::

    def describe(g):  # of a GraphBuilder
        x, w = g.input(op.x.layout), g.input(op.w.layout)  # operands, in the order in which a launch gives them
        y = g.raw.conv_fprop(x, w, ...)  # nodes are the frontend's
        g.output(y, out_layout)


    plan = library.frontend.plan(describe, key, tag="dnn.conv")
    plan(stream, x, w, out)  # addresses, in that order

The key is everything that the plan depends on: the signature of a message serves as one. The package's own ``pygraph``
wraps the class that is used here, ``backend_graph`` of its compiled module, to offer engines in Python besides cuDNN's,
and inspects every buffer of every call. The package's version is pinned, and this is the only module that uses it.
"""

import contextlib
import ctypes
import hashlib
import importlib
import logging
import re
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.dnn.legacy import INSTALL, Cudnn
from callboard.backends.cuda.dnn.timing import fastest
from callboard.backends.cuda.kernelcache import KernelCache
from callboard.core.dtype import DType
from callboard.core.errors import AccelError, BackendUnavailable, LibraryError, OutOfMemory, UnsupportedOp
from callboard.core.layout import Layout

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream
    from callboard.backends.cuda.workspace import Workspace

__all__ = ["ALIGNMENT", "Frontend", "GraphBuilder", "Planned"]

ALIGNMENT = 16
"""Alignment in bytes of each operand: engines load that many bytes at once, and would read beyond an operand that
starts elsewhere."""
FIRST_SCALAR = 1 << 16
"""Identifier of the first number of a graph; those of operands are smaller."""
DESCRIPTIONS = 3
"""Counted up when a graph of the same key is described otherwise: plans that were kept are then made again."""
MOST_WORKSPACE = 2 << 30
"""Bytes; engines that need more are passed over."""
MOST_REASONS = 3
FRAME = re.compile(r"[\w>-]+\([^()]*\)$")
"""A reason that only names the failed check of cuDNN."""
MOST_TIMED = 10
"""Engines that are timed, of those that heuristics name first."""
INEXACT = (
    "FFT", "WINOGRAD", "WINOGRAD_TILE_4x4", "WINOGRAD_TILE_6x6", "WINOGRAD_TILE_13x13", "DOWN_CONVERT_INPUTS",
    "REDUCED_PRECISION_REDUCTION",
)  # fmt: skip
"""Notes of engines that are never taken: their errors are not those of sums of products in the accumulator's type."""
NAMES = {
    "f16": "HALF", "bf16": "BFLOAT16", "f32": "FLOAT", "f64": "DOUBLE", "i8": "INT8", "u8": "UINT8", "i32": "INT32",
    "i64": "INT64", "bool": "BOOLEAN", "f8_e4m3": "FP8_E4M3", "f8_e5m2": "FP8_E5M2",
}  # fmt: skip

_log = logging.getLogger("callboard.cuda")

Describe = Callable[["GraphBuilder"], None]


class GraphBuilder:
    """A graph that is being described.

    Args:
        module: The frontend.
        raw: Graph of the frontend.

    Attributes:
        module, raw: The frontend and its graph; nodes are methods of ``raw``.
        operands: Layouts of inputs and outputs so far.
        scalars: Numbers so far, which the plan passes by their address.
    """

    def __init__(self, module: Any, raw: Any) -> None:
        self.module = module
        self.raw = raw
        self.operands: list[Layout] = []
        self.scalars: list[float] = []

    def dtype(self, dtype: DType | str) -> Any:
        """The frontend's name of a dtype."""
        name = dtype if isinstance(dtype, str) else dtype.name
        return getattr(self.module.data_type, NAMES[name])

    def input(self, layout: Layout) -> Any:
        """An operand that is read: the next of those that a launch gives."""
        self.operands.append(layout)
        return self.raw._make_tensor(
            dim=list(layout.shape), stride=list(layout.strides), data_type=self.dtype(layout.dtype),
            uid=len(self.operands),
        )  # fmt: skip

    def output(self, tensor: Any, layout: Layout) -> None:
        """Mark the value of a node as an output: the next operand of a launch."""
        self.operands.append(layout)
        tensor.set_uid(len(self.operands)).set_output(True).set_data_type(self.dtype(layout.dtype))
        tensor.set_dim(list(layout.shape)).set_stride(list(layout.strides))

    def virtual(self, tensor: Any, dtype: DType | str = "f32") -> Any:
        """Declare the value of a node that only other nodes read."""
        return tensor.set_data_type(self.dtype(dtype))

    def scalar(self, value: float, axes: int) -> Any:
        """Return a number in f32, part of the plan, as an array of ``axes`` axes.

        cuDNN reads it from host memory in each launch. ``tensor_scalar`` of the frontend would store it as an f64, of
        which cuDNN's reductions read the lower half as an f32.
        """
        self.scalars.append(float(value))
        return self.raw._make_tensor(
            dim=[1] * axes, stride=[1] * axes, data_type=self.module.data_type.FLOAT, is_pass_by_value=True,
            uid=FIRST_SCALAR + len(self.scalars) - 1,
        )  # fmt: skip


class Planned:
    """A plan: ``plan(stream, *addresses)``, with the addresses in the order in which the operands were described.

    Args:
        frontend: Frontend that made the plan.
        raw: The graph.
        tag: Name of the op in errors.
        operands: Number of described operands.
        scalars: Numbers that the graph has.
        index: One of its engines, to be timed: :meth:`enqueue` is given room then; -1: the one that was chosen.

    Attributes:
        workspace: Bytes that it works in.
    """

    def __init__(
        self, frontend: "Frontend", raw: Any, tag: str, operands: int, scalars: Sequence[float], index: int = -1
    ) -> None:
        self._cudnn, self._workspaces, self._tag = frontend.cudnn, frontend.workspace, tag
        self._index = index
        raw._prepare_variant_pack_template()
        self._uids: list[int] = list(raw._get_variant_pack_uids_sorted())
        known = {*range(1, operands + 1), *range(FIRST_SCALAR, FIRST_SCALAR + len(scalars))}
        if not set(self._uids) <= known:
            raise LibraryError(f"{tag}: cuDNN asks for operands {self._uids} of {operands}", "cudnn", 0)
        self._places = [(i, uid - 1) for i, uid in enumerate(self._uids) if uid < FIRST_SCALAR]
        self._pointers = (ctypes.c_void_p * max(1, len(self._uids)))()
        self._scalars = (ctypes.c_float * max(1, len(scalars)))(*scalars)
        for i, uid in enumerate(self._uids):
            if uid >= FIRST_SCALAR:
                self._pointers[i] = ctypes.addressof(self._scalars) + 4 * (uid - FIRST_SCALAR)
        self._at = ctypes.addressof(self._pointers)
        self.raw = raw
        self._run = raw._execute_with_raw_ptrs
        self.workspace = int(raw.get_workspace_size() if index < 0 else raw.get_workspace_size_plan_at_index(index))
        self._room = frontend.workspace.lease(max(self.workspace, 1)) if index < 0 else None

    def __call__(self, stream: "CudaStream", *addresses: int) -> None:
        assert self._room is not None
        self.enqueue(self._cudnn.on(stream), addresses, self._room.memory.address)

    def enqueue(self, handle: int, addresses: Sequence[int], workspace: int) -> None:
        """Execute it by a handle, which has a stream."""
        union = 0
        for i, place in self._places:
            address = addresses[place]
            union |= address
            self._pointers[i] = address
        if union % ALIGNMENT:
            raise UnsupportedOp(
                f"cuda, {self._tag}: an operand does not start at a multiple of {ALIGNMENT} bytes; pass dev.copy(...) "
                f"of those that are views into other arrays"
            )
        try:
            self._run(self._at, len(self._uids), workspace, handle, self._index)
        except Exception as e:  # RuntimeError and the frontend's own, from C++
            raise failure(e, self._tag) from None

    def close(self) -> None:
        """Free the workspace; no launch uses it any more."""
        if self._room is not None:
            self._workspaces.leave(self._room)


class Frontend:
    """Makes plans of graphs. The package is imported when a first graph is described.

    Args:
        device: The device; its context is current.
        cudnn: The handles.
        workspace: Workspace of all plans.
        module: A substitute for the package, for tests.
        cache: The cache of plans that persists over restarts.
    """

    def __init__(
        self,
        device: "CudaDevice",
        cudnn: Cudnn,
        workspace: "Workspace",
        module: Any = None,
        cache: KernelCache | None = None,
    ) -> None:
        self.device, self.cudnn, self.workspace = device, cudnn, workspace
        self._module = module
        self._cache = KernelCache() if cache is None else cache
        self._lock = threading.Lock()

    @property
    def module(self) -> Any:
        """The package.

        Raises:
            BackendUnavailable: It is not installed.
        """
        with self._lock:
            if self._module is None:
                try:
                    cudnn = importlib.import_module("cudnn")
                except Exception as e:  # ImportError, or an error of another version of the package
                    raise BackendUnavailable(f"NVIDIA's frontend of cuDNN cannot be used: {e}; {INSTALL}") from e
                if not hasattr(getattr(cudnn, "_pybind_module", None), "backend_graph"):
                    raise BackendUnavailable(f"nvidia-cudnn-frontend is {cudnn.__version__}, not 1.32; {INSTALL}")
                self._module = cudnn
            return self._module

    def plan(
        self,
        describe: Describe,
        key: bytes,
        tag: str,
        *,
        compute: DType | str = "f32",
        tensor_cores: bool = True,
        deterministic: bool = False,
        autotune: bool = False,
    ) -> Planned:
        """Plan a graph: read from the disk if it was planned before; on the thread that prepares.

        Args:
            describe: Describes it.
            key: Everything that the plan depends on besides the other arguments: the signature of the message.
            tag: The name of the op in errors.
            compute: The compute dtype of nodes.
            tensor_cores: Engines may use them; False if factors of f32 must not be rounded to TF32.
            deterministic: Accept only engines that give equal bits in equal calls.
            autotune: Time the engines, and take the fastest.

        Raises:
            UnsupportedOp: No engine takes it; with cuDNN's reason.
            BackendUnavailable, OutOfMemory, LibraryError
        """
        name = self._name(key, f"{compute} {tensor_cores} {deterministic} {autotune}")
        try:
            g = self._described(describe, tag, compute)
            kept = self._kept(name, tag, compute, g)
            if kept is not None:
                return kept
            self._candidates(g, tensor_cores, deterministic)
            if autotune:  # the one that was built last is the graph's
                g.raw.build_plan_at_index(fastest(self, g, tag, MOST_TIMED))
            else:
                g.raw.check_support()
                g.raw.build_plans(self.module.build_plan_policy.HEURISTICS_CHOICE)
            planned = Planned(self, g.raw, tag, len(g.operands), g.scalars)
        except AccelError:
            raise
        except Exception as e:  # RuntimeError and the frontend's own, from C++
            raise failure(e, tag) from None
        with contextlib.suppress(Exception):  # an engine that has no form for the disk is planned anew
            self._cache.keep(name, bytes(planned.raw.serialize(as_bytes=True)))
        if autotune and (alone := self._kept(name, tag, compute, g)) is not None:  # without the others' code
            planned.close()
            return alone
        return planned

    def why_not(self, describe: Describe, tag: str, compute: DType | str, tensor_cores: bool) -> str | None:
        """The reason why no engine supports a graph, None if one does; nothing compiled for this check is kept.

        Args:
            describe, tag, compute, tensor_cores: See :meth:`plan`.
        """
        try:
            g = self._described(describe, tag, compute)
            self._candidates(g, tensor_cores, deterministic=False)
            g.raw.check_support()
        except OutOfMemory:
            raise
        except Exception as e:  # UnsupportedOp, ValueError, RuntimeError and the frontend's own, from C++
            return reasons(str(e))
        return None

    def _raw(self, tag: str, compute: DType | str) -> Any:
        types = self.module.data_type
        compute_type = getattr(types, NAMES[compute if isinstance(compute, str) else compute.name])
        return self.module._pybind_module.backend_graph(
            name=tag, intermediate_data_type=compute_type, compute_data_type=compute_type, handle=self.cudnn.preparing
        )

    def _kept(self, name: str, tag: str, compute: DType | str, g: GraphBuilder) -> Planned | None:
        content = self._cache.get(name)
        if content is None:
            return None
        raw = self._raw(tag, compute)
        try:
            raw.deserialize(self.cudnn.preparing, content)
            return Planned(self, raw, tag, len(g.operands), g.scalars)
        except OutOfMemory:
            raise
        except Exception as e:  # of another driver, for example
            _log.info("%s: the plan that was kept is made again: %s", tag, e)
            return None

    def _described(self, describe: Describe, tag: str, compute: DType | str) -> GraphBuilder:
        g = GraphBuilder(self.module, self._raw(tag, compute))
        describe(g)
        return g

    def _candidates(self, g: GraphBuilder, tensor_cores: bool, deterministic: bool) -> None:
        """Have heuristics name engines, the best first, and strike those that are not wanted."""
        module, raw = self.module, g.raw
        raw.validate()
        raw.build_operation_graph()
        raw.create_execution_plans([module.heur_mode.A, module.heur_mode.FALLBACK])
        notes = [*INEXACT, *["NONDETERMINISTIC"] * deterministic, *["TENSOR_CORE"] * (not tensor_cores)]
        raw.deselect_numeric_notes([getattr(module.numerical_note, note) for note in notes])
        raw.deselect_workspace_greater_than(MOST_WORKSPACE)

    def _name(self, key: bytes, policy: str) -> str:
        info = self.device.info
        versions = f"{DESCRIPTIONS} {self.cudnn.version} {self.module.__version__}"
        parts = (key, policy.encode(), versions.encode(), f"{info.name} {info.compute_capability}".encode())
        digest = hashlib.sha256()
        for part in parts:  # each with its length: no two lists of parts are one text
            digest.update(len(part).to_bytes(8, "little") + part)
        return f"cudnn-{digest.hexdigest()}"


def reasons(text: str) -> str:
    """Extract the reasons from an error text of cuDNN.

    The text lists the missing features of each engine, and the conditions within them.
    """
    found = dict.fromkeys(
        why.partition(" at: ")[0].strip()
        for status, why in re.findall(r"Warning: (\w+); Reason: ([^\n]*)", text)
        if not status.endswith("ARCH_MISMATCH") and not FRAME.match(why) and "status)" not in why
    )
    if not found and "Deselecting" in text:
        return "the engines that it has round factors or sums, or need too much memory"
    return "; ".join(list(found)[:MOST_REASONS]) or text.strip()


def failure(error: Exception, tag: str) -> AccelError:
    """Translate an exception of the frontend."""
    text = f"{tag}: {reasons(str(error))}"
    if type(error).__name__ == "cudnnGraphNotSupportedError" or "NOT_SUPPORTED" in str(error):
        return UnsupportedOp(f"cuda, {text}: cuDNN has no engine for it")
    if isinstance(error, ValueError):
        return UnsupportedOp(f"cuda, {text}")
    if "ALLOCATION_FAILED" in str(error):
        return OutOfMemory(text)
    return LibraryError(text, "cudnn", 0)
