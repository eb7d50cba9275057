"""Operations of ``dev.managed``: managed memory.

A managed array has one address for device and host, and its pages migrate to where they are used. Every op accepts
managed arrays like other arrays.
"""

from callboard.kernel.exports import export_all as _export_all
from callboard.kernel.managed.actor import *
from callboard.kernel.managed.messages import *

_export_all(__name__)
