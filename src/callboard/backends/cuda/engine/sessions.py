"""``Sessions``: ONNX Runtime's sessions on a CUDA device, each on the stream that it is executed on."""

import ctypes
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from callboard.backends.cuda.engine.failing import device_error
from callboard.backends.cuda.engine.loading import PROVIDER, not_opened
from callboard.core.errors import LibraryError
from callboard.kernel.engine import EngineSpec
from callboard.kernel.engine.files.rewrites import switched_off

__all__ = ["Opened", "Sessions"]

MOST_SESSIONS = 32
"""Models whose sessions are kept; those used least recently give way, and are read again when they are used."""
SHARE = 2
"""A session takes at most one part in so many of the device's memory: weights, and values between nodes."""
ON_DEVICE = "Cuda"
"""ONNX Runtime's name of the device's memory."""
LOOPS = ("If", "Loop", "Scan")
NAMES = (
    "Abs Add And Cast Ceil Concat Constant ConstantOfShape Div Equal Expand Floor Gather Greater GreaterOrEqual "
    "Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Pow Range ReduceMax ReduceMin ReduceProd ReduceSum Reshape "
    "ScatterND Shape Size Slice Split Sqrt Squeeze Sub Tile Transpose Unsqueeze Where"
)
SMALL = frozenset(NAMES.split())
"""Operators of the arithmetic of shapes. ONNX Runtime leaves those of a few integers on the host, where shapes are:
nothing is brought from the device for them."""


class Opened:
    """A session, and what was found of it.

    Args:
        session: ONNX Runtime's.

    Attributes:
        on_host: Nodes that the CUDA provider left to the CPU's, ``"NonMaxSuppression boxes"``.
        waits: An execution waits on the host for values of the device: a node on the host takes some, or an input is
            read there. ONNX Runtime copies such an input when it is bound, not in the order of the stream.
        loops: It has nodes with bodies, which are executed a number of times that may depend on values.
        failed: The last execution failed.
        bindings: By what executes it; see :class:`~callboard.backends.cuda.engine.running.Run`.
    """

    def __init__(self, session: Any) -> None:
        self.session = session
        self.failed = False
        self.bindings: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        parts = session.get_provider_graph_assignment_info()
        nodes = [(node.op_type, node.name) for part in parts if part.ep_name != PROVIDER for node in part.get_nodes()]
        self.on_host = [" ".join(node).rstrip() for node in nodes]
        read_there = any(where.name != ON_DEVICE for where in session.get_input_memory_infos())
        self.loops = any(node.op_type in LOOPS for part in parts for node in part.get_nodes())
        self.waits = read_there or any(op not in SMALL for op, _ in nodes)


class Sessions:
    """The sessions of a device.

    Each has a reference of its own until it is closed, so that nothing else ends it: not a library that is dropped with
    a lost context, nor the end of the interpreter. ONNX Runtime calls the driver while it destroys a session, and ends
    the process where such a call fails. Two kinds of sessions are never destroyed for that: those of a dead context,
    and those whose last execution has failed. Such an execution leaves host memory to a function that is enqueued when
    the session is destroyed, and that may be the last to hold the session's page-locked memory: then it frees it, which
    no function on a stream may.

    Args:
        runtime: The module ``onnxruntime``.
        device: Ordinal of the device.
        total: Bytes of its memory.
        alive: Whether the context lives.
    """

    def __init__(self, runtime: Any, device: int, total: int, alive: Callable[[], bool]) -> None:
        self._runtime = runtime
        self._device = device
        self._alive = alive
        self.limit = total // SHARE
        self._kept: OrderedDict[tuple[Any, ...], Opened] = OrderedDict()

    def of(self, spec: EngineSpec, stream: int, data: Callable[[], bytes]) -> Opened:
        """The session of a model, opened on first use.

        Args:
            spec: What names it.
            stream: The native stream that it enqueues on.
            data: Gives the ONNX file.

        Raises:
            LibraryError: ONNX Runtime refuses the model.
            BackendUnavailable: Its CUDA provider cannot be loaded.
            OutOfMemory, DriverError, ContextPoisoned
        """
        key = (*_name(spec), stream)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        found = self._kept[key] = self._open(spec, stream, data())
        _keep(found.session)
        while len(self._kept) > MOST_SESSIONS:
            self._let_go(self._kept.popitem(last=False)[1])
        return found

    def close(self, spec: EngineSpec | None = None) -> None:
        """Close the sessions of a model, or all; their work is done."""
        for key in [key for key in self._kept if spec is None or key[:-1] == _name(spec)]:
            self._let_go(self._kept.pop(key))

    def _let_go(self, opened: Opened) -> None:
        opened.bindings.clear()
        if not opened.failed and self._alive():
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(opened.session))

    def _open(self, spec: EngineSpec, stream: int, data: bytes) -> Opened:
        options = self._runtime.SessionOptions()
        options.log_severity_level = 4
        # Nodes on the host are small: other threads would take the cores from the actors.
        options.intra_op_num_threads = spec.threads or 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        cuda = {
            "device_id": str(self._device),
            "user_compute_stream": str(stream),
            "gpu_mem_limit": str(self.limit),
            "arena_extend_strategy": "kSameAsRequested",
            "use_tf32": str(int(spec.tf32)),
        }
        providers: Sequence[Any] = ((PROVIDER, cuda), "CPUExecutionProvider")
        try:
            session = self._runtime.InferenceSession(
                data, options, providers=list(providers), enable_fallback=0, disabled_optimizers=switched_off(data)
            )
        except Exception as e:  # ONNX Runtime's own errors have no common base
            if "CUDA_PATH" in str(e):  # where that is set, a provider that cannot be loaded raises
                raise not_opened(self._runtime) from e
            failed = device_error(e, f"engine.build({spec.title})", self.limit)
            raise failed or LibraryError(f"ONNX Runtime cannot read {spec.title}: {e}", "onnxruntime") from e
        if PROVIDER not in session.get_providers():
            raise not_opened(self._runtime)
        return Opened(session)


def _name(spec: EngineSpec) -> tuple[Any, ...]:
    return spec.digest, spec.threads, spec.tf32


def _keep(session: Any) -> None:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))
