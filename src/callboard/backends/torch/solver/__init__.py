"""Dense systems, factorisations and eigenvalues by torch.linalg; sparse systems up to an order."""

from callboard.backends.torch.library import TorchLibrary
from callboard.backends.torch.solver import linear, sparse, spectra

__all__ = ["TorchSolver"]


class TorchSolver(TorchLibrary):
    """Serves :mod:`callboard.kernel.solver`."""

    name = "solver"
    modules = (linear, sparse, spectra)
