"""Sparse matrices: their formats as struct operands, products and conversions (``SparseActor``)."""

from callboard.kernel.exports import export_all as _export_all
from callboard.kernel.sparse.actor import *
from callboard.kernel.sparse.conversions import *
from callboard.kernel.sparse.formats import AnyRef as AnyRef
from callboard.kernel.sparse.formats import BlockedEllRef as BlockedEllRef
from callboard.kernel.sparse.formats import BsrRef as BsrRef
from callboard.kernel.sparse.formats import CooRef as CooRef
from callboard.kernel.sparse.formats import CscRef as CscRef
from callboard.kernel.sparse.formats import CsrRef as CsrRef
from callboard.kernel.sparse.formats import SparseRef as SparseRef
from callboard.kernel.sparse.ordering import *
from callboard.kernel.sparse.products import *
from callboard.kernel.sparse.sampled import *
from callboard.kernel.sparse.triangular import *

_export_all(__name__)
