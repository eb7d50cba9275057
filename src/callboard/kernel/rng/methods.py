"""The generators of ``dev.rng``, which keep their place in a stream."""

import secrets
from collections.abc import Callable
from typing import Any

from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.kernel.api import Api, Submit
from callboard.kernel.rng.distributions import Distributions, NumpyNames
from callboard.kernel.rng.generator import RngGenerator
from callboard.kernel.rng.streams import RngOrdering

__all__ = ["Methods"]


class Methods(NumpyNames[Mode], Api[Mode]):
    """Random numbers on a device.

    ``dev.rng.normal(0, 2, (3, 4))`` and its kind take them of one stream of the device object, which the operating
    system seeds; :meth:`default_rng` has the same methods with a seed.
    """

    __slots__ = ("_own",)

    def __init__(self, submit: Submit, put: Callable[[Any], Any]) -> None:
        super().__init__(submit, put)
        self._own: RngGenerator[Mode] | None = None

    @property
    def _stream(self) -> RngGenerator[Mode]:
        if self._own is None:
            self._own = self.generator("philox", secrets.randbits(64))
        return self._own

    def generator(
        self,
        kind: str = "philox",
        seed: int = 0,
        position: int = 0,
        dimensions: int = 1,
        ordering: RngOrdering = "default",
    ) -> RngGenerator[Mode]:
        """A separate stream; two of the same kind and seed give the same numbers. See :class:`RngGenerator`."""
        return RngGenerator(self._submit, kind, seed, position, dimensions, ordering)

    def default_rng(self, seed: int | None = None) -> Distributions[Mode]:
        """NumPy's names for the distributions: ``rng = dev.rng.default_rng(7)``, then ``rng.normal(0, 2, (3, 4))``.

        Args:
            seed: Seed of the new Philox generator; None takes one from the operating system.
        """
        return Distributions(self.generator("philox", secrets.randbits(64) if seed is None else seed))

    def philox(self, seed: int = 0) -> RngGenerator[Mode]:
        """Philox4x32-10 in cuRAND's order: the fastest on CUDA."""
        return self.generator("philox", seed)

    def philox64(self, seed: int = 0) -> RngGenerator[Mode]:
        """Philox4x64-10, ``numpy.random.Philox(key=(seed, 0))``: the fastest on the CPU."""
        return self.generator("philox64", seed)

    def xorwow(self, seed: int = 0) -> RngGenerator[Mode]:
        """Marsaglia's XORWOW, in cuRAND's order."""
        return self.generator("xorwow", seed)

    def mrg32k3a(self, seed: int = 0) -> RngGenerator[Mode]:
        """L'Ecuyer's MRG32k3a, in cuRAND's order."""
        return self.generator("mrg32k3a", seed)

    def mt19937(self, seed: int = 0) -> RngGenerator[Mode]:
        """The Mersenne Twister; it cannot skip, and its words differ between backends."""
        return self.generator("mt19937", seed)

    def mtgp32(self, seed: int = 0) -> RngGenerator[Mode]:
        """Saito and Matsumoto's Mersenne Twister for GPUs, in cuRAND's order; it cannot skip.

        It takes the exclusive or of the halves of ``seed``: those of 1 and of ``2**32`` are one stream, as in cuRAND.
        """
        return self.generator("mtgp32", seed)

    def sobol(
        self, dimensions: int = 1, *, bits: int = 32, scramble: bool = False, seed: int = 0
    ) -> RngGenerator[Mode]:
        """Points of a Sobol sequence with the direction numbers of Joe and Kuo (2008).

        Args:
            dimensions: 1 to 20,000.
            bits: 32 or 64; that many points in base 2 logarithm.
            scramble: Scramble the points by a random linear matrix and a digital shift, chosen by ``seed`` (Matoušek,
                "On the L2-discrepancy for anchored boxes", J. Complexity 14, 1998).
            seed: 0 unless ``scramble``.
        """
        if bits not in (32, 64):
            raise ShapeError(f"bits is {bits!r}; points have 32 or 64")
        return self.generator(f"{'scrambled_' if scramble else ''}sobol{bits}", seed, 0, dimensions)
