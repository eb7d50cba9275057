"""What a ref has in place of the methods and attributes of NumPy's arrays that it lacks."""

__all__ = ["METHODS"]

METHODS = {
    "byteswap": 'x.reinterpret("u8"), whose bytes can be reversed',
    "resize": "np.resize(x, shape), which is another array",
    "tofile": "x.get().tofile(file)",
}
"""By NumPy's name. ``np`` is ``dev.np``."""
