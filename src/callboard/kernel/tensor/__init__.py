"""Operations of ``dev.tensor``: tensor contraction, reduction, element-wise ops.

Axes are matched by their modes (names), not by their order. Operands of any strides are used as they are: transposed,
sliced, reversed and repeated views, and diagonals.

Sums are computed in a fixed order: equal calls on one device, with the same versions of its libraries, give equal bits,
unless ``autotune`` has chosen another algorithm.
"""

from callboard.kernel.exports import export_all as _export_all
from callboard.kernel.tensor.actor import *
from callboard.kernel.tensor.contraction import *
from callboard.kernel.tensor.elementwise import *

_export_all(__name__)
