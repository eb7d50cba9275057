"""Operations of ``dev.ipc``: device memory shared between processes.

One process creates and exports a shareable array; another opens the handle and uses the array without a copy. This also
works between devices of one machine that can access each other's memory. Events order the accesses.
"""

from callboard.kernel.exports import export_all as _export_all
from callboard.kernel.ipc.actor import *
from callboard.kernel.ipc.messages import *

_export_all(__name__)
