"""Small messages of models; see :mod:`tests.kernel.probing`."""

from typing import Any

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.engine.messages import EngineSpec

__all__ = ["PROBES"]

SPEC = EngineSpec("model", "digest", outputs=("y",), layouts=(("f32", (4,)),))


def model(dtype: DType) -> dict[str, Any]:
    """The bytes of a file, and what is executed of it."""
    return {"model": Placeholder(layout_of(dtype, (32,))), "spec": SPEC}


def spec(dtype: DType) -> dict[str, Any]:
    """What is executed of a model that is known."""
    return {"spec": SPEC}


PROBES = {"engine.build": model, "engine.execute": model, "engine.release": spec}
