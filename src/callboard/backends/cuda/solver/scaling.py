"""Scaling of matrices at the ends of a dtype's range by powers of two, in the workspace.

Vendors' routines multiply by the reciprocals of pivots, which are infinite for denormal ones. What is to be scaled is
decided on the device: matrices of ordinary numbers are read once and left as they are.
"""

import math
from collections.abc import Callable

from callboard.backends.cuda.launching import THREADS
from callboard.backends.cuda.solver.jobs import Job, Part
from callboard.core.dtype import DTYPES

__all__ = ["Scales"]

Run = Callable[[int, int], None]
"""``run(native, base)``: enqueues; the workspace begins at ``base``."""

TILE = 32
"""Columns that a block of ``extents`` takes."""


class Scales:
    """Room for the exponents of a matrix and of its right-hand sides, or of those of a stack.

    Args:
        job: The plan in the making.
        a: The matrices, column-major without gaps.
        b: The right-hand sides, column-major; their last axis may be shorter than their leading dimension.

    Attributes:
        at: Offset of the exponents, as ``data/solver_scaling.cu`` describes them.
        ld: How many an item has.
    """

    def __init__(self, job: Job, a: Part, b: Part | None = None) -> None:
        *batch, m, n = a.layout.shape
        self._job, self._a, self._b, self._dtype = job, a, b, a.layout.dtype
        self._batch, self._size = math.prod(batch), m * n
        sides = 0 if b is None else b.layout.shape[-1]
        self.ld = 1 + sides + n + m
        self._room = job.array(DTYPES["i32"], self._batch * self.ld)
        self.at = self._room.at
        ldz = 0 if b is None else b.layout.strides[-1]
        self._args = {"rows": m, "cols": n, "batch": self._batch, "ld": self.ld, "mode": sides, "ldz": ldz}
        self._blocks = self._batch * -(-m // THREADS) * -(-n // TILE)

    def equilibrate(self) -> Run:
        """Scale rows and columns of square matrices, and the right-hand sides accordingly."""
        return self._begin("equilibrate")

    def centre(self) -> Run:
        """Scale matrices as wholes, and the right-hand sides."""
        return self._begin("centre")

    def centre_factors(self) -> Run:
        """Scale U of factors L and U, and the right-hand sides."""
        return self._begin("centre_factors", reads=False)

    def uncentre(self) -> Run:
        """Make the upper triangle of factors that of the matrices before :meth:`centre`."""
        undo = self._kernel("uncentre", self._batch * self._size, self._args)
        return lambda native, base: undo(native, base, x=base + self._a.at, y=base + self.at)

    def restore(self, rows: int) -> Run:
        """Make the solutions, of so many rows, those of the systems before they were scaled."""
        assert self._b is not None
        at, count = self._b.at, self._batch * rows * self._args["mode"]
        if not count:
            return lambda native, base: None
        args = {**self._args, "rows": rows, "cols": int(self._by_column)}
        undo = self._kernel("restore", count, args)
        return lambda native, base: undo(native, base, y=base + self.at, z=base + at)

    def determinant(self, lu: Part, pivots: Part, out: Part) -> Run:
        """The determinant of the matrix before :meth:`equilibrate`."""
        args = {"rows": lu.layout.shape[0], "cols": pivots.at, "ld": self.ld, "blocks": 1}
        multiply = self._kernel("determinant", 1, args)
        return lambda native, base: multiply(native, base, x=base + lu.at, y=base + self.at, z=base + out.at)

    def _kernel(self, name: str, count: int, args: dict[str, int]) -> Callable[..., None]:
        return self._job.kernel(f"{name}_{self._dtype}", count, source="solver_scaling", **args)

    def _begin(self, name: str, reads: bool = True) -> Run:
        self._by_column = name == "equilibrate"
        clear = self._job.zero(self._room)
        read = self._kernel("extents", self._blocks * THREADS, self._args) if reads else None
        scale = self._kernel(name, 1, {**self._args, "blocks": self._batch})
        sides = None if self._b is None else self._b.at

        def run(native: int, base: int) -> None:
            x, y = base + self._a.at, base + self.at
            clear(native, base)
            if read is not None:
                read(native, base, x=x, y=y)
            scale(native, base, x=x, y=y, z=0 if sides is None else base + sides)

        return run
