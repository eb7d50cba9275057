"""Linear algebra on the CPU, through SciPy's LAPACK."""

from callboard.backends.cpu.solver.library import CpuSolver

__all__ = ["CpuSolver"]
