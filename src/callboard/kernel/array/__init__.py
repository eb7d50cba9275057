"""Operations of ``dev.array``: conversion, numbering, gather, scatter.

``dev.array(values)`` creates an array. Operands of any strides are used as they are. The functions of ``dev.xp`` submit
these ops.
"""

from callboard.kernel.array.actor import ArrayActor
from callboard.kernel.array.indexing import Gather, Scatter, TakeAlong
from callboard.kernel.array.movement import Arange, Cast

__all__ = ["Arange", "ArrayActor", "Cast", "Gather", "Scatter", "TakeAlong"]
