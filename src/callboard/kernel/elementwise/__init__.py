"""Operations of ``dev.elementwise``, and of the functions made by ``cb.elementwise``.

An expression is text (:mod:`callboard.kernel.elementwise.language`); each backend executes it as one kernel.
"""

from callboard.kernel.elementwise.actor import ElementwiseActor
from callboard.kernel.elementwise.map import Map, MapMany
from callboard.kernel.elementwise.reduce import Reduce

__all__ = ["ElementwiseActor", "Map", "MapMany", "Reduce"]
