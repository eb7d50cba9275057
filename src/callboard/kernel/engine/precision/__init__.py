"""Lower precisions: layers of an ONNX model rewritten to compute in other dtypes, with what that costs."""

from callboard.kernel.engine.precision.config import IBuilderConfig as IBuilderConfig
from callboard.kernel.engine.precision.lowering import Lowered as Lowered
from callboard.kernel.engine.precision.lowering import lower as lower

__all__ = ["IBuilderConfig", "Lowered", "lower"]
