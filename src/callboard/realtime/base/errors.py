"""What goes wrong in a simulation."""

from callboard.core.errors import NumericalError

__all__ = ["Diverged"]


class Diverged(NumericalError):
    """Numbers of the state are not finite any more; the simulation is back at its last snapshot."""
