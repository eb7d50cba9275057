"""Shared by the suites of fp8 products: pairs of dtypes, factors as the tensor cores want them, and what is stored."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from blas_lab import Array, place_matrix, values
from blas_lt_lab import aux_for, wide

from callboard.backends.cpu.lowprec import encode_f8
from callboard.core.dtype import DTYPES, DType

E4, E5, BF16 = (DTYPES[name] for name in ("f8_e4m3", "f8_e5m2", "bf16"))
LARGEST = {"f8_e4m3": 448.0, "f8_e5m2": 57344.0}
FACTORS = [pytest.param(E4, E4, id="e4m3"), pytest.param(E4, E5, id="e4m3-e5m2"), pytest.param(E5, E4, id="e5m2-e4m3")]
WIDER = [pytest.param(DTYPES[name], id=name) for name in ("bf16", "f16", "f32")]
NARROW = [pytest.param(dtype, id=dtype.name) for dtype in (E4, E5)]


def products(stored: Any) -> list[Any]:
    """Every pair of factors with every one of these results, but for the one that no GPU makes."""
    return [
        pytest.param(*pair.values, *result.values, id=f"{pair.id}-{result.id}")
        for pair in FACTORS
        for result in stored
        if (pair.id, result.id) != ("e4m3", "f8_e5m2")
    ]


def narrow(dtype: DType, shape: tuple[int, ...], seed: int) -> Array:
    return encode_f8(values(DTYPES["f64"], shape, seed), dtype)


def by_columns(session: Any, array: Array) -> Any:
    """``array`` with its columns adjacent, as the tensor cores of Hopper want an fp8 ``b``."""
    return place_matrix(session, array, "columns").ref


def scale(session: Any, *numbers: float) -> Any:
    array = np.array(numbers, np.float32)
    return session.put(array[0] if array.size == 1 else array)


def saturated(x: Array, dtype: DType) -> Array:
    """What storing as fp8 makes of values beyond the largest one."""
    return np.clip(x, -LARGEST[dtype.name], LARGEST[dtype.name]) if dtype.name in LARGEST else x


def kept_as(stored: DType) -> DType:
    """The dtype of an addend and of GELU's aux."""
    return BF16 if stored.name in LARGEST else stored


def vector_of(stored: DType) -> DType:
    """The dtype of a bias and of its gradient."""
    return DTYPES["f16" if stored.name == "f16" else "bf16"]


class Extras(NamedTuple):
    """What an epilogue reads beside the factors: on the device, and wide for the reference."""

    operands: dict[str, Any]
    bias: Array | None
    aux: Array | None


def extras(session: Any, epilogue: str, shape: tuple[int, ...], stored: DType, *, bias_of_each: bool = False) -> Extras:
    """For a result of ``shape``; ``bias_of_each``: a bias for each matrix of a batch."""
    operands: dict[str, Any] = {}
    bias = aux = None
    if "bias" in epilogue:
        bias = values(vector_of(stored), (*(shape[:-2] if bias_of_each else ()), shape[-1]), 3)
        operands["bias"] = session.put(bias)
    if epilogue.startswith("d"):
        stored_aux, aux = aux_for(epilogue, shape, kept_as(stored), 5)
        operands["aux"] = session.put(stored_aux)
    return Extras(operands, None if bias is None else wide(bias), aux)
