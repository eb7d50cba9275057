"""``CpuEngine``: ONNX models by ONNX Runtime, on the memory of refs."""

import ctypes
import json
import platform
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from callboard.backends.cpu.library import CpuLibrary
from callboard.backends.cpu.stream import CpuStream
from callboard.backends.cpu.views import viewer
from callboard.core.backend import AccelDevice, AccelStream
from callboard.core.backend.machine import cores
from callboard.core.errors import BackendUnavailable, BudgetSpent, LibraryError
from callboard.core.layout import Layout
from callboard.core.library import Extents, plans
from callboard.core.op import outputs_of
from callboard.kernel.engine import Build, EngineSpec, Execute, Release
from callboard.kernel.engine.inputs.overtime import Overtime
from callboard.kernel.engine.inputs.refused import runtime_error
from callboard.kernel.engine.onnxfile import CODES

__all__ = ["CpuEngine"]

MOST_SESSIONS = 32
"""Models whose sessions are kept; those used least recently give way, and are read again when they are used."""


class CpuEngine(CpuLibrary):
    """Serves :mod:`callboard.kernel.engine` with ONNX Runtime."""

    name = "engine"
    implementation = "onnxruntime"
    inline = False
    brief = False

    def __init__(self, device: AccelDevice, stream: AccelStream) -> None:
        super().__init__(device, stream)
        try:
            import onnxruntime
        except ImportError as e:
            raise BackendUnavailable(
                "ONNX Runtime is not installed; install it with: pip install 'callboard[onnx]', or use "
                'engine="callboard"'
            ) from e
        onnxruntime.set_default_logger_severity(4)
        self.runtime: Any = onnxruntime
        self._sessions: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self.overtime = Overtime()

    @property
    def detail(self) -> str:
        return f"ONNX Runtime {self.runtime.__version__}"

    def close(self) -> None:
        self._sessions.clear()

    def session(self, spec: EngineSpec, data: Callable[[], bytes]) -> Any:
        """The session of a model, opened on first use."""
        key = spec.digest, spec.threads
        found = self._sessions.get(key)
        if found is None:
            options = self.runtime.SessionOptions()
            options.log_severity_level = 4
            options.intra_op_num_threads = spec.threads or cores()
            # Threads that wait in a loop would take the cores from the actors.
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            try:
                found = self.runtime.InferenceSession(data(), options, providers=["CPUExecutionProvider"])
            except Exception as e:  # ONNX Runtime's own errors have no common base
                raise LibraryError(f"ONNX Runtime cannot read {spec.title}: {e}", "onnxruntime") from e
            self._sessions[key] = found
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        else:
            self._sessions.move_to_end(key)
        return found

    @plans(Build, sizes=True)
    def read(self, op: Build) -> "Read":
        return Read(self, op)

    @plans(Execute, sizes=True)
    def execute(self, op: Execute) -> "Run":
        return Run(self, op)

    @plans(Release)
    def release(self, op: Release) -> Callable[[], None]:
        def run() -> None:
            self._sessions.pop((op.spec.digest, op.spec.threads), None)

        return run


class Read:
    """A plan of :class:`Build`."""

    def __init__(self, library: CpuEngine, op: Build) -> None:
        self._library = library
        self._spec = op.spec
        self._model = viewer(op.model.layout)
        self._text = b""

    def query_size(self, stream: CpuStream, model: int, out: None) -> Extents:
        """Open the session."""
        session = self._library.session(self._spec, lambda: self._model(model).tobytes())
        described = {
            "version": self._library.runtime.__version__,
            "device": f"cpu {platform.machine()}",
            "inputs": [(each.name, each.type, list(each.shape)) for each in session.get_inputs()],
            "outputs": [(each.name, each.type, list(each.shape)) for each in session.get_outputs()],
        }
        self._text = json.dumps(described).encode()
        return [(len(self._text),)]

    def __call__(self, model: int, out: int) -> None:
        ctypes.memmove(out, self._text, len(self._text))


class Run:
    """A plan of :class:`Execute`: inputs and outputs are bound where they are.

    Outputs whose extents only the engine determines are computed by the size query, and copied.
    """

    def __init__(self, library: CpuEngine, op: Execute) -> None:
        self._library = library
        self._spec = spec = op.spec
        self._model = viewer(op.model.layout)
        self._ins = [_bound(name, each.layout) for name, each in zip(spec.inputs, op.ins, strict=True)]
        made = list(outputs_of(op).values()) if op.outs is None else [out.layout for out in op.outs]
        self._open = any(n < 0 for _, shape in spec.layouts for n in shape) and op.outs is None
        self._outs = [] if self._open else [_bound(n, each) for n, each in zip(spec.outputs, made, strict=True)]
        self._found: list[Any] | None = None
        self.__name__ = f"engine.execute({spec.title})"

    def query_size(self, stream: CpuStream, model: int, ins: Sequence[int], outs: Any) -> Extents:
        """Execute it, with outputs of the engine's own."""
        binding = self._run(model, ins, [])
        self._found = made = binding.get_outputs()
        shapes = [tuple(each.shape()) for each in made]
        declared = (shape for _, shape in self._spec.layouts)
        return [found for found, shape in zip(shapes, declared, strict=True) if min(shape, default=0) < 0]

    def __call__(self, model: int, ins: Sequence[int] | None, outs: Sequence[int]) -> None:
        if not self._open:
            self._run(model, ins or (), outs)
            return
        found, self._found = self._found, None
        assert found is not None, "the size query runs before"
        for value, address in zip(found, outs, strict=True):
            if size := value.tensor_size_in_bytes():
                ctypes.memmove(address, value.data_ptr(), size)

    def _run(self, model: int, ins: Sequence[int], outs: Sequence[int]) -> Any:
        session = self._library.session(self._spec, lambda: self._model(model).tobytes())
        binding = session.io_binding()
        for (name, code, shape), address in zip(self._ins, ins or (), strict=True):
            binding.bind_input(name, "cpu", 0, code, shape, address)
        for (name, code, shape), address in zip(self._outs, outs, strict=not self._open):
            binding.bind_output(name, "cpu", 0, code, shape, address)
        if self._open:
            for name in self._spec.outputs:
                binding.bind_output(name, "cpu")
        options = self._library.runtime.RunOptions()
        # No graph is captured. ONNX Runtime 1.32 looks for this entry in each run, and a missing one takes it 40 us.
        options.add_run_config_entry("gpu_graph_id", "-1")
        try:
            with self._library.overtime.watch(self._spec.title, self._spec.budget, options):
                session.run_with_iobinding(binding, options)
        except BudgetSpent:
            raise
        except Exception as e:  # ONNX Runtime's own errors have no common base
            raise runtime_error(e, self._spec.title, self._spec.inputs) from e
        return binding


def _bound(name: str, layout: Layout) -> tuple[str, int, list[int]]:
    return name, CODES[layout.dtype.name], list(layout.shape)
