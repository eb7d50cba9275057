"""Random numbers: the counter-based generators and the points of Sobol, on integers of 64 bits."""

from callboard.backends.torch.library import TorchLibrary
from callboard.backends.torch.rng import fills
from callboard.core.library import AnyOp
from callboard.kernel.rng.fill import Fill

__all__ = ["SERVED", "TorchRng"]

SERVED = ("philox", "philox64", "sobol32", "sobol64", "scrambled_sobol32", "scrambled_sobol64")
"""Kinds whose words can be computed anywhere in the stream at once."""


class TorchRng(TorchLibrary):
    """Serves :mod:`callboard.kernel.rng`: the words, and so the bits of uniform numbers, are those of every backend."""

    name = "rng"
    modules = (fills,)

    @staticmethod
    def refuses(op: AnyOp) -> str | None:
        assert isinstance(op, Fill)
        if op.kind in SERVED:
            return None
        return f"kind is {op.kind!r}, whose words follow from each other; there are {', '.join(SERVED)}"
