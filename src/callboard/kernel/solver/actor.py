"""``SolverActor``: the actor that serves the messages of this package."""

__all__ = ["SolverActor"]


class SolverActor:
    """Serves the messages of dense and sparse linear algebra of a device: factorisations, solves, eigenvalues, SVD."""
