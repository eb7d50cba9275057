"""``Run``: an execution of a model on the memory of refs, enqueued like any op."""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.engine.failing import execution_error
from callboard.backends.cuda.engine.sessions import Opened
from callboard.backends.cuda.stream import CudaStream
from callboard.core.errors import BudgetSpent
from callboard.core.layout import Layout
from callboard.core.library import Extents
from callboard.core.op import outputs_of
from callboard.kernel.engine import Execute
from callboard.kernel.engine.onnxfile import CODES

if TYPE_CHECKING:
    from callboard.backends.cuda.engine.library import CudaEngine

__all__ = ["Run"]


Described = tuple[str, int, list[int]]
"""Name, ONNX's code of the dtype, and shape."""


class Bound:
    """Inputs and outputs as they are bound now, and the settings of an execution with them.

    Args:
        opened: The session.
        runtime: The module ``onnxruntime``.
        device: Ordinal of the device.
    """

    def __init__(self, opened: Opened, runtime: Any, device: int) -> None:
        self.binding = opened.session.io_binding()
        self._device = device
        self._ins: dict[str, int] = {}
        self._outs: dict[str, int] = {}
        self.options = runtime.RunOptions()
        # The stream orders what comes next: the host does not wait for it.
        self.options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        # No graph is captured. ONNX Runtime looks for this entry in each run, and a missing one takes it 40 us.
        self.options.add_run_config_entry("gpu_graph_id", "-1")

    def bind(self, ins: Iterable[tuple[Described, int]], outs: Iterable[tuple[Described, int]]) -> None:
        """Bind arrays at their addresses, where they are not bound there yet."""
        for bind, now, arrays in (
            (self.binding.bind_input, self._ins, ins),
            (self.binding.bind_output, self._outs, outs),
        ):
            for (name, code, shape), address in arrays:
                if now.get(name) != address:
                    bind(name, "cuda", self._device, code, shape, address)
                    now[name] = address


class Run:
    """A plan of :class:`Execute`: inputs and outputs are bound where they are, and again only where they have moved.

    What waits on the host, or has outputs whose extents only the engine determines, is executed by the size query with
    outputs of ONNX Runtime's own, which are copied.
    """

    def __init__(self, library: "CudaEngine", op: Execute) -> None:
        self._library = library
        self._device = library.device.native
        self._spec = spec = op.spec
        self._model = op.model.layout.nbytes
        self._ins = [_described(name, each.layout) for name, each in zip(spec.inputs, op.ins, strict=True)]
        made = list(outputs_of(op).values()) if op.outs is None else [out.layout for out in op.outs]
        self._open = [min(shape, default=0) < 0 for _, shape in spec.layouts] if op.outs is None else []
        known = not any(self._open)
        self._outs = [_described(n, each) for n, each in zip(spec.outputs, made, strict=True)] if known else []
        self._found: list[Any] | None = None
        self.__name__ = f"engine.execute({spec.title})"

    def query_size(self, stream: CudaStream, model: int, ins: Sequence[int] | None, outs: Any) -> Extents:
        """Execute it with outputs of ONNX Runtime's own."""
        opened = self._opened(stream, model)
        bound = Bound(opened, self._library.runtime, self._device)
        bound.bind(zip(self._ins, ins or (), strict=True), ())
        for name in self._spec.outputs:
            bound.binding.bind_output(name, "cuda", self._device)
        self._run(opened, bound)
        self._found = found = bound.binding.get_outputs()
        return [tuple(each.shape()) for each, unknown in zip(found, self._open, strict=False) if unknown]

    def __call__(self, stream: CudaStream, model: int, ins: Sequence[int] | None, outs: Sequence[int]) -> None:
        found, self._found = self._found, None
        if found is not None:
            driver = stream.driver
            for value, address in zip(found, outs, strict=True):
                if size := value.tensor_size_in_bytes():
                    driver.check(
                        driver.memcpy_dtod(address, value.data_ptr(), size, stream.native), "cuMemcpyDtoDAsync"
                    )
            return
        opened = self._opened(stream, model)
        bound = opened.bindings.get(self)
        if bound is None:
            bound = opened.bindings[self] = Bound(opened, self._library.runtime, self._device)
        bound.bind(zip(self._ins, ins or (), strict=True), zip(self._outs, outs, strict=True))
        try:
            self._run(opened, bound)
        except BaseException:  # its settings may say that it is to end
            opened.bindings.pop(self, None)
            raise

    def _opened(self, stream: CudaStream, model: int) -> Opened:
        return self._library.sessions.of(
            self._spec, stream.native, lambda: self._library.bytes_at(stream, model, self._model)
        )

    def _run(self, opened: Opened, bound: Bound) -> None:
        spec, library = self._spec, self._library
        opened.failed = True  # until it has succeeded
        # It ends when all nodes have been enqueued, unless it waits, or a count of turns has no end.
        bounded = opened.waits or opened.loops
        watched = library.overtime.watch(spec.title, spec.budget, bound.options) if bounded else nullcontext()
        try:
            with watched:
                opened.session.run_with_iobinding(bound.binding, bound.options)
            opened.failed = False
        except BudgetSpent:
            raise
        except Exception as e:  # ONNX Runtime's own errors have no common base
            raise execution_error(e, spec.title, spec.inputs, library.sessions.limit) from e


def _described(name: str, layout: Layout) -> Described:
    return name, CODES[layout.dtype.name], list(layout.shape)
