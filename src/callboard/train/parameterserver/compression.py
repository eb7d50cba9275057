"""``GradientCompressor``: less to push, with the error of each push added to the next gradient."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

__all__ = ["Compressed", "GradientCompressor"]

Array = np.ndarray[Any, Any]


class Compressed(msgspec.Struct, frozen=True):
    """A gradient in fewer bytes.

    Attributes:
        shape: Of the gradient.
        dtype: As NumPy names it.
        items: Numbers of the items that are not 0, in the flat gradient; None: all are there.
        values: Of the gradient's dtype, or int8.
        scale: Factor of the values.
    """

    shape: tuple[int, ...]
    dtype: str
    items: Any
    values: Any
    scale: float = 1.0

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return int(self.values.nbytes + (0 if self.items is None else self.items.nbytes))

    def decoded(self) -> Array:
        """The gradient."""
        values = np.asarray(self.values)
        if values.dtype == np.int8:
            values = values.astype(self.dtype) * np.dtype(self.dtype).type(self.scale)
        if self.items is None:
            return values.reshape(self.shape)
        whole = np.zeros(self.shape, self.dtype)
        whole.reshape(-1)[self.items] = values
        return whole


class GradientCompressor:
    """Compresses the gradients of one worker: the largest items only, as int8, or both.

    What a push leaves out is kept and added to the worker's next gradient (error feedback), so that nothing is lost in
    the long run. To retry a push, pass what was compressed for it again.

    Args:
        top_k: Share of the items that is pushed, those of the largest magnitude; None: all of them.
        int8: Push each item as one of 255 steps between the extremes of its array.

    Raises:
        ValueError: ``top_k`` is not in (0, 1].
    """

    def __init__(self, *, top_k: float | None = None, int8: bool = False) -> None:
        if top_k is not None and not 0 < top_k <= 1:
            raise ValueError(f"GradientCompressor: top_k is {top_k}; it is a share of the items above 0, up to 1")
        self._share = top_k
        self._int8 = int8
        self._left: dict[str, Array] = {}

    def compress(self, gradients: Mapping[str, Any]) -> dict[str, Any]:
        """What to push in place of these gradients."""
        return {name: self._one(name, value) for name, value in gradients.items()}

    def _one(self, name: str, value: Any) -> Compressed:
        array = np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)
        if not np.isfinite(array).all():
            raise ValueError(f"gradients[{name!r}] is not finite; it would stay in the error feedback for ever")
        whole = array + self._left.get(name, 0)
        flat = whole.reshape(-1)
        items: Array | None = None
        if self._share is not None and flat.size:
            count = max(1, round(self._share * flat.size))
            items = np.sort(np.argpartition(np.abs(flat), flat.size - count)[flat.size - count :])
            items = items.astype(np.uint32 if flat.size < 2**32 else np.int64)
        values = flat if items is None else flat[items]
        scale = float(np.abs(values).max(initial=0.0)) / 127 if self._int8 else 1.0
        if self._int8:
            values = np.rint(values / (scale or 1.0)).astype(np.int8)
        sent = Compressed(array.shape, array.dtype.name, items, values.copy(), scale)
        self._left[name] = whole - sent.decoded()
        return sent
