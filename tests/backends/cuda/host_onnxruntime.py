"""A stand-in for ONNX Runtime's CUDA build, which executes a few operators on host memory, on the stream it was given.

Inputs and outputs are read and written at the addresses that were bound, which must be device memory.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
from host_driver import HostDriver, array_at

from callboard.core.dtype import DTYPES
from callboard.kernel.engine.onnxfile import CODES, model_of

Array = np.ndarray[Any, Any]
NAMES = {code: name for name, code in CODES.items()}
WORDS = {"f32": "float", "i64": "int64", "f16": "float16"}
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
OPERATORS: dict[str, Any] = {
    "Add": np.add,
    "GridSample": lambda x, grid: x[..., : grid.shape[1], : grid.shape[2]],
    "MatMul": np.matmul,
    "NonMaxSuppression": lambda x: x + 1,
    "NonZero": lambda x: np.stack(np.nonzero(x)).astype(np.int64),
    "Relu": lambda x: np.maximum(x, 0),
}


class Settings:
    """``SessionOptions`` and ``RunOptions``."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.terminate = False
        self.intra_op_num_threads = 0
        self.log_severity_level = 2

    def add_session_config_entry(self, name: str, value: str) -> None:
        self.entries[name] = value

    add_run_config_entry = add_session_config_entry


class Binding:
    """``IOBinding``: where inputs and outputs are."""

    def __init__(self, session: "Session") -> None:
        self.session = session
        self.ins: dict[str, tuple[Any, ...]] = {}
        self.outs: dict[str, tuple[Any, ...] | None] = {}
        self.made: list[Value] = []

    def bind_input(self, name: str, device: str, number: int, code: int, shape: list[int], address: int) -> None:
        assert (device, number) == ("cuda", 0)
        self.session.host.bound.append((name, address))
        self.ins[name] = code, shape, address
        if name in self.session.host.on_host:  # copied now, not in the order of the stream
            self.ins[name] = code, shape, self.session.host.read(code, shape, address).copy()

    def bind_output(
        self, name: str, device: str, number: int, code: int = 0, shape: Any = None, address: int | None = None
    ) -> None:
        assert (device, number) == ("cuda", 0)
        if address is not None:
            self.session.host.bound.append((name, address))
        self.outs[name] = None if address is None else (code, shape, address)

    def get_outputs(self) -> list["Value"]:
        return self.made


class Value:
    """``OrtValue``: an output that the session has allocated on the device."""

    def __init__(self, host: "HostOnnxRuntime", array: Array) -> None:
        self._array = array
        self._memory = host.driver._allocated(host.driver.blocks, max(array.nbytes, 1))
        array_at(self._memory, array.dtype, array.shape, steps(array.shape))[...] = array

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def data_ptr(self) -> int:
        return self._memory

    def tensor_size_in_bytes(self) -> int:
        return self._array.nbytes


class Session:
    """``InferenceSession``."""

    def __init__(self, host: "HostOnnxRuntime", data: bytes, options: Settings, providers: Any) -> None:
        self.host, self.options, self.providers = host, options, providers
        self.model = model_of(data)
        self.stream = int(providers[0][1]["user_compute_stream"])

    def __del__(self) -> None:
        self.host.ended += 1

    def get_providers(self) -> list[str]:
        return [CUDA, CPU] if self.host.loads else [CPU]

    def _described(self, ports: Any) -> list[Any]:
        return [SimpleNamespace(name=p.name, type=f"tensor({WORDS[p.dtype]})", shape=list(p.shape)) for p in ports]

    def get_inputs(self) -> list[Any]:
        return self._described(self.model.graph.inputs)

    def get_outputs(self) -> list[Any]:
        return self._described(self.model.graph.outputs)

    def get_input_memory_infos(self) -> list[Any]:
        inputs = self.model.graph.inputs
        return [SimpleNamespace(name="Cpu" if p.name in self.host.on_host else "Cuda") for p in inputs]

    def get_provider_graph_assignment_info(self) -> list[Any]:
        assert self.options.entries["session.record_ep_graph_assignment_info"] == "1"
        nodes: dict[str, list[Any]] = {CUDA: [], CPU: []}
        for node in self.model.graph.nodes:
            where = CPU if node.op in self.host.for_the_cpu else CUDA
            nodes[where].append(SimpleNamespace(op_type=node.op, name=node.outputs[0]))
        return [SimpleNamespace(ep_name=name, get_nodes=lambda n=n: n) for name, n in nodes.items()]

    def io_binding(self) -> Binding:
        return Binding(self)

    def run_with_iobinding(self, binding: Binding, options: Settings) -> None:
        host = self.host
        host.ran.append(options.entries)
        if host.raises is not None:
            raise host.raises
        host.driver._enqueued("onnxruntime", self.stream)
        found = dict(self.model.graph.initializers)
        for name, (code, shape, at) in binding.ins.items():
            found[name] = at if isinstance(at, np.ndarray) else host.read(code, shape, at)
        for node in self.model.graph.nodes:
            found[node.outputs[0]] = OPERATORS[node.op](*(found[name] for name in node.inputs))
        binding.made = []
        for name, place in binding.outs.items():
            if place is None:
                binding.made.append(Value(host, found[name]))
            else:
                host.read(*place)[...] = found[name]


class HostOnnxRuntime:
    """In place of the module ``onnxruntime``.

    Args:
        driver: Whose memory is the device's.

    Attributes:
        built_for_cuda: Its build has the provider.
        loads: The provider can be loaded.
        for_the_cpu: Operators that it leaves to the CPU.
        on_host: Inputs that it reads on the host.
        opened: The sessions, by what they were opened with: options of the CUDA provider.
        ended: The number of sessions that were destroyed.
        bound: Name and address of what was bound.
        ran: The settings of the executions.
        raises: What the next executions raise.
    """

    __version__ = "1.31.1"
    __file__ = "/nowhere/onnxruntime/__init__.py"
    SessionOptions = RunOptions = Settings

    def __init__(self, driver: HostDriver) -> None:
        self.driver = driver
        self.built_for_cuda = self.loads = True
        self.for_the_cpu: set[str] = set()
        self.on_host: set[str] = set()
        self.opened: list[dict[str, str]] = []
        self.ended = 0
        self.bound: list[tuple[str, int]] = []
        self.ran: list[dict[str, str]] = []
        self.raises: Exception | None = None

    def get_available_providers(self) -> list[str]:
        return [CUDA, CPU] if self.built_for_cuda else [CPU]

    def set_default_logger_severity(self, severity: int) -> None: ...

    def InferenceSession(  # noqa: N802 - its name
        self,
        data: bytes,
        options: Settings,
        providers: Any,
        enable_fallback: int,
        disabled_optimizers: list[str],
    ) -> Session:
        assert enable_fallback == 0
        self.opened.append(providers[0][1])
        return Session(self, data, options, providers)

    def read(self, code: int, shape: list[int], address: int) -> Array:
        """An array on the device."""
        dtype = DTYPES[NAMES[code]].np
        assert self.driver.on_device(address, int(np.prod(shape)) * dtype.itemsize)
        return array_at(address, dtype, tuple(shape), steps(tuple(shape)))


def steps(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major."""
    found = [1]
    for extent in shape[:0:-1]:
        found.insert(0, found[0] * extent)
    return tuple(found)[: len(shape)] if shape else ()
