"""``SparseLtActor``: the actor that serves the messages of this package."""

__all__ = ["SparseLtActor"]


class SparseLtActor:
    """Serves pruning, compression and products of structured matrices (:mod:`callboard.kernel.sparse_lt`)."""
