"""``cuda.compute``: NVIDIA's binding of CUB, whose algorithms are compiled for each set of dtypes and operators.

The minimal wheel of cuda-cccl is enough: no numba, since operators are passed as LTO-IR. A compile takes 1 to 3 s; its
result is cached on disk, so that the next process loads it within milliseconds.
"""

import hashlib
import importlib
import importlib.metadata
import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.backends.cuda.compiling import load_nvrtc
from callboard.backends.cuda.kernelcache import KernelCache
from callboard.backends.cuda.plans import PlanMemory, Span
from callboard.backends.cuda.workspace import Workspace
from callboard.core.errors import AccelError, BackendUnavailable, LibraryError

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["Built", "Cccl", "load_compute"]

INSTALL = 'pip install "callboard[cub13]"'

_log = logging.getLogger("callboard.cuda")


def load_compute() -> Any:
    """The module ``cuda.compute``.

    Raises:
        BackendUnavailable: It is not installed, or finds no driver.
    """
    try:
        module = importlib.import_module("cuda.compute")
        _ = module.OpKind  # without a driver the import only warns
    except (ImportError, AttributeError, OSError, RuntimeError) as e:
        raise BackendUnavailable(f"CUB cannot be used: {e}; {INSTALL}") from e
    return module


class StreamView:
    """A stream as ``cuda.compute`` takes it."""

    __slots__ = ("native",)

    def __init__(self, native: int) -> None:
        self.native = native

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.native


class Built:
    """An algorithm of ``cuda.compute``, compiled. It holds the arguments of its last call, hence the lock.

    Args:
        name: Name of the algorithm in errors.
        algorithm: The object to call.
    """

    def __init__(self, name: str, algorithm: Any) -> None:
        self._name = name
        self._algorithm = algorithm
        self._lock = threading.Lock()

    def __call__(self, native: int, temp: Span | None, arguments: Mapping[str, Any]) -> int:
        """Enqueue it; without ``temp`` only ask how many bytes it needs.

        Raises:
            LibraryError: It fails.
        """
        with self._lock:
            try:
                return int(self._algorithm(temp_storage=temp, stream=StreamView(native), **arguments) or 0)
            except AccelError:
                raise
            except Exception as e:  # the binding raises RuntimeError, ValueError, TypeError
                raise LibraryError(f"cuda.compute {self._name}: {e}", "cub") from e


class Cccl:
    """Builds algorithms for a device, once each.

    Args:
        device: Device that the algorithms run on.

    Attributes:
        device: The device.
        compute: ``cuda.compute``, or its substitute.
        workspace: Workspace of the library's plans.
    """

    def __init__(self, device: "CudaDevice") -> None:
        self.device = device
        self.driver = device.driver
        self.compute = load_compute()
        self._raw_op = self.compute.op.RawOp  # as the manual writes it; it is not a name of the package itself
        self.workspace = Workspace(device)
        self._built: dict[str, Built] = {}
        self._operators: dict[str, Any] = {}
        self._lock = threading.Lock()

    def raw_op(self, name: str, text: str, state: int = 0) -> Any:
        """An operator of C++ text; compiles, at most once on this machine.

        Args:
            name: Name of the function in the text, and of the text in compiler messages; must be unique.
            text: Defines ``extern "C" __device__ void name(void*, ...)``.
            state: Bytes that each call hands over before its other arguments.

        Raises:
            LibraryError: NVRTC rejects the text; with the compiler's log.
        """
        found = self._operators.get(name)
        if found is None:
            code = self.device.kernels.linkable(name, text.encode())
            found = self._raw_op(ltoir=code, name=name, state=bytes(state), state_alignment=8 if state else 1)
            self._operators[name] = found
        return found

    def stateful(self, name: str, state: bytes) -> Any:
        """An operator for a call of an algorithm built with it, with the bytes of this call."""
        return self._raw_op(ltoir=b"", name=name, state=state, state_alignment=8)

    def step(
        self,
        memory: PlanMemory,
        algorithm: str,
        build: Mapping[str, Any] | None = None,
        run: Mapping[str, Any] | None = None,
        **both: Any,
    ) -> Callable[[int], None]:
        """A function that enqueues an algorithm with the current contents of its arguments; compiles now, if needed.

        Args:
            memory: Memory of the plan, which temporary storage is taken from.
            algorithm: ``"radix_sort"`` for ``make_radix_sort``.
            build: Arguments of the making only.
            run: Arguments of the call only; the mapping can be changed between calls.
            both: Arguments of both.
        """
        built = self._get(algorithm, {**(build or {}), **both})
        rest = {} if run is None else run
        temp = memory.take(max(built(0, None, {**both, **rest}), 1))

        def enqueue(native: int) -> None:
            built(native, temp, {**both, **rest})

        return enqueue

    def close(self) -> None:
        """Release the workspace and drop the algorithms; all work is done."""
        self._built.clear()
        self._operators.clear()
        self.workspace.close()

    def _get(self, algorithm: str, arguments: Mapping[str, Any]) -> Built:
        key = f"{algorithm}({', '.join(f'{name}={described(value)}' for name, value in sorted(arguments.items()))})"
        built = self._built.get(key)
        if built is None:
            with self._lock:
                built = self._built.get(key)
                if built is None:
                    built = self._built[key] = Built(algorithm, self._load(algorithm, key, arguments))
        return built

    def _load(self, algorithm: str, key: str, arguments: Mapping[str, Any]) -> Any:
        """From disk, else compiled and kept there."""
        capability = self.device.info.compute_capability
        text = f"{key} {capability} {versions()}"
        cache, name = KernelCache(), f"cub_{algorithm}-{hashlib.sha256(text.encode()).hexdigest()[:32]}.bin"
        kept = cache.get(name)
        try:
            if kept is not None:
                return self.compute.deserialize(kept)
        except Exception as e:  # a binding that does not accept its own result; any exception
            _log.warning("%s cannot be read: %s; it is compiled again", name, e)
        try:
            made = getattr(self.compute, f"make_{algorithm}")(**arguments, compute_capability=capability)
            blob = made.serialize()
            cache.keep(name, blob)
            return self.compute.deserialize(blob)  # one of our own: the binding hands the same out to others
        except Exception as e:  # as in a call
            raise LibraryError(f"cuda.compute make_{algorithm}: {e}", "cub") from e


def versions() -> str:
    """Return the versions of the packages that a build depends on."""
    nvrtc = load_nvrtc()
    _, *number = nvrtc.nvrtcVersion()
    return f"cuda-cccl {importlib.metadata.version('cuda-cccl')} nvrtc {'.'.join(map(str, number))}"


def described(value: Any) -> str:
    """The part of an argument that a build depends on."""
    if isinstance(value, Span | np.ndarray):
        return f"{type(value).__name__} {value.dtype.name}"
    if value is None or isinstance(value, bool | int | str):
        return repr(value)
    code = getattr(value, "_ltoir", None)
    if code is not None:
        return f"{value._name} {len(value.get_state())} {hashlib.sha256(bytes(code)).hexdigest()}"
    kind = getattr(value, "kind", None)
    return str(kind) if kind is not None else str(value)
