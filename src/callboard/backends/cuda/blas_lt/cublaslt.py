"""A cuBLASLt handle.

Only this module and :mod:`operation <callboard.backends.cuda.blas_lt.operation>` use its binding.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from callboard.backends.cuda.blas_lt.scratch import Scratch
from callboard.backends.cuda.handle import SLOT, Handle
from callboard.backends.cuda.vendor import load_binding, status_of
from callboard.core.errors import AccelError

if TYPE_CHECKING:
    from callboard.backends.cuda.blas_lt.operation import Operation
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["WIDE", "Candidate", "CublasLt", "load_cublaslt"]

WIDE = 16
"""Bytes: how the operands of the fast kernels are aligned."""
SLOTS = 4
ALLOC_FAILED, NOT_INITIALIZED = 3, 1
REFUSALS = (7, 15)
"""``cublasStatus_t``; in a search for algorithms, "invalid value" and "not supported" mean that there is none."""
VECTOR, MANY = 13, 8
"""The algorithm for products with a vector: if alpha is 0 it reads D in place of a separate C (cuBLASLt 13.1), so more
candidates are requested and this one is left out."""
REPEATABLE = 2 | 4
"""``cublasLtReductionScheme_t`` without the one that adds in place: partial sums are in the workspace."""


def load_cublaslt() -> Any:
    """NVIDIA's binding of cuBLASLt.

    Raises:
        BackendUnavailable: It is not installed.
    """
    return load_binding("cublasLt", "cuBLASLt")


class Candidate(NamedTuple):
    """An algorithm that cuBLASLt proposes.

    Attributes:
        address: Address of the ``cublasLtMatmulAlgo_t``.
        workspace: Bytes it uses.
        keeps: Object whose memory ``address`` points into.
    """

    address: int
    workspace: int
    keeps: Any


class CublasLt(Handle):
    """A handle with its workspace, and slots for numbers on the device.

    cuBLASLt's handle holds no stream and no state of a call: plans may be made on a thread that does not launch.

    Args:
        device: The device; its context is current.
        stream: Stream on which numbers are written to the device until a launch names another.
        library: Stands in for NVIDIA's binding.

    Attributes:
        library: The binding.
        handle: The ``cublasLtHandle_t``.
        workspace: Address of the workspace of all plans, whose work is on one stream, one after the other.
        workspace_size: Bytes of it.
        shared: Memory of plans that take several steps.
        slots: Address of a few numbers.

    Raises:
        BackendUnavailable: The package or libcublasLt is missing.
        OutOfMemory: No room.
        LibraryError: cuBLASLt refuses.
    """

    name = "cublasLt"
    no_room = (ALLOC_FAILED, NOT_INITIALIZED)  # the latter is also its status when there is no room

    def __init__(self, device: "CudaDevice", stream: "CudaStream", library: Any = None) -> None:
        if library is None:
            library = load_cublaslt()
        super().__init__(device, stream, library, library.cuBLASLtError)
        self.workspace = self.workspace_size = 0
        self.shared = Scratch(device)
        try:
            self.slots = self.allocate(SLOT * SLOTS)
        except AccelError:
            self.close()
            raise

    def reserve(self, nbytes: int) -> None:
        """Grow the workspace to ``nbytes``. Enqueued work keeps the old one, which stays until the end."""
        if nbytes > self.workspace_size:
            address = self.allocate(nbytes)
            self.workspace, self.workspace_size = address, nbytes

    # -- algorithms ----------------------------------------------------------------------------------------------------

    def candidates(
        self,
        operation: "Operation",
        count: int,
        workspace: int,
        alignments: Sequence[int],
        *,
        repeatable: bool,
        apart: bool,
    ) -> list[Candidate]:
        """Algorithms for an operation, the most promising first; none where cuBLASLt has no kernel for it.

        Args:
            operation: Complete; the addresses in it may be placeholders.
            count: Number of candidates at most.
            workspace: Bytes they may use.
            alignments: Alignments of A, B, C and D, in bytes.
            apart: C and D may be different arrays.
            repeatable: Accept only algorithms that add partial sums in one order.
        """
        library = self.library
        if apart:
            count = max(count, MANY)
        kinds = library.MatmulPreferenceAttribute
        preference = self.checked("cublasLtMatmulPreferenceCreate", library.matmul_preference_create)
        try:
            wishes = [(kinds.MAX_WORKSPACE_BYTES, np.array([workspace], np.uint64))]
            wishes += [
                (getattr(kinds, f"MIN_ALIGNMENT_{operand}_BYTES"), np.array([alignment], np.uint32))
                for operand, alignment in zip("ABCD", alignments, strict=True)
            ]
            if repeatable:
                wishes.append((kinds.REDUCTION_SCHEME_MASK, np.array([REPEATABLE], np.uint32)))
            for attribute, value in wishes:
                self.checked(
                    "cublasLtMatmulPreferenceSetAttribute",
                    library.matmul_preference_set_attribute,
                    preference,
                    attribute,
                    value.ctypes.data,
                    value.itemsize,
                )
            found, returned = library.MatmulHeuristicResult(count), np.zeros(1, np.int32)
            try:
                library.matmul_algo_get_heuristic(
                    self.handle,
                    operation.desc,
                    *operation.layouts,
                    preference,
                    count,
                    found.ptr,
                    returned.ctypes.data,
                )
            except self.failure as e:
                if status_of(e) in REFUSALS:
                    return []
                raise self.error(e, "cublasLtMatmulAlgoGetHeuristic") from None
        finally:
            library.matmul_preference_destroy(preference)
        results = [found[i] if count > 1 else found for i in range(int(returned[0]))]
        good = [Candidate(r.ptr, int(r.workspace_size), found) for r in results if int(r.state) == 0]
        return [c for c in good if not (apart and self._identity(c) == VECTOR)]

    def _identity(self, candidate: Candidate) -> int:
        found, written = np.zeros(1, np.int32), np.zeros(1, np.uint64)
        self.checked(
            "cublasLtMatmulAlgoConfigGetAttribute",
            self.library.matmul_algo_config_get_attribute,
            candidate.address,
            self.library.MatmulAlgoConfigAttribute.ID,
            found.ctypes.data,
            found.itemsize,
            written.ctypes.data,
        )
        return int(found[0])

    def close(self) -> None:
        """Destroy the handle; all its work is done."""
        self.shared.close()
        super().close()
