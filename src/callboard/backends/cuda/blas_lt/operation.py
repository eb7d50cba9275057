"""The operation of cuBLASLt: a descriptor, and the layouts of its four matrices."""

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from callboard.backends.cuda.blas_lt.cublaslt import CublasLt

__all__ = ["Operation"]


class Operation:
    """A ``cublasLtMatmulDesc_t`` with its four layouts.

    Attributes:
        desc: The descriptor.
        layouts: Layouts of A, B, C and D, in cuBLASLt's order.
    """

    def __init__(self, lt: "CublasLt", compute: int, scale: int) -> None:
        self._lt = lt
        self._library = lt.library
        self.desc: int = lt.checked("cublasLtMatmulDescCreate", self._library.matmul_desc_create, compute, scale)
        self.layouts: list[int] = []

    def set(self, attribute: str, value: int) -> None:
        """Set an attribute of the descriptor, by its name in ``cublasLtMatmulDescAttributes_t``."""
        which = getattr(self._library.MatmulDescAttribute, attribute)
        cell = np.array([value], self._library.get_matmul_desc_attribute_dtype(which))
        self._lt.checked(
            "cublasLtMatmulDescSetAttribute",
            self._library.matmul_desc_set_attribute,
            self.desc,
            which,
            cell.ctypes.data,
            cell.itemsize,
        )

    def pointer(self, attribute: str) -> Callable[[int], None]:
        """A function that sets an address: a store in host memory, so a launch may call it."""
        which = int(getattr(self._library.MatmulDescAttribute, attribute))
        cell = ctypes.c_int64()
        at, desc, write = ctypes.addressof(cell), self.desc, self._library.matmul_desc_set_attribute

        def put(address: int) -> None:
            cell.value = address
            write(desc, which, at, 8)

        return put

    def add_layout(self, kind: int, rows: int, cols: int, ld: int, matrices: int = 1, step: int = 0) -> None:
        """The next layout of A, B, C, D: column-major."""
        library = self._library
        layout = self._lt.checked("cublasLtMatrixLayoutCreate", library.matrix_layout_create, kind, rows, cols, ld)
        self.layouts.append(layout)
        if matrices > 1:
            for attribute, value in (
                (library.MatrixLayoutAttribute.BATCH_COUNT, np.array([matrices], np.int32)),
                (library.MatrixLayoutAttribute.STRIDED_BATCH_OFFSET, np.array([step], np.int64)),
            ):
                self._lt.checked(
                    "cublasLtMatrixLayoutSetAttribute",
                    library.matrix_layout_set_attribute,
                    layout,
                    attribute,
                    value.ctypes.data,
                    value.itemsize,
                )

    def close(self) -> None:
        """Destroy descriptor and layouts; no launch uses them any more."""
        for layout in self.layouts:
            self._library.matrix_layout_destroy(layout)
        self.layouts.clear()
        if self.desc:
            desc, self.desc = self.desc, 0
            self._library.matmul_desc_destroy(desc)
