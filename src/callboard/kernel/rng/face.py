"""``RngFace``: what stands behind ``dev.rng``.

Generators, which keep their place in a stream, and one method per message, named after it, for those who keep it
themselves. Everything raises at the call ``TypeError``, ``ShapeError``, ``UnsupportedOp``, ``DeviceMismatch``,
``GpuRefStale`` and ``MailboxFull``, and sends nothing then.
"""

from typing import Any

from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.face import Face
from callboard.kernel.rng.generator import RngGenerator
from callboard.kernel.rng.rejections import (
    RngFillBeta,
    RngFillDiscrete,
    RngFillGamma,
    RngFillIntegers,
    RngFillPermutation,
    RngFillPoisson,
)
from callboard.kernel.rng.streams import RngOrdering
from callboard.kernel.rng.transforms import (
    RngFillBits,
    RngFillCauchy,
    RngFillExponential,
    RngFillLogNormal,
    RngFillNormal,
    RngFillUniform,
)

__all__ = ["RngFace"]


class RngFace(Face[Mode]):
    """Random numbers on a device."""

    __slots__ = ()

    # -- generators ----------------------------------------------------------------------------------------------------

    def generator(
        self,
        kind: str = "philox",
        seed: int = 0,
        position: int = 0,
        dimensions: int = 1,
        ordering: RngOrdering = "default",
    ) -> RngGenerator[Mode]:
        """A stream of its own; two of the same kind and seed give the same numbers. See :class:`RngGenerator`."""
        return RngGenerator(self._submit, kind, seed, position, dimensions, ordering)

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
            scramble: By a random linear matrix and a digital shift, which ``seed`` chooses (Matoušek, "On the
                L2-discrepancy for anchored boxes", J. Complexity 14, 1998).
            seed: 0 unless ``scramble``.
        """
        if bits not in (32, 64):
            raise ShapeError(f"bits is {bits!r}; points have 32 or 64")
        return self.generator(f"{'scrambled_' if scramble else ''}sobol{bits}", seed, 0, dimensions)

    # -- messages ------------------------------------------------------------------------------------------------------

    def fill_bits(
        self,
        out: GpuRef[Mode],
        *,
        kind: str = "philox",
        ordering: RngOrdering = "default",
        seed: int = 0,
        position: int = 0,
    ) -> GpuRef[Mode]:
        """The words of the stream themselves."""
        return self._filled(RngFillBits(out=out, kind=kind, ordering=ordering, seed=seed, position=position))

    def fill_uniform(
        self,
        out: GpuRef[Mode],
        *,
        kind: str = "philox",
        ordering: RngOrdering = "default",
        seed: int = 0,
        position: int = 0,
        low: float = 0.0,
        high: float = 1.0,
    ) -> GpuRef[Mode]:
        """Uniform numbers of ``[low, high)``."""
        return self._filled(
            RngFillUniform(out=out, kind=kind, ordering=ordering, seed=seed, position=position, low=low, high=high)
        )

    def fill_normal(
        self,
        out: GpuRef[Mode],
        *,
        kind: str = "philox",
        ordering: RngOrdering = "default",
        seed: int = 0,
        position: int = 0,
        mean: float = 0.0,
        std: float = 1.0,
    ) -> GpuRef[Mode]:
        """Normal numbers."""
        return self._filled(
            RngFillNormal(out=out, kind=kind, ordering=ordering, seed=seed, position=position, mean=mean, std=std)
        )

    def fill_log_normal(
        self,
        out: GpuRef[Mode],
        *,
        kind: str = "philox",
        ordering: RngOrdering = "default",
        seed: int = 0,
        position: int = 0,
        mean: float = 0.0,
        std: float = 1.0,
    ) -> GpuRef[Mode]:
        """Exponentials of normal numbers."""
        return self._filled(
            RngFillLogNormal(out=out, kind=kind, ordering=ordering, seed=seed, position=position, mean=mean, std=std)
        )

    def fill_exponential(
        self,
        out: GpuRef[Mode],
        *,
        kind: str = "philox",
        ordering: RngOrdering = "default",
        seed: int = 0,
        position: int = 0,
        rate: float = 1.0,
    ) -> GpuRef[Mode]:
        """Exponentially distributed numbers."""
        return self._filled(
            RngFillExponential(out=out, kind=kind, ordering=ordering, seed=seed, position=position, rate=rate)
        )

    def fill_cauchy(
        self,
        out: GpuRef[Mode],
        *,
        kind: str = "philox",
        ordering: RngOrdering = "default",
        seed: int = 0,
        position: int = 0,
        loc: float = 0.0,
        scale: float = 1.0,
    ) -> GpuRef[Mode]:
        """Cauchy numbers."""
        return self._filled(
            RngFillCauchy(out=out, kind=kind, ordering=ordering, seed=seed, position=position, loc=loc, scale=scale)
        )

    def fill_integers(
        self,
        out: GpuRef[Mode],
        *,
        kind: str = "philox",
        ordering: RngOrdering = "default",
        seed: int = 0,
        position: int = 0,
        low: int = 0,
        high: int = 2,
    ) -> GpuRef[Mode]:
        """Integers of ``[low, high)``, each equally likely."""
        return self._filled(
            RngFillIntegers(out=out, kind=kind, ordering=ordering, seed=seed, position=position, low=low, high=high)
        )

    def fill_discrete(
        self,
        out: GpuRef[Mode],
        weights: GpuRef[Mode],
        *,
        kind: str = "philox",
        ordering: RngOrdering = "default",
        seed: int = 0,
        position: int = 0,
    ) -> GpuRef[Mode]:
        """Indices, each as likely as its weight says."""
        return self._filled(
            RngFillDiscrete(out=out, weights=weights, kind=kind, ordering=ordering, seed=seed, position=position)
        )

    def fill_poisson(
        self,
        out: GpuRef[Mode],
        *,
        kind: str = "philox",
        ordering: RngOrdering = "default",
        seed: int = 0,
        position: int = 0,
        rate: float = 1.0,
    ) -> GpuRef[Mode]:
        """Poisson numbers."""
        return self._filled(
            RngFillPoisson(out=out, kind=kind, ordering=ordering, seed=seed, position=position, rate=rate)
        )

    def fill_gamma(
        self,
        out: GpuRef[Mode],
        shape: float,
        *,
        kind: str = "philox",
        ordering: RngOrdering = "default",
        seed: int = 0,
        position: int = 0,
        scale: float = 1.0,
    ) -> GpuRef[Mode]:
        """Gamma distributed numbers."""
        return self._filled(
            RngFillGamma(out=out, shape=shape, kind=kind, ordering=ordering, seed=seed, position=position, scale=scale)
        )

    def fill_beta(
        self,
        out: GpuRef[Mode],
        alpha: float,
        beta: float,
        *,
        kind: str = "philox",
        ordering: RngOrdering = "default",
        seed: int = 0,
        position: int = 0,
    ) -> GpuRef[Mode]:
        """Beta distributed numbers."""
        return self._filled(
            RngFillBeta(out=out, alpha=alpha, beta=beta, kind=kind, ordering=ordering, seed=seed, position=position)
        )

    def fill_permutation(
        self,
        out: GpuRef[Mode],
        *,
        kind: str = "philox",
        ordering: RngOrdering = "default",
        seed: int = 0,
        position: int = 0,
    ) -> GpuRef[Mode]:
        """0 to ``n - 1`` in random order."""
        return self._filled(RngFillPermutation(out=out, kind=kind, ordering=ordering, seed=seed, position=position))

    def _filled(self, message: Any) -> GpuRef[Mode]:
        answer: GpuRef[Mode] = self._submit(message)
        return answer
