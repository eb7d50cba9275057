"""A cuTENSOR handle and its plans: the only module that uses ``nvmath.bindings.cutensor``."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from callboard.backends.cuda.vendor import Vendor, load_binding, not_loaded, status_of
from callboard.core.dtype import DType
from callboard.core.errors import BackendUnavailable
from callboard.kernel.tensor.modes import Label, Tensor

__all__ = [
    "ALGORITHMS",
    "ASKED",
    "BY_NUMBER",
    "INSTALL",
    "Cutensor",
    "Described",
    "Planned",
    "Refused",
    "load_cutensor",
]

INSTALL = 'pip install "callboard[cutensor13]"'
DATA_TYPES = {"f16": 2, "bf16": 14, "f32": 0, "f64": 1, "c64": 4, "c128": 5}
"""``cudaDataType``; integers are not among cuTENSOR's."""
ALIGNED = 16
"""Bytes. An H200 takes the same time with 16 as with 128, and up to five times as long with an element's size."""
WORKSPACE_DEFAULT, REQUIRED_WORKSPACE, JIT_NONE, CACHE_MODE, CACHE_NONE = 2, 0, 0, 1, 0
COARSE = frozenset({"mish", "sigmoid", "soft_plus", "swish"})
"""Operators whose results are off by more than ours, in 2.8: relative errors of 1e-4 in f32 and 1e-12 in f64 near 0."""
ALLOC_FAILED = 3
OLDEST = 20000
REFUSALS = frozenset({7, 8, 14, 15})
"""``cutensorStatus_t`` of unsupported operations: INVALID_VALUE, ARCH_MISMATCH, INTERNAL_ERROR (types without a kernel,
in 2.8), NOT_SUPPORTED."""
DEFAULT = -1
ALGORITHMS = (-2, DEFAULT, -6, -4, -3)
"""``cutensorAlgo_t`` in the order in which they are tried: ``TTGT``, ``DEFAULT``, and those that autotune also tries,
``DEFAULT_PATIENT``, ``GETT`` and ``TGETT``. The reasons for this order: docs/decisions/0020-cutensor.md."""
BY_NUMBER = (0, 1, 2, 3)
"""Kernels that are tried for contractions of unaligned operands, in order. Those that 2.8.1 chooses itself, whatever
the algorithm, read some operands as if they were aligned (a fault of the device): docs/decisions/0020-cutensor.md."""
ASKED = 2
"""The number of algorithms tried without autotune, the second only if the first is rejected."""


class Refused(Exception):
    """cuTENSOR does not take this. Never leaves the library."""


class Described(NamedTuple):
    """A tensor as operation descriptors take it.

    Attributes:
        descriptor: Descriptor of extents, steps, dtype and alignment.
        modes: Modes in cuTENSOR's numbers.
    """

    descriptor: int
    modes: list[int]


class Planned:
    """A plan of cuTENSOR for operands at any address: one for aligned addresses and one for others.

    Attributes:
        workspace: Bytes that either needs.
    """

    def __init__(self, cutensor: "Cutensor", aligned: int, loose: int) -> None:
        self._cutensor = cutensor
        self._aligned = aligned
        self._loose = loose
        self.workspace = max(cutensor.workspace(plan) for plan in {aligned, loose})

    def at(self, addresses: int) -> int:
        """The plan for operands at these addresses, joined by ``|``."""
        return self._loose if addresses % ALIGNED else self._aligned

    def close(self) -> None:
        """Destroy them; nothing is being launched with them."""
        for plan in {self._aligned, self._loose}:
            self._cutensor.library.destroy_plan(plan)


def load_cutensor() -> tuple[Any, int]:
    """NVIDIA's binding of cuTENSOR with the library loaded, and its version: 20801 is 2.8.1. No handle is made.

    Raises:
        BackendUnavailable: The package or libcutensor is missing, or older than 2.
    """
    library = load_binding("cutensor", "cuTENSOR", INSTALL)
    try:
        version = int(library.get_version())
    except Exception as e:  # pathfinder's and nvmath's own, when libcutensor or a symbol is missing
        raise not_loaded("cutensor", e, INSTALL) from e
    if version < OLDEST:
        raise BackendUnavailable(f"cuTENSOR has version {version}, needed is {OLDEST} or later; {INSTALL}")
    return library, version


