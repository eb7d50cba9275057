"""Errors for NumPy names missing in the array API standard; each names the replacement."""

from collections.abc import Iterable

from callboard.core.ref.suggestions import unknown_name

__all__ = ["unknown"]

INSTEAD = {
    "absolute": "abs",
    "allclose": "all(abs(x - y) <= atol + rtol * abs(y))",
    "amax": "max",
    "amin": "min",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "argpartition": "argsort, or dev.cub.top_k",
    "argwhere": "stack(nonzero(x), axis=-1)",
    "around": "round",
    "array": "asarray",
    "array_equal": "all(x == y)",
    "ascontiguousarray": "asarray(x, copy=True)",
    "average": "mean(x * weights) / mean(weights)",
    "bincount": "dev.cub.histogram_even",
    "bitwise_not": "bitwise_invert",
    "cbrt": "cb.elementwise('cbrt(x)')",
    "column_stack": "stack(columns, axis=-1)",
    "concatenate": "concat",
    "conjugate": "conj",
    "copy": "asarray(x, copy=True)",
    "cross": "linalg.cross",
    "cumprod": "cumulative_prod",
    "cumsum": "cumulative_sum",
    "deg2rad": "x * (xp.pi / 180)",
    "degrees": "x * (180 / xp.pi)",
    "diag": "linalg.diagonal, or eye(n) * x",
    "diagonal": "linalg.diagonal",
    "digitize": "searchsorted",
    "divmod": "floor_divide and remainder",
    "dot": "matmul or vecdot",
    "dstack": "concat, or stack",
    "exp2": "cb.elementwise('exp2(x)')",
    "fix": "trunc",
    "flatnonzero": "nonzero(reshape(x, (-1,)))",
    "fliplr": "flip",
    "flipud": "flip",
    "float_power": "pow",
    "fmax": "maximum, which keeps NaN",
    "fmin": "minimum, which keeps NaN",
    "histogram": "dev.cub.histogram_even or dev.cub.histogram_range",
    "hstack": "concat",
    "identity": "eye",
    "inner": "vecdot or tensordot",
    "invert": "bitwise_invert",
    "isclose": "abs(x - y) <= atol + rtol * abs(y)",
    "left_shift": "bitwise_left_shift",
    "mod": "remainder",
    "nan_to_num": "where(isfinite(x), x, number)",
    "nanmax": "max(where(isnan(x), -xp.inf, x))",
    "nanmin": "min(where(isnan(x), xp.inf, x))",
    "nansum": "sum(where(isnan(x), 0, x))",
    "norm": "linalg.vector_norm or linalg.matrix_norm",
    "outer": "linalg.outer",
    "pad": "concat with zeros or full",
    "partition": "sort, or dev.cub.top_k",
    "power": "pow",
    "ptp": "max(x) - min(x)",
    "rad2deg": "x * (180 / xp.pi)",
    "radians": "x * (xp.pi / 180)",
    "random": "the generator of the device, dev.rng",
    "ravel": "reshape(x, (-1,))",
    "right_shift": "bitwise_right_shift",
    "rint": "round",
    "rollaxis": "moveaxis",
    "rot90": "flip and permute_dims",
    "split": "unstack, or slices of x",
    "swapaxes": "moveaxis or permute_dims",
    "trace": "linalg.trace",
    "transpose": "permute_dims, or x.T",
    "tri": "tril(ones(shape))",
    "true_divide": "divide",
    "unique": "unique_values, unique_counts, unique_inverse or unique_all",
    "vstack": "concat, or stack",
}
"""The standard's replacement, by NumPy's name."""


def unknown(namespace: str, name: str, there: Iterable[str]) -> AttributeError:
    """The error for a name that a namespace lacks.

    Args:
        namespace: Name of the namespace in user code, ``xp`` or ``xp.linalg``.
        name: The unknown name.
        there: The names of the namespace, for the nearest of them.
    """
    told = f"{namespace} has no {name!r}: it has the functions of the array API standard 2025.12"
    if name in INSTEAD:
        return AttributeError(f"{told}; use {INSTEAD[name]}", name=name)
    return unknown_name(told, name, there)
