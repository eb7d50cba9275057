"""``CudaRng``: random numbers on a GPU."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.axes import joint_axes
from callboard.backends.cuda.copies import too_many_axes
from callboard.backends.cuda.rng import elements
from callboard.backends.cuda.rng.arguments import FillPlan
from callboard.backends.cuda.rng.curand import Curand
from callboard.backends.cuda.rng.fills import transform
from callboard.backends.cuda.rng.sobol import SobolTables
from callboard.backends.cuda.rng.xorwow import Xorwow
from callboard.backends.cuda.stream import CudaStream
from callboard.core.library import Library, plans
from callboard.kernel.rng import (
    RngFillBeta,
    RngFillDiscrete,
    RngFillGamma,
    RngFillIntegers,
    RngFillPermutation,
    RngFillPoisson,
)
from callboard.kernel.rng.fill import Fill
from callboard.kernel.rng.streams import KINDS
from callboard.kernel.rng.transforms import TRANSFORMS

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CudaRng"]


def cannot_skip(op: Fill) -> bool:
    return not KINDS[op.kind].skips


class CudaRng(Library):
    """Serves :mod:`callboard.kernel.rng`.

    Philox, XORWOW, Sobol points and all distributions by custom kernels, MRG32k3a and the Mersenne Twisters' words by
    cuRAND. Plans compile kernels, so they are made on the helper thread, and so are the Mersenne Twisters where a fill
    goes back or has another seed. All plans but those of cuRAND's kinds can be captured (see
    :meth:`callboard.backends.cuda.rng.curand.Curand.words`), and repeat their numbers when replayed.
    """

    name = "rng"
    max_plans = 512  # some own as much memory as their array
    device: "CudaDevice"

    def __init__(self, device: "CudaDevice", stream: CudaStream) -> None:
        super().__init__(device, stream)
        self._stream = stream
        self._sobol = SobolTables(device, stream)
        self._xorwow = Xorwow(device, stream)
        self._generators: dict[tuple[str, str], Curand] = {}

    def warm_up(self) -> None:
        """Load the kernels."""
        for source, name in (("rng_f32", "philox_unit"), ("rng_elements", "philox_integers_4")):
            self.device.kernels.get(source, name)

    def close(self) -> None:
        for generator in self._generators.values():
            generator.close()
        self._generators.clear()
        self._sobol.close()
        self._xorwow.close()

    def _generator(self, kind: str, ordering: str) -> Curand:
        found = self._generators.get((kind, ordering))
        if found is None:
            found = self._generators[kind, ordering] = Curand(self.device, self._stream, kind, ordering)
        return found

    def _plan(self, op: Fill, complete: Callable[[FillPlan, Any], None]) -> FillPlan:
        plan = FillPlan(self.device, op.out.layout)
        try:
            complete(plan, op)
        except BaseException:  # Ctrl-C, too: nothing else returns its memory
            plan.close()
            raise
        return plan

    @staticmethod
    def refuses(op: Any) -> str | None:
        """The kernels iterate over a limited number of axes."""
        return too_many_axes(joint_axes(op.out.layout))

    # -- plans ---------------------------------------------------------------------------------------------------------

    @plans(*TRANSFORMS, sizes=True, always=cannot_skip)
    def plan_transform(self, op: Fill) -> FillPlan:
        return self._plan(op, lambda plan, op: transform(plan, op, self._generator, self._sobol, self._xorwow))

    @plans(RngFillIntegers)
    def plan_integers(self, op: RngFillIntegers) -> FillPlan:
        return self._plan(op, elements.integers)

    @plans(RngFillPoisson, RngFillGamma, RngFillBeta)
    def plan_rejected(self, op: RngFillPoisson | RngFillGamma | RngFillBeta) -> FillPlan:
        return self._plan(op, elements.rejected)

    @plans(RngFillDiscrete)
    def plan_discrete(self, op: RngFillDiscrete) -> FillPlan:
        return self._plan(op, elements.discrete)

    @plans(RngFillPermutation)
    def plan_permutation(self, op: Fill) -> FillPlan:
        return self._plan(op, elements.permutation)
