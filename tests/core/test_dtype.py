import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from callboard.core.dtype import BY_CODE, DTYPES, DType, as_dtype

# Codes travel and are stored in tokens: never renumber, only append.
CODES = [
    *("f16", "bf16", "f32", "f64", "c64", "c128", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"),
    *("f8_e4m3", "f8_e5m2", "f4_e2m1"),
]


def test_codes_never_change() -> None:
    assert [dtype.name for dtype in BY_CODE] == list(DTYPES) == CODES
    assert [dtype.code for dtype in BY_CODE] == list(range(len(BY_CODE)))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_dtype_is_found_by_every_name(dtype: DType) -> None:
    for name in (dtype, dtype.name, dtype.np, dtype.np.type):
        assert as_dtype(name) is dtype
    assert dtype.itemsize == dtype.np.itemsize == np.zeros(1, dtype.np).nbytes
    assert pickle.loads(pickle.dumps(dtype)) is dtype


def test_a_dtype_equals_all_its_names_and_nothing_else() -> None:
    single = DTYPES["f32"]
    for name in ("f32", "f4", "float32", np.float32, np.dtype("f4")):
        assert single == name
        assert name == single
        assert DTYPES["f64"] != name
        assert name != DTYPES["f64"]
    for other in (None, 4, "", "f33", [], {}, object, np.str_, np.dtype("M8[s]"), np.zeros(1, "f4").shape):
        assert single != other
    assert {single: 1}[DTYPES["f32"]] == 1
    assert single in (np.float32, float)


@pytest.mark.parametrize(
    "like, name",
    [
        *((float, "f64"), (int, "i64"), (complex, "c128"), (bool, "bool")),
        *(("float32", "f32"), ("<i4", "i32"), (">f8", "f64"), ("f4", "f32"), ("f8", "f64"), ("uint8", "u8")),
        *((ml_dtypes.bfloat16, "bf16"), ("bfloat16", "bf16"), (np.dtype("?"), "bool")),
    ],
)
def test_numpys_names_are_understood(like: Any, name: str) -> None:
    assert as_dtype(like) is DTYPES[name]


@pytest.mark.parametrize("like", [None, "f7", object, "S3", np.longdouble, "datetime64[s]", ml_dtypes.int4])
def test_other_types_are_refused_by_name(like: Any) -> None:
    with pytest.raises(TypeError, match=r"dtype .* is not supported; use one of f16, bf16, f32"):
        as_dtype(like)


def test_kinds() -> None:
    kinds = {name: dtype.kind for name, dtype in DTYPES.items()}
    for name, dtype in DTYPES.items():
        assert dtype.is_float == (kinds[name] == "float") == (name[0] == "f" or name == "bf16")
        assert dtype.is_complex == (kinds[name] == "complex") == (name[0] == "c")
        assert dtype.is_integer == (kinds[name] in ("int", "uint")) == (name[0] in "iu")
        assert dtype.is_signed == (name[0] != "u" and name != "bool")


def test_real_counterparts() -> None:
    assert [DTYPES[n].real.name for n in ("c64", "c128", "bf16", "i8")] == ["f32", "f64", "bf16", "i8"]


def test_repr_is_the_name() -> None:
    assert repr(DTYPES["f8_e4m3"]) == "f8_e4m3"
