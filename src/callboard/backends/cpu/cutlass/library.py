"""``CpuCutlass``: the modules whose plans serve the messages."""

from callboard.backends.cpu.library import CpuLibrary
from callboard.backends.cpu.stream import CpuStream
from callboard.core.library import launches, modules_of
from callboard.kernel.cutlass import Explain, ExplainConv
from callboard.kernel.cutlass.explain import Told

__all__ = ["CpuCutlass"]


class CpuCutlass(CpuLibrary):
    """Serves :mod:`callboard.kernel.cutlass` with NumPy. The setting ``engine`` has no effect here."""

    name = "cutlass"
    max_plans = 1024
    modules = modules_of(__name__)

    @launches(Explain, ExplainConv)
    def explain(self, stream: CpuStream, plan: Explain | ExplainConv, *dynamic: object) -> Told:
        """There is one engine."""
        return Told(f"numpy: sums in {plan.accumulated}, the epilogue in {plan.computed}")