class Cutensor(Vendor):
    """A handle. Plans may be made on one thread while another one launches: cuTENSOR's functions are thread-safe.

    Args:
        library: The binding.

    Attributes:
        library: The binding, or its substitute.
        failure: Exception class of the binding.
        handle: The ``cutensorHandle_t``.

    Raises:
        OutOfMemory, LibraryError: cuTENSOR refuses.
    """

    name = "cutensor"
    no_room = (ALLOC_FAILED,)

    def __init__(self, library: Any) -> None:
        super().__init__(library, library.cuTENSORError)
        self.handle = int(self.checked("cutensorCreate", library.create))

    def operator(self, name: str, dtype: DType) -> int:
        """The code of an operator of :mod:`callboard.kernel.tensor.operators`.

        Raises:
            Refused: This version has none.
        """
        if name == "conj" and not dtype.is_complex:
            name = "identity"
        if name in COARSE:
            raise Refused(f"{name!r} is not exact to the last bits")
        code = getattr(self.library.Operator, f"OP_{name.upper()}", None)
        if code is None:
            raise Refused(f"no operator {name!r}")
        return int(code)

    def compute(self, dtype: DType, rounded: str | None = None) -> int:
        """The compute descriptor for arrays of this dtype.

        Args:
            dtype: The dtype of the arrays.
            rounded: The dtype that f32 and c64 factors may be rounded to.
        """
        names = {"f16": "16F", "bf16": "16BF", "tf32": "TF32"}
        name = "64F" if dtype.name in ("f64", "c128") else "32F"
        if rounded in names and dtype.name in ("f32", "c64"):
            name = names[rounded]
        return int(getattr(self.library.ComputeDesc, f"COMPUTE_{name}")())

    def planned(
        self,
        tensors: Sequence[Tensor],
        extents: Mapping[Label, int],
        describe: Callable[..., int],
        algorithm: int = DEFAULT,
        unaligned: Sequence[int] = (DEFAULT,),
    ) -> Planned:
        """Make the plans of an operation.

        Args:
            tensors: Operands, and last the result.
            extents: Extents of all modes, none 0.
            describe: ``describe(*described)`` gives an operation descriptor.
            algorithm: A ``cutensorAlgo_t``, for aligned addresses.
            unaligned: Algorithms for unaligned addresses; the first that is accepted is used.

        Raises:
            Refused: This version does not take it.
            AccelError: It fails.
        """
        size = tensors[-1].layout.dtype.itemsize
        plans: list[int] = []
        try:
            plans.append(self._plan(tensors, extents, describe, algorithm, ALIGNED))
            if size < ALIGNED:
                plans.append(self._first(tensors, extents, describe, unaligned, size))
            return Planned(self, plans[0], plans[-1])
        except self.failure as e:
            for plan in plans:
                self.library.destroy_plan(plan)
            if status_of(e) in REFUSALS:
                raise Refused(str(e)) from None
            raise self.error(e, "cutensorCreatePlan") from None

    def _first(
        self,
        tensors: Sequence[Tensor],
        extents: Mapping[Label, int],
        describe: Callable[..., int],
        algorithms: Sequence[int],
        alignment: int,
    ) -> int:
        *others, last = algorithms
        for algorithm in others:
            try:
                return self._plan(tensors, extents, describe, algorithm, alignment)
            except self.failure as e:
                if status_of(e) not in REFUSALS:
                    raise
        return self._plan(tensors, extents, describe, last, alignment)

    def _plan(
        self,
        tensors: Sequence[Tensor],
        extents: Mapping[Label, int],
        describe: Callable[..., int],
        algorithm: int,
        alignment: int,
    ) -> int:
        library, handle = self.library, self.handle
        numbers = {label: i for i, label in enumerate(extents)}
        made: list[tuple[Callable[[int], None], int]] = []

        def keep(destroy: Callable[[int], None], what: int) -> int:
            made.append((destroy, what))
            return what

        try:
            described = []
            for tensor in tensors:
                modes, sizes, steps = modes_of(tensor, numbers)
                kind = DATA_TYPES.get(tensor.layout.dtype.name)
                if kind is None:
                    raise Refused(f"no arrays of {tensor.layout.dtype}")
                descriptor = library.create_tensor_descriptor(handle, len(modes), sizes, steps, kind, alignment)
                described.append(Described(keep(library.destroy_tensor_descriptor, int(descriptor)), modes))
            operation = keep(library.destroy_operation_descriptor, int(describe(*described)))
            preference = int(library.create_plan_preference(handle, algorithm, JIT_NONE))
            keep(library.destroy_plan_preference, preference)
            # Plans are cached here. A plan of cuTENSOR's own cache would depend on earlier requests.
            self._set(library.plan_preference_set_attribute, preference, CACHE_MODE, CACHE_NONE)
            limit = library.estimate_workspace_size(handle, operation, preference, WORKSPACE_DEFAULT)
            return int(library.create_plan(handle, operation, preference, limit))
        finally:
            for destroy, what in reversed(made):
                destroy(what)

    def _set(self, function: Callable[..., None], what: int, attribute: int, value: int) -> None:
        cell = ctypes.c_int32(value)
        function(self.handle, what, attribute, ctypes.addressof(cell), ctypes.sizeof(cell))

    def workspace(self, plan: int) -> int:
        """Bytes that a plan needs."""
        cell = ctypes.c_uint64()
        where = ctypes.addressof(cell), ctypes.sizeof(cell)
        self.library.plan_get_attribute(self.handle, plan, REQUIRED_WORKSPACE, *where)
        return cell.value

    def guarded(self, function: Callable[..., None], call: str) -> Callable[..., None]:
        """The same function with callboard's errors."""
        failure = self.failure

        def run(*arguments: Any) -> None:
            try:
                function(*arguments)
            except failure as e:
                raise self.error(e, call) from None

        return run

    def close(self) -> None:
        """Destroy the handle; all its plans are closed and all work is done."""
        if self.handle:
            handle, self.handle = self.handle, 0
            self.checked("cutensorDestroy", self.library.destroy, handle)


def modes_of(tensor: Tensor, numbers: Mapping[Label, int]) -> tuple[list[int], list[int], list[int]]:
    """Modes, extents and steps as a descriptor takes them: a mode along which a tensor is repeated is not its own.

    Raises:
        Refused: It is empty, or a step is backward.
    """
    layout = tensor.layout
    if layout.size == 0:
        raise Refused("nothing is there")
    axes = [x for x in zip(tensor.labels, layout.shape, layout.strides, strict=True) if x[1] > 1 and x[2]]
    if any(step < 0 for _, _, step in axes):
        raise Refused("steps backward")
    return [numbers[label] for label, _, _ in axes], [n for _, n, _ in axes], [step for _, _, step in axes]
