"""``CpuEngine``: ONNX models by ONNX Runtime, on the memory of refs."""

import ctypes
import json
import math
import platform
import time
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
from callboard.core.library import AnyOp, Extents, plans
from callboard.core.op import outputs_of
from callboard.kernel.engine import Build, EngineSpec, Execute, Release
from callboard.kernel.engine.files.rewrites import switched_off
from callboard.kernel.engine.inputs.opened import SHARED, Opened
from callboard.kernel.engine.inputs.overtime import Overtime
from callboard.kernel.engine.inputs.refused import runtime_error
from callboard.kernel.engine.onnxfile import CODES

__all__ = ["CpuEngine"]

UNWATCHED = 100.0
"""Factor by which a budget is longer than the last executions of a model without loops, from which on none is watched:
that takes as long as a small model."""
MOST_BINDINGS = 64
"""Sets of addresses that inputs and outputs of one set of shapes stay bound to: results come from a pool."""
MOST_SESSIONS = 32
"""Models whose sessions are kept; those used least recently give way, and are read again when they are used."""


class CpuEngine(CpuLibrary):
    """Serves :mod:`callboard.kernel.engine` with ONNX Runtime."""

    name = "engine"
    implementation = "onnxruntime"
    brief = True

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
        self._sessions: OrderedDict[tuple[str, int], Opened] = OrderedDict()
        self.overtime = Overtime()
        self.options = self.new_options()
        """Those of executions that are not watched."""

    @property
    def detail(self) -> str:
        return f"ONNX Runtime {self.runtime.__version__}"

    @classmethod
    def is_brief(cls, op: AnyOp) -> bool:
        return isinstance(op, Execute) and op.spec.steady

    def close(self) -> None:
        while self._sessions:
            self._sessions.popitem()[1].close()

    def new_options(self) -> Any:
        """The ``RunOptions`` of an execution."""
        options = self.runtime.RunOptions()
        # No graph is captured. ONNX Runtime 1.32 looks for this entry in each run, and a missing one takes it 40 us.
        options.add_run_config_entry("gpu_graph_id", "-1")
        return options

    def opened(self, spec: EngineSpec, data: Callable[[], bytes]) -> Opened:
        """The session of a model, opened on first use."""
        key = spec.digest, spec.threads
        found = self._sessions.get(key)
        if found is None:
            options = self.runtime.SessionOptions()
            options.log_severity_level = 4
            options.intra_op_num_threads = spec.threads or cores()
            # Threads that wait in a loop would take the cores from the actors.
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            file = data()
            try:
                session = self.runtime.InferenceSession(
                    file, options, providers=["CPUExecutionProvider"], disabled_optimizers=switched_off(file)
                )
            except Exception as e:  # ONNX Runtime's own errors have no common base
                raise LibraryError(f"ONNX Runtime cannot read {spec.title}: {e}", "onnxruntime") from e
            self._sessions[key] = found = Opened(session)
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)[1].close()
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
            if (found := self._sessions.pop((op.spec.digest, op.spec.threads), None)) is not None:
                found.close()

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
        session: Any = self._library.opened(self._spec, lambda: self._model(model).tobytes()).session
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
        self._ins = [_port(name, each.layout) for name, each in zip(spec.inputs, op.ins, strict=True)]
        made = list(outputs_of(op).values()) if op.outs is None else [out.layout for out in op.outs]
        self._open = any(n < 0 for _, shape in spec.layouts for n in shape) and op.outs is None
        self._outs = [] if self._open else [_port(n, each) for n, each in zip(spec.outputs, made, strict=True)]
        self._shapes = tuple([tuple(shape) for _, _, shape in self._ins])
        self._found: list[Any] | None = None
        self._opened: Opened | None = None
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

    def able(self) -> bool:
        """True if an execution opens no session."""
        return self._opened is not None and self._opened.session is not None

    def _run(self, model: int, ins: Sequence[int], outs: Sequence[int]) -> Any:
        spec, library = self._spec, self._library
        opened = library.opened(spec, lambda: self._model(model).tobytes())
        if opened is not self._opened:
            self._opened = opened
            if spec.token:
                SHARED[spec.token] = opened
        session: Any = opened.session
        binding = self._bound(opened, (*ins, *outs))
        began = time.perf_counter()
        try:
            if spec.steady and spec.budget >= UNWATCHED * opened.recent.get(self._shapes, math.inf):
                session.run_with_iobinding(binding, library.options)
            else:
                options = library.new_options()
                with library.overtime.watch(spec.title, spec.budget, options):
                    session.run_with_iobinding(binding, options)
        except BudgetSpent:
            raise
        except Exception as e:  # ONNX Runtime's own errors have no common base
            raise runtime_error(e, spec.title, spec.inputs) from e
        if spec.steady:
            opened.took(self._shapes, time.perf_counter() - began)
        return binding

    def _bound(self, opened: Opened, addresses: tuple[int, ...]) -> Any:
        """The inputs and outputs, bound to these addresses."""
        known = opened.bindings.get(self)
        if known is None:
            known = opened.bindings[self] = {}
        binding = known.get(addresses)
        if binding is not None:
            return binding
        session: Any = opened.session
        binding = session.io_binding()
        ins = len(self._ins)
        for (name, code, shape), address in zip(self._ins, addresses, strict=False):
            binding.bind_input(name, "cpu", 0, code, shape, address)
        for (name, code, shape), address in zip(self._outs, addresses[ins:], strict=not self._open):
            binding.bind_output(name, "cpu", 0, code, shape, address)
        if self._open:
            for name in self._spec.outputs:
                binding.bind_output(name, "cpu")
        else:
            if len(known) >= MOST_BINDINGS:
                known.clear()
            known[addresses] = binding
        return binding


def _port(name: str, layout: Layout) -> tuple[str, int, list[int]]:
    return name, CODES[layout.dtype.name], list(layout.shape)
