"""Operations of ``dev.elementwise``, and of the functions made by ``cb.elementwise``.

An expression is text (:mod:`callboard.kernel.elementwise.language`); each backend executes it as one kernel.
"""

from callboard.kernel.elementwise.actor import *
from callboard.kernel.elementwise.map import *
from callboard.kernel.elementwise.reduce import *
from callboard.kernel.exports import export_all as _export_all

_export_all(__name__)
