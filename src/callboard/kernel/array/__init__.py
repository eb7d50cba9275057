"""Operations of ``dev.array``: conversion, numbering, gather, scatter.

``dev.array(values)`` creates an array. Operands of any strides are used as they are. The functions of ``dev.xp`` submit
these ops.
"""

from callboard.kernel.array.actor import *
from callboard.kernel.array.indexing import *
from callboard.kernel.array.movement import *
from callboard.kernel.exports import export_all as _export_all

_export_all(__name__)
