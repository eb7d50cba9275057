"""Errors for NumPy names missing in the array API standard; each names the replacement."""

import difflib
from collections.abc import Iterable

__all__ = ["unknown"]

INSTEAD = {
    "absolute": "abs",
    "amax": "max",
    "amin": "min",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "around": "round",
    "array": "asarray",
    "average": "mean(x * weights) / mean(weights)",
    "bitwise_not": "bitwise_invert",
    "concatenate": "concat",
    "conjugate": "conj",
    "cumprod": "cumulative_prod",
    "cumsum": "cumulative_sum",
    "degrees": "x * (180 / xp.pi)",
    "divmod": "floor_divide and remainder",
    "dot": "matmul or vecdot",
    "float_power": "pow",
    "fmax": "maximum, which keeps NaN",
    "fmin": "minimum, which keeps NaN",
    "hstack": "concat",
    "inner": "vecdot or tensordot",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "mod": "remainder",
    "norm": "linalg.vector_norm or linalg.matrix_norm",
    "power": "pow",
    "radians": "x * (xp.pi / 180)",
    "random": "the generator of the device, dev.rng",
    "ravel": "reshape(x, (-1,))",
    "right_shift": "bitwise_right_shift",
    "rollaxis": "moveaxis",
    "swapaxes": "moveaxis or permute_dims",
    "transpose": "permute_dims, or x.T",
    "true_divide": "divide",
    "unique": "unique_values, unique_counts, unique_inverse or unique_all",
    "vstack": "concat, or stack",
}
"""The standard's replacement, by NumPy's name."""


def unknown(namespace: str, name: str, there: Iterable[str]) -> AttributeError:
    """The error for a name that a namespace lacks.

    Args:
        namespace: As a program names it, ``xp`` or ``xp.linalg``.
        name: The name asked for.
        there: The names of the namespace, for the nearest of them.
    """
    told = f"{namespace} has no {name!r}: it has the functions of the array API standard 2024.12"
    if name in INSTEAD:
        return AttributeError(f"{told}; use {INSTEAD[name]}", name=name)
    near = difflib.get_close_matches(name, [each for each in there if not each.startswith("_")], n=3)
    return AttributeError(f"{told}; the nearest names are {', '.join(near)}" if near else told, name=name)
