"""``Call``: the addresses, extents, steps and numbers that a template is launched with."""

import ctypes
from ctypes import c_float, c_int, c_int64, c_void_p

__all__ = ["FIELDS", "MAX_INPUTS", "Call"]

MAX_INPUTS = 8


class Call(ctypes.Structure):
    """``Call`` of the generated text; steps in elements."""

    _fields_ = (
        *((name, c_void_p) for name in ("a", "b", "c", "out", "scale_a", "scale_b")),
        ("inputs", c_void_p * MAX_INPUTS),
        *((name, c_int64) for name in ("m", "n", "k", "batch")),
        *((name, c_int64) for name in ("a_step", "a_batch", "b_step", "b_batch")),
        *((name, c_int64) for name in ("c_step", "c_batch", "out_step", "out_batch")),
        *((name, c_int64) for name in ("scale_a_step", "scale_b_step")),
        ("rows", c_int64 * MAX_INPUTS),
        ("batches", c_int64 * MAX_INPUTS),
        *((name, c_int) for name in ("swizzle", "raster", "splits")),
        *((name, c_float) for name in ("alpha", "beta")),
    )


FIELDS = """
struct Call {
    const void *a, *b, *c;
    void* out;
    const void *scale_a, *scale_b;
    const void* inputs[8];
    long long m, n, k, batch, a_step, a_batch, b_step, b_batch, c_step, c_batch, out_step, out_batch;
    long long scale_a_step, scale_b_step;
    long long rows[8], batches[8];
    int swizzle, raster, splits;
    float alpha, beta;
};
"""
