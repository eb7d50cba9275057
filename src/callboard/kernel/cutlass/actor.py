"""``CutlassActor``: the actor that serves the messages of this package."""

from typing import Any, TypeAlias

from callboard.core.op import Op

__all__ = ["CutlassActor", "CutlassMsg"]


class CutlassActor:
    """Serves the products with epilogues of a device (:mod:`callboard.kernel.cutlass`)."""


CutlassMsg: TypeAlias = Op[CutlassActor, Any]
"""Any message of :class:`CutlassActor`: ``Gemm``, ``GroupedGemm``, ``Conv`` or ``Refit``."""
