"""The methods of ``dev.dnn`` that name an activation, the tables of rope, and graphs under construction."""

from typing import Literal

import numpy as np

from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.api import Api
from callboard.kernel.dnn.activations import Activation, ActivationKind
from callboard.kernel.dnn.checks import DataLayout
from callboard.kernel.dnn.graphs.builder import Fusion

__all__ = ["Methods"]


class Methods(Api[Mode]):
    """Deep learning on a device. :meth:`activation` documents the activations."""

    __slots__ = ()

    def _activate(
        self, x: GpuRef[Mode], kind: ActivationKind, parameter: float | None, out: GpuRef[Mode] | None
    ) -> GpuRef[Mode]:
        answer: GpuRef[Mode] = self._submit(Activation(x=x, kind=kind, parameter=parameter, out=out))
        return answer

    def relu(self, x: GpuRef[Mode], *, out: GpuRef[Mode] | None = None) -> GpuRef[Mode]:
        """``max(x, 0)``."""
        return self._activate(x, "relu", None, out)

    def leaky_relu(self, x: GpuRef[Mode], *, slope: float = 0.01, out: GpuRef[Mode] | None = None) -> GpuRef[Mode]:
        """``x``, or ``slope * x`` below 0."""
        return self._activate(x, "leaky_relu", slope, out)

    def clipped_relu(self, x: GpuRef[Mode], *, ceiling: float = 6.0, out: GpuRef[Mode] | None = None) -> GpuRef[Mode]:
        """``min(max(x, 0), ceiling)``."""
        return self._activate(x, "clipped_relu", ceiling, out)

    def elu(self, x: GpuRef[Mode], *, alpha: float = 1.0, out: GpuRef[Mode] | None = None) -> GpuRef[Mode]:
        """``x``, or ``alpha * (exp(x) - 1)`` below 0."""
        return self._activate(x, "elu", alpha, out)

    def gelu(
        self, x: GpuRef[Mode], *, approximate: Literal["none", "tanh"] = "none", out: GpuRef[Mode] | None = None
    ) -> GpuRef[Mode]:
        """``x`` times the normal distribution's function of ``x``, or its approximation with tanh."""
        return self._activate(x, "gelu_tanh" if approximate == "tanh" else "gelu", None, out)

    def sigmoid(self, x: GpuRef[Mode], *, out: GpuRef[Mode] | None = None) -> GpuRef[Mode]:
        """``1 / (1 + exp(-x))``."""
        return self._activate(x, "sigmoid", None, out)

    def tanh(self, x: GpuRef[Mode], *, out: GpuRef[Mode] | None = None) -> GpuRef[Mode]:
        """The hyperbolic tangent."""
        return self._activate(x, "tanh", None, out)

    def silu(self, x: GpuRef[Mode], *, beta: float = 1.0, out: GpuRef[Mode] | None = None) -> GpuRef[Mode]:
        """``x * sigmoid(beta * x)``, also called swish."""
        return self._activate(x, "swish", beta, out)

    def softplus(self, x: GpuRef[Mode], *, beta: float = 1.0, out: GpuRef[Mode] | None = None) -> GpuRef[Mode]:
        """``log(1 + exp(beta * x)) / beta``."""
        return self._activate(x, "softplus", beta, out)

    def fuse(
        self,
        *,
        layout: DataLayout = "NCHW",
        tf32: bool = False,
        deterministic: bool = False,
        autotune: bool = False,
    ) -> Fusion[Mode]:
        """A graph of steps that are executed as one, for a ``with`` block; settings as of :meth:`fused`."""
        settings = {"layout": layout, "tf32": tf32, "deterministic": deterministic, "autotune": autotune}
        return Fusion(self._submit, settings)

    def rope_tables(
        self, length: int, width: int, *, base: float = 10000.0, dtype: DTypeLike = "f32"
    ) -> tuple[GpuRef[Mode], GpuRef[Mode]]:
        """Cosines and sines for :meth:`rope`, two new arrays ``[length, width / 2]``, computed on the host in f64.

        Args:
            length: Positions from 0.
            width: Elements that are turned, an even number; pair *j* turns by ``position * base ** (-2 * j / width)``.
            base: Base of the angles' geometric sequence.
            dtype: The dtype of the tables.

        Raises:
            ShapeError: ``width`` is odd or negative, or ``length`` negative.
        """
        if width < 0 or width % 2 or length < 0:
            raise ShapeError(f"rope_tables: length is {length} and width {width}; both are >= 0, width is even")
        angles = np.outer(np.arange(length), base ** (-np.arange(0, width, 2) / max(width, 1)))
        to = as_dtype(dtype).np
        return self._put(np.cos(angles).astype(to)), self._put(np.sin(angles).astype(to))
