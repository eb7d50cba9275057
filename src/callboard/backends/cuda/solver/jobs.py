"""A plan in the making: its parts of the workspace, the copies into and out of them, its kernels and routines.

cuSOLVER is column-major and overwrites its inputs, so every op works on copies in the workspace: operands are copied in
(column-major, checked for NaN on the way), results are copied out. The copies cost ``O(n^2)`` beside ``O(n^3)``. In
return, inputs and results may have any strides, and an input may also be an output.
"""

import ctypes
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from callboard.backends.cuda.copies import copier
from callboard.backends.cuda.launching import THREADS, kernel_launcher, linear_grid
from callboard.backends.cuda.solver.plans import INFO, SolverPlan, StatusCheck, Step
from callboard.backends.cuda.solver.waiting import waits
from callboard.core.dtype import DType
from callboard.core.layout import Layout, layout_of
from callboard.core.library import Extents
from callboard.core.op import Op, info_of
from callboard.core.operand import Operand
from callboard.kernel.solver.failures import Explain

if TYPE_CHECKING:
    from callboard.backends.cuda.solver.cusolver import Cusolver

__all__ = ["Job", "Part", "SolverArgs", "columns", "rows"]


ALIGNMENT = 256
WITHOUT_RESULT_MODE = 2
"""Mode of the kernel that counts NaN and infinities: they are no failure, and the results become NaN."""


