"""Operations of ``dev.rng``: random numbers.

Every message fills an array from a stream of random words; see :mod:`callboard.kernel.rng.streams`.
"""

from callboard.kernel.rng.actor import RngActor
from callboard.kernel.rng.distributions import Distributions
from callboard.kernel.rng.generator import RngGenerator
from callboard.kernel.rng.rejections import (
    RngFillBeta,
    RngFillDiscrete,
    RngFillGamma,
    RngFillIntegers,
    RngFillPermutation,
    RngFillPoisson,
)
from callboard.kernel.rng.streams import RngOrdering, max_dimensions
from callboard.kernel.rng.transforms import (
    RngFillBits,
    RngFillCauchy,
    RngFillExponential,
    RngFillLogNormal,
    RngFillNormal,
    RngFillUniform,
)

__all__ = [
    "Distributions",
    "RngActor",
    "RngFillBeta",
    "RngFillBits",
    "RngFillCauchy",
    "RngFillDiscrete",
    "RngFillExponential",
    "RngFillGamma",
    "RngFillIntegers",
    "RngFillLogNormal",
    "RngFillNormal",
    "RngFillPermutation",
    "RngFillPoisson",
    "RngFillUniform",
    "RngGenerator",
    "RngOrdering",
    "max_dimensions",
]
