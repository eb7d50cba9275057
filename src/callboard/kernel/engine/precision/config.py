"""``IBuilderConfig``: in which precision layers compute, and how their ranges are found."""

from dataclasses import dataclass

from callboard.core.errors import ShapeError

__all__ = ["CALIBRATORS", "PRECISIONS", "IBuilderConfig"]

PRECISIONS = ("f32", "f16", "bf16", "int8", "fp8", "best")
CALIBRATORS = ("minmax", "mse", "percentile", "entropy")


@dataclass(frozen=True)
class IBuilderConfig:
    """How the layers of a model are lowered: its convolutions and products with weights.

    Attributes:
        precision: ``"f16"``, ``"bf16"``: casts around each layer, weights stored in it. ``"int8"``: inputs of layers as
            u8 with a zero point, weights as i8 with a scale for each output channel. ``"fp8"``: both as f8_e4m3 with
            one scale. ``"best"``: of f32, f16, bf16 and int8 the fastest whose outputs differ by ``tolerance`` at most;
            of int8, the layers that cost most stay in f32 until they do.
        calibrator: Where the range of an input ends. ``"minmax"``: at the extremes. ``"mse"``: at the share of them
            that has the least mean square error. ``"percentile"``: at the quantiles that leave ``1 - percentile``
            outside. ``"entropy"``: at the threshold whose quantised histogram has the least Kullback-Leibler divergence
            (Migacz, "8-bit inference with TensorRT", 2017), which cuts the rare large values that transformers need.
        percentile: Share of values inside of the range.
        smooth: How much of the differences between the channels of an input goes to the weights of products in int8,
            from 0 to 1 (:func:`~callboard.kernel.engine.precision.layers.factors_of`). It helps models whose inputs
            have a few channels with large values, such as transformers, and multiplies each input by a vector.
        symmetric: Inputs in int8 are i8 around 0, as TensorRT needs them, in place of u8 with a zero point.
        keep: Names of layers that stay in f32 (:attr:`Lowered.layers` has them).
        tolerance: For ``"best"``: the largest ``|a - b| / |b|`` of an output, by Euclidean norms.

    Raises:
        ShapeError: A word is not known, or a number is out of range.
    """

    precision: str = "int8"
    calibrator: str = "minmax"
    percentile: float = 0.9999
    keep: tuple[str, ...] = ()
    tolerance: float = 0.01
    smooth: float = 0.7
    symmetric: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (
            ("precision", self.precision, PRECISIONS),
            ("calibrator", self.calibrator, CALIBRATORS),
        ):
            if value not in known:
                raise ShapeError(f"IBuilderConfig: {name} is {value!r}; use one of {', '.join(known)}")
        if not 0.5 < self.percentile <= 1.0:
            raise ShapeError(f"IBuilderConfig: percentile is {self.percentile}; it must be above 0.5, and at most 1")
        if not 0.0 <= self.smooth <= 1.0:
            raise ShapeError(f"IBuilderConfig: smooth is {self.smooth}; it must be between 0 and 1")
        if not self.tolerance > 0:
            raise ShapeError(f"IBuilderConfig: tolerance is {self.tolerance}; it must be positive")