class SolverArgs(ctypes.Structure):
    """``SolverArgs`` of ``data/solver.cuh``."""

    _fields_ = (
        ("x", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("z", ctypes.c_void_p),
        ("status", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("cols", ctypes.c_int64),
        ("batch", ctypes.c_int64),
        ("ld", ctypes.c_int64),
        ("mode", ctypes.c_int64),
        ("ldz", ctypes.c_int64),
        ("low", ctypes.c_double),
        ("high", ctypes.c_double),
    )


class Part(NamedTuple):
    """A part of the workspace.

    Attributes:
        at: Offset in bytes.
        layout: Layout of the array in it.
    """

    at: int
    layout: Layout


def columns(layout: Layout, ld: int = 0) -> Layout:
    """The same shape column-major, each matrix of a stack by itself; ``ld`` 0: without gaps."""
    dtype, shape = layout.dtype, layout.shape
    if len(shape) == 1:
        return layout_of(dtype, shape)
    ld = ld or max(shape[-2], 1)
    return layout_of(dtype, shape, (*((ld * max(shape[-1], 1),) if len(shape) == 3 else ()), 1, ld))


def rows(layout: Layout) -> Layout:
    """The same shape row-major: to a column-major routine, the transpose."""
    return layout_of(layout.dtype, layout.shape)


class Job:
    """Collects the requirements of one op.

    Attributes:
        solver: The handles.
        tag: Tag of the op.
        outputs: Layout of each output, given or made.
    """

    def __init__(self, solver: "Cusolver", op: Op[Any, Any]) -> None:
        self.solver = solver
        self.tag = info_of(type(op)).tag
        inferred = op.infer()
        self.outputs = {
            name: inferred[name] if (given := getattr(op, name)) is None else given.layout for name in inferred
        }
        self._ahead = waits(op)
        self._checks = getattr(op, "check_finite", True)
        self._nbytes = ALIGNMENT
        self._kept: list[Any] = []  # host memory of the launch that is going on

    # -- the workspace -------------------------------------------------------------------------------------------------

    def take(self, nbytes: int) -> int:
        """Return the offset of ``nbytes`` bytes of the workspace."""
        at = self._nbytes
        self._nbytes += -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        return at

    def part(self, layout: Layout) -> Part:
        """Room for an array."""
        return Part(self.take((layout.last + 1) * layout.dtype.itemsize), layout)

    def array(self, dtype: DType, *shape: int) -> Part:
        """Room for a column-major array."""
        return self.part(columns(layout_of(dtype, shape)))

    # -- copies --------------------------------------------------------------------------------------------------------

    def load(
        self, operand: Operand, layout: Layout | None = None, into: Part | None = None, replaces: bool = False
    ) -> tuple[Part, Step]:
        """Return a copy of an operand in the workspace, column-major by default, and the step that makes it.

        NaN and infinities are counted in the status and become 0, so that no routine meets them; unless the op has
        ``check_finite=False``. Then they are left as they are, or with ``replaces`` become 0 all the same, but are
        counted for :meth:`without_result`.
        """
        part = self.part(columns(operand.layout) if layout is None else layout) if into is None else into
        copy = copier(self.solver.driver, self.solver.device.kernels, operand.layout, part.layout)
        dtype = operand.dtype
        length = (part.layout.last + 1) * (2 if dtype.is_complex else 1)
        if not (dtype.is_float or dtype.is_complex) or not length or not (self._checks or replaces):
            return part, lambda native, base, address: copy(native, address, base + part.at)
        mode = dtype.is_complex + (0 if self._checks else WITHOUT_RESULT_MODE)
        finite = self.kernel(f"finite_{dtype.real}", length, rows=length, mode=mode)

        def step(native: int, base: int, address: int) -> None:
            copy(native, address, base + part.at)
            finite(native, base, x=base + part.at)

        return part, step

    def store(self, name: str, part: Part) -> Step:
        """Return the step that copies an output from the workspace."""
        return self.copy_out(part, self.outputs[name])

    def copy_out(self, part: Part, layout: Layout) -> Step:
        """``step(native, base, address)``: copy a part to an array of this layout."""
        copy = copier(self.solver.driver, self.solver.device.kernels, part.layout, layout)
        return lambda native, base, address: copy(native, base + part.at, address)

    def zero(self, part: Part) -> Callable[[int, int], None]:
        """``run(native, base)``: fill a part with 0 bytes."""
        words = -(-(part.layout.last + 1) * part.layout.dtype.itemsize // 4)
        memset, check = self.solver.driver.memset_32, self.solver.driver.check
        return lambda native, base: check(memset(base + part.at, 0, words, native), "cuMemsetD32Async")

    def not_a_number(self, part: Part) -> Callable[[int, int, int], None]:
        """``run(native, base, first)``: fill a vector with NaN from an element on."""
        size, words = part.layout.size, part.layout.dtype.itemsize // 4
        memset, check = self.solver.driver.memset_32, self.solver.driver.check

        def run(native: int, base: int, first: int) -> None:
            if first < size:
                at = base + part.at + 4 * words * first
                check(memset(at, 2**32 - 1, words * (size - first), native), "cuMemsetD32Async")

        return run

    def without_result(self, part: Part) -> Callable[[int, int], None]:
        """``run(native, base)``: fill a part without gaps with NaN if ``load(…, replaces=True)`` has found NaN."""
        dtype, size = part.layout.dtype, part.layout.size
        if self._checks or not size:
            return lambda native, base: None
        length = size * (2 if dtype.is_complex else 1)
        fill = self.kernel(f"without_result_{dtype.real}", length, rows=length)
        return lambda native, base: fill(native, base, x=base + part.at)

    def identity(self, part: Part) -> Callable[[int, int], None]:
        """``run(native, base)``: fill a column-major matrix with the identity."""
        (m, n), name = part.layout.shape, part.layout.dtype.name
        if not part.layout.size:
            return lambda native, base: None
        fill = self.kernel(f"identity_{name}", m * n, rows=m, cols=n)
        return lambda native, base: fill(native, base, x=base + part.at)

    def move(self, source: Part, target: Part) -> Callable[[int, int], None]:
        """``run(native, base)``: copy inside the workspace."""
        copy = copier(self.solver.driver, self.solver.device.kernels, source.layout, target.layout)
        return lambda native, base: copy(native, base + source.at, base + target.at)

    def conjugate(self, part: Part) -> Callable[[int, int], None]:
        """``run(native, base)``: conjugate a complex part without gaps in place."""
        flip = self.kernel(f"conjugate_{part.layout.dtype.real}", part.layout.size, rows=part.layout.size)
        return lambda native, base: flip(native, base, x=base + part.at)

    def vector_of(self, part: Part) -> Part:
        """The one column of a matrix."""
        return Part(part.at, layout_of(part.layout.dtype, part.layout.shape[:1]))

    def scalar_of(self, part: Part) -> Part:
        """Return the first element, 0-d."""
        return Part(part.at, layout_of(part.layout.dtype, ()))

    # -- kernels and routines ------------------------------------------------------------------------------------------

    def kernel(
        self, name: str, count: int, *, blocks: int = 0, source: str = "solver", **fixed: Any
    ) -> Callable[..., None]:
        """``run(native, base, x=…, y=…, z=…)`` of a kernel in ``data/``; a thread for each of ``count``."""
        args = SolverArgs(**fixed)
        function = self.solver.device.kernels.get(source, name)
        launch = kernel_launcher(self.solver.driver, function, blocks or linear_grid(count), (THREADS, 1), args)

        def run(native: int, base: int, x: int = 0, y: int = 0, z: int = 0) -> None:
            args.x, args.y, args.z, args.status = x, y, z, base
            launch(native)

        return run

    def routine(
        self,
        name: str,
        sizing: tuple[Any, ...],
        tail: tuple[Any, ...] = (),
        info: int = 0,
    ) -> Callable[..., Any]:
        """``run(base, *arguments)`` of a routine of the 64-bit interface.

        Args:
            name: Name of the routine (``"xgetrf"``).
            sizing: The arguments of its ``buffer_size``, without handle and parameters.
            tail: Arguments after ``info``; ``sizing`` ends with them.
            info: Offset of the routine's ``info``.
        """
        solver = self.solver
        size = solver.guarded(name, getattr(solver.library, f"{name}_buffer_size"))
        on_device, on_host = (int(n) for n in size(solver.sizing, solver.sizing_params, *sizing))
        at, call = self.take(on_device), solver.guarded(name, getattr(solver.library, name))

        def run(base: int, *arguments: Any) -> Any:
            host = np.empty(on_host, np.uint8)  # one for each launch: several may be in flight
            self._kept.append(host)
            where = host.ctypes.data if on_host else 0
            work = base + at, on_device, where, on_host, base + info
            return call(solver.handle, solver.params, *arguments, *work, *tail)

        return run

    def legacy(
        self, name: str, dtype: DType, sizing: tuple[Any, ...], tail: tuple[Any, ...] = (), info: int = 0
    ) -> Callable[..., None]:
        """``run(base, *arguments, info=offset)`` of a routine of the older interface, whose name starts with its type.

        Args:
            name: Name of the routine (``"sorgqr"``).
            dtype: The dtype of its workspace.
            sizing: The arguments of its ``buffer_size``, without handle and ``tail``.
            tail: Arguments after ``info``; the routine's ``buffer_size`` takes them after ``sizing``.
            info: Offset of the routine's ``info``.
        """
        solver = self.solver
        size = solver.guarded(name, getattr(solver.library, f"{name}_buffer_size"))
        length = int(size(solver.sizing, *sizing, *tail))
        at, call = self.take(length * dtype.itemsize), solver.guarded(name, getattr(solver.library, name))

        def run(base: int, *arguments: Any, info: int = info) -> None:
            call(solver.handle, *arguments, base + at, length, base + info, *tail)

        return run

    def cublas(self, name: str) -> Callable[..., None]:
        """``run(*arguments)`` of a function of cuBLAS, without its handle."""
        cublas = self.solver.cublas
        call = self.solver.guarded(name, getattr(cublas.library, name))
        return lambda *arguments: call(cublas.handle, *arguments)

    # -- the plan ------------------------------------------------------------------------------------------------------

    def plan(
        self,
        begin: Step,
        explain: Explain | None = None,
        batch: int = 0,
        limits: Mapping[int, tuple[int, Explain]] | None = None,
        end: Step | None = None,
        size: Callable[[int], Extents] | None = None,
    ) -> SolverPlan:
        """The plan of the op.

        Args:
            begin: Enqueues the work.
            explain: Makes the error for a positive ``info``; None: a positive ``info`` is not a failure here.
            batch: Items, if it is a batch.
            limits: Limits of other words of the status, and the errors for values that exceed them.
            end: Enqueues the copies to the outputs, for ops that may be done before the launch.
            size: Returns the extents of outputs, given the number of results found.
        """
        bounds = {**(limits or {}), **({INFO: (0, explain)} if explain is not None else {})}
        room = self.solver.workspace.lease(self._nbytes)
        status = StatusCheck(self.tag, bounds, batch)
        return SolverPlan(self.solver, room, begin, end, self._ahead, size, status, self.kept)

    def nothing(self) -> SolverPlan:
        """The plan of an op whose outputs are empty."""
        return self.plan(lambda native, base, *addresses: None)

    def kept(self) -> list[Any]:
        """The host memory that the launch up to here needs."""
        kept, self._kept = self._kept, []
        return kept
