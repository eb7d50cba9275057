"""Error texts for invalid weights of a choice, the same for every backend: only the device reads the weights."""

import math

from callboard.core.errors import NumericalError

__all__ = ["bad_sum", "bad_weight"]

TAG = "rng.fill_discrete"


def bad_weight(index: int, value: float) -> NumericalError:
    """The first element that is not a weight."""
    cure = "put 0 in the place of what must never be chosen"
    return NumericalError(f"{TAG}: weights[{index}] is {value!r}; every weight must be finite and >= 0: {cure}", -1)


def bad_sum(total: float) -> NumericalError | None:
    """Weights that add up to nothing, or to more than a f64 holds; None if they add up to something."""
    if 0 < total < math.inf:
        return None
    cure = "divide them by the largest" if total > 0 else "one at least must be > 0"
    return NumericalError(f"{TAG}: weights add up to {total!r}; {cure}", -1)
