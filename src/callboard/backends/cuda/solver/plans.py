"""A finished plan: its work before and in the launch, and the meaning of its status."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from callboard.backends.cuda.readback import CudaStatus
from callboard.core.errors import LibraryError
from callboard.core.library import Extents
from callboard.kernel.solver.failures import Explain, bad_indices, first_of, not_finite

if TYPE_CHECKING:
    from callboard.backends.cuda.solver.cusolver import Cusolver
    from callboard.backends.cuda.stream import CudaStream
    from callboard.backends.cuda.workspace import Room

__all__ = [
    "BAD_INDICES",
    "DIAGONAL",
    "FAILED",
    "FOUND",
    "HOLLOW",
    "INFO",
    "NOT_FINITE",
    "RESIDUAL",
    "SPARE",
    "STATUS",
    "STRUCTURE",
    "VALUES",
    "WITHOUT_RESULT",
    "ZEROS",
    "SolverPlan",
    "StatusCheck",
    "Step",
]

Step = Callable[..., None]
"""``step(native, base, *addresses)``: enqueues; the workspace begins at ``base``."""

INFO, NOT_FINITE, BAD_INDICES, DIAGONAL, ITEM, FAILED, FIRST, FOUND, SPARE = range(9)
"""Words of the status, which is at the beginning of the workspace: ``info`` of a routine; the number of NaN or infinite
numbers; the number of indices out of range; the first zero on a diagonal, from 1; the first failing item of a batch,
and the number of failing items; the start of a range of eigenvalues, and their number; a word of which only the sign is
read."""
STRUCTURE, VALUES, RESIDUAL, ZEROS, HOLLOW = range(9, 14)
"""Words of the status of a sparse system: whether structure and elements differ from the factored ones; the number of
solutions that do not satisfy it; the number of stored zeros; the number of rows whose diagonal element is 0."""
WITHOUT_RESULT = 14
"""Word of the status: the number of NaN and infinities in a matrix whose results are all NaN if there is one."""
STATUS = 16


class StatusCheck(NamedTuple):
    """Interprets the status words of a call."""

    tag: str
    bounds: Mapping[int, tuple[int, Explain]]
    batch: int

    def check(self, raw: bytes) -> list[int]:
        """Return the words of the status; raises the failure they report."""
        status: list[int] = np.frombuffer(raw, np.int32).tolist()
        if status[NOT_FINITE]:
            raise not_finite(self.tag, status[NOT_FINITE])
        if status[BAD_INDICES]:
            raise bad_indices(self.tag, status[BAD_INDICES], "pivots")
        for info in (status[INFO], status[SPARE]):
            if info < 0:
                raise LibraryError(f"{self.tag}: cuSOLVER refuses argument {-info}", "cusolver", info)
        if status[WITHOUT_RESULT]:
            return status  # the routine has factored zeros instead: its pivots mean nothing
        for word, (limit, meaning) in self.bounds.items():
            if status[word] > limit:
                error = meaning(self.tag, status[word])
                raise first_of(error, status[ITEM], status[FAILED], self.batch) if self.batch else error
        return status


class SolverPlan:
    """An op, ready to be launched. Called with the stream and the addresses, it enqueues all and returns the status.

    Args:
        solver: The handles.
        room: The workspace.
        begin: Does the work, or enqueues it.
        end: Enqueues the copies of the results, where ``begin`` does not; None: it does.
        ahead: ``begin`` is done before the launch.
        size: Returns the extents of outputs, given the number of results found; None if they are known.
        status: Raises the failure that a status word encodes.
        kept: Returns the host memory that the calls up to now need until they are done.

    Attributes:
        captures: True if launches can be recorded in a graph.
    """

    __slots__ = ("_base", "_begin", "_end", "_kept", "_room", "_size", "_solver", "_status", "captures")

    def __init__(
        self,
        solver: "Cusolver",
        room: "Room",
        begin: Step,
        end: Step | None,
        ahead: bool,
        size: Callable[[int], Extents] | None,
        status: StatusCheck,
        kept: Callable[[], list[Any]],
    ) -> None:
        self._solver = solver
        self._kept = kept
        self._room = room
        self._base = room.memory.address
        self._begin, self._end, self._size, self._status = begin, end, size, status
        self.captures = not ahead

    def __call__(self, stream: "CudaStream", *addresses: Any) -> CudaStatus:
        if self.captures:
            self._work(stream, *addresses)
        return self._finish(stream, *addresses)

    def _work(self, stream: "CudaStream", *addresses: Any) -> None:
        solver = self._solver
        if stream is not solver.stream:
            solver.bind(stream)
        solver.driver.check(solver.driver.memset_32(self._base, 0, STATUS, stream.native), "cuMemsetD32Async")
        self._begin(stream.native, self._base, *addresses)

    def _finish(self, stream: "CudaStream", *addresses: Any) -> CudaStatus:
        if self._end is not None:
            self._end(stream.native, self._base, *addresses)
        return CudaStatus(self._base, 4 * STATUS, self._status.check, self._kept())

    def query_size(self, stream: "CudaStream", *addresses: Any) -> Extents:
        """Do the work before the launch, and wait for it if the extents of outputs depend on it."""
        self._work(stream, *addresses)
        if self._size is None:
            return ()
        readback = self._solver.device.read_back(stream, self._base, 4 * STATUS)
        stream.synchronize()
        return self._size(self._status.check(readback.take())[FOUND])

    def close(self) -> None:
        """Leave the workspace."""
        self._solver.workspace.leave(self._room)
