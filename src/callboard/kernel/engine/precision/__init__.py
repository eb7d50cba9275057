"""Lower precisions: layers of an ONNX model rewritten to compute in other dtypes, with what that costs."""

from callboard.kernel.engine.precision.config import IBuilderConfig as IBuilderConfig
from callboard.kernel.engine.precision.lowering import lower as lower
from callboard.kernel.engine.precision.trials import Lowered as Lowered

__all__ = ["IBuilderConfig", "Lowered", "lower"]
