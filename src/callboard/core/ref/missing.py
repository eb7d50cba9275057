"""What a ref has in place of the methods and attributes of NumPy's arrays that it lacks."""

__all__ = ["METHODS"]

METHODS = {
    "argpartition": "xp.argsort(x), or dev.cub.top_k(x, k)",
    "argsort": "xp.argsort(x)",
    "clip": "xp.clip(x, min, max)",
    "compress": "x[mask]",
    "conj": "xp.conj(x)",
    "conjugate": "xp.conj(x)",
    "copy": "dev.copy(x)",
    "cumprod": "xp.cumulative_prod(x)",
    "cumsum": "xp.cumulative_sum(x)",
    "diagonal": "xp.linalg.diagonal(x)",
    "dot": "x @ y",
    "fill": "dev.fill(x, value), or x[...] = value",
    "flat": "x.reshape(-1)",
    "flatten": "dev.copy(x).reshape(-1)",
    "imag": "xp.imag(x)",
    "itemsize": "x.dtype.itemsize",
    "nonzero": "xp.nonzero(x)",
    "partition": "xp.sort(x)",
    "put": "x[indices] = values",
    "ravel": "x.reshape(-1), of an array with gaps xp.reshape(x, (-1,))",
    "real": "xp.real(x)",
    "repeat": "xp.repeat(x, repeats)",
    "round": "xp.round(x)",
    "searchsorted": "xp.searchsorted(x, values)",
    "sort": "xp.sort(x), which is another array",
    "squeeze": "xp.squeeze(x, axis)",
    "swapaxes": "xp.moveaxis(x, source, destination)",
    "take": "xp.take(x, indices, axis=axis)",
    "trace": "xp.linalg.trace(x)",
    "transpose": "x.T, or xp.permute_dims(x, axes)",
    "view": "x.reinterpret(dtype)",
}
"""By NumPy's name. ``xp`` is ``dev.xp``."""
