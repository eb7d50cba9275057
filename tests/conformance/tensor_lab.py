"""Shared by the tensor suites: sessions by engine, operands in drawn layouts, references in higher precision."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from blas_lab import Array, values
from hypothesis import strategies as st
from sessions import CPU, HOSTS, opened

from callboard.core.dtype import DType
from callboard.core.errors import BackendUnavailable
from callboard.core.layout import layout_of
from callboard.kernel.tensor import Permutation

FLOATS = ("f16", "bf16", "f32", "f64", "c64", "c128")
WHOLE = ("i32", "i64")
ALL = (*FLOATS, *WHOLE)

ENGINE = "CALLBOARD_TENSOR_ENGINE"
ENGINES = [
    *CPU,
    *(
        pytest.param(f"{kind}:cuda:{engine}", id=f"{kind}-cuda-{engine}", marks=pytest.mark.gpu)
        for engine in ("builtin", "cutensor")
        for kind in ("library", "graph")
    ),
    *HOSTS,
]
"""On CUDA each engine on its own, and in the hosts both, as they are chosen."""


def engine_session(name: str) -> Iterator[Any]:
    """The session of a name of :data:`ENGINES`; skipped where its engine is not installed."""
    kind, backend, *engine = name.split(":")
    if backend == "torch":
        yield from opened(name)
        return
    before = os.environ.get(ENGINE)
    os.environ[ENGINE] = engine[0] if engine else "auto"
    try:
        for session in opened(f"{kind}:{backend}"):
            try:
                session.submit(Permutation(a=session.put(np.ones(1, "f4")), modes_a="i", modes_out="i"))
            except BackendUnavailable as e:
                if engine != ["cutensor"]:
                    raise
                pytest.skip(str(e))
            yield session
    finally:
        if before is None:
            del os.environ[ENGINE]
        else:
            os.environ[ENGINE] = before


@st.composite
def tensor_layouts(draw: Any, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """How an operand of this shape lies: order of its axes in memory, step of each, gap behind each."""
    order = draw(st.permutations(range(len(shape))))
    steps = tuple(draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in shape)
    gaps = tuple(draw(st.sampled_from([0, 0, 1])) for _ in shape)
    return tuple(order), steps, gaps


def place_tensor(session: Any, array: Array, layout: Any) -> Any:
    """``array`` on the device as :func:`tensor_layouts` says: transposed, sliced, reversed."""
    order, steps, gaps = layout
    turned = array.transpose(order)
    shape = tuple(n * abs(steps[axis]) + gaps[axis] for n, axis in zip(turned.shape, order, strict=True))
    whole = np.full(shape, 77, array.dtype)
    index = tuple(
        slice(None, n * abs(steps[axis]), abs(steps[axis]))
        if steps[axis] > 0
        else slice((n - 1) * abs(steps[axis]), None if n else 0, steps[axis])
        for n, axis in zip(turned.shape, order, strict=True)
    )
    whole[index] = turned
    return permuted(session.put(whole)[index], np.argsort(order).tolist() if order else [])


def placed(session: Any, array: Any, first: int) -> Any:
    """At an address of no more than an element's alignment when ``first`` is 1."""
    return session.put(np.concatenate([array.ravel()[:first], array.ravel()]))[first:].reshape(*array.shape)


def permuted(ref: Any, order: list[int]) -> Any:
    """A view with the axes in another order."""
    layout = layout_of(ref.dtype, tuple(ref.shape[i] for i in order), tuple(ref.strides[i] for i in order))
    return ref._view(layout, ref.offset) if hasattr(ref, "_view") else type(ref)(ref.block, layout, ref.offset)


def tensor_values(dtype: DType, shape: tuple[int, ...], seed: int) -> Array:
    """As :func:`blas_lab.values`; integers small enough that few products overflow."""
    array = values(dtype, shape, seed)
    return array // 16 if dtype.is_integer else array


def long(array: Any) -> Array:
    """The same numbers in the reference's type: long double, or 64-bit integers that wrap around as the result does."""
    array = np.asarray(array)
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    return array.astype(np.clongdouble if array.dtype.kind == "c" else np.longdouble)


def einsum(equation: str, *arrays: Array) -> Array:
    """``numpy.einsum``, but for empty results, behind which NumPy 2.4 writes one element (and glibc aborts later)."""
    terms, arrow, result = equation.replace(" ", "").partition("->")
    if arrow and "." not in equation:
        extents = {
            x: n
            for labels, a in zip(terms.split(","), arrays, strict=True)
            for x, n in zip(labels, a.shape, strict=True)
        }
        shape = [extents[x] for x in result]
        if 0 in shape:
            return np.zeros(shape, np.result_type(*arrays))
    found: Array = np.einsum(equation, *arrays)
    return found


def wrapped(array: Any, dtype: DType) -> Array:
    """A reference as a result of this dtype is compared: integers cut to its bits."""
    return np.asarray(array).astype(dtype.np) if dtype.is_integer else np.asarray(array)
