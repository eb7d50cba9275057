"""Operations of ``dev.rng``: random numbers.

Every message fills an array from a stream of random words; see :mod:`callboard.kernel.rng.streams`.
"""

from callboard.kernel.exports import export_all as _export_all
from callboard.kernel.rng.actor import *
from callboard.kernel.rng.distributions import Distributions as Distributions
from callboard.kernel.rng.generator import RngGenerator as RngGenerator
from callboard.kernel.rng.rejections import *
from callboard.kernel.rng.streams import RngOrdering as RngOrdering
from callboard.kernel.rng.streams import max_dimensions as max_dimensions
from callboard.kernel.rng.transforms import *

_export_all(__name__)
