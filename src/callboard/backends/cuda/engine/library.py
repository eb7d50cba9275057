"""``CudaEngine``: ONNX models by ONNX Runtime's CUDA build, on the stream of the library and the memory of refs."""

import ctypes
import json
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.engine.loading import load_runtime
from callboard.backends.cuda.engine.running import Run
from callboard.backends.cuda.engine.sessions import Sessions
from callboard.backends.cuda.stream import CudaStream
from callboard.core.library import Extents, Library, plans
from callboard.kernel.engine import Build, EngineSpec, Execute, Release
from callboard.kernel.engine.inputs.overtime import Overtime

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaEngine"]


def waits(op: Execute) -> bool:
    """The execution may take long on the host; see :attr:`EngineSpec.waits`."""
    return op.spec.waits


class CudaEngine(Library):
    """Serves :mod:`callboard.kernel.engine` with ONNX Runtime.

    An execution enqueues the kernels of all nodes, and returns: other libraries' ops before and after it are in order
    by events, and nothing is copied but outputs whose extents only the engine knows. The first execution of each set of
    shapes, which opens the session and looks for algorithms, is made on the helper thread, as is every execution that
    waits on the host.
    """

    name = "engine"
    device: "CudaDevice"

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self.runtime: Any = load_runtime()
        self.sessions = Sessions(self.runtime, device.native, device.memory_info()[1], lambda: device.probe() is None)
        self.overtime = Overtime()

    @property
    def detail(self) -> str:
        return f"ONNX Runtime {self.runtime.__version__}"

    def close(self) -> None:
        self.sessions.close()

    def bytes_at(self, stream: CudaStream, address: int, nbytes: int) -> bytes:
        """Bytes of the device; waits for the stream."""
        found = bytearray(nbytes)
        target = ctypes.addressof((ctypes.c_char * nbytes).from_buffer(found))
        driver = self.device.driver
        driver.check(driver.memcpy_dtoh(target, address, nbytes, stream.native), "cuMemcpyDtoHAsync")
        stream.synchronize()
        return bytes(found)

    @plans(Build, sizes=True)
    def read(self, op: Build) -> "Read":
        return Read(self, op)

    @plans(Execute, sizes=True, always=waits, captures=False)
    def execute(self, op: Execute) -> Run:
        return Run(self, op)

    @plans(Release, sizes=True, always=True, captures=False)
    def release(self, op: Release) -> "Close":
        return Close(self, op.spec)


class Read:
    """A plan of :class:`Build`."""

    def __init__(self, library: CudaEngine, op: Build) -> None:
        self._library = library
        self._spec = op.spec
        self._nbytes = op.model.layout.nbytes
        self._text = b""

    def query_size(self, stream: CudaStream, model: int, out: None) -> Extents:
        """Open the session."""
        library = self._library
        opened = library.sessions.of(self._spec, stream.native, lambda: library.bytes_at(stream, model, self._nbytes))
        capability = library.device.info.compute_capability or (0, 0)
        described = {
            "version": library.runtime.__version__,
            "device": f"cuda {capability[0]}.{capability[1]}",
            "inputs": [(each.name, each.type, list(each.shape)) for each in opened.session.get_inputs()],
            "outputs": [(each.name, each.type, list(each.shape)) for each in opened.session.get_outputs()],
            "waits": opened.waits,
            "on_host": opened.on_host,
        }
        self._text = json.dumps(described).encode()
        return [(len(self._text),)]

    def __call__(self, stream: CudaStream, model: int, out: int) -> None:
        driver = stream.driver
        driver.check(driver.memcpy_htod(out, self._text, len(self._text), stream.native), "cuMemcpyHtoDAsync")


class Close:
    """A plan of :class:`Release`: on the helper thread, since closing a session frees memory, which waits."""

    def __init__(self, library: CudaEngine, spec: EngineSpec) -> None:
        self._library, self._spec = library, spec

    def query_size(self, stream: CudaStream) -> Extents:
        """Close it; its work is done."""
        self._library.sessions.close(self._spec)
        return []

    def __call__(self, stream: CudaStream) -> None:
        """Nothing is left to do."""
