"""Dtype functions, by NumPy's tables; and the namespace's inspection functions."""

import itertools
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.arrays.dtypes import KINDS, NAMES
from callboard.core.dtype import DTYPES, as_dtype

PAIRS = list(itertools.product(NAMES, repeat=2))


@pytest.mark.parametrize("a, b", PAIRS)
def test_result_type_of_two_dtypes_is_numpys(a: str, b: str) -> None:
    xp: Any = cb.xp
    assert xp.result_type(NAMES[a], NAMES[b]) is as_dtype(np.result_type(np.dtype(a), np.dtype(b)))
    assert xp.can_cast(NAMES[a], NAMES[b]) is bool(np.can_cast(np.dtype(a), np.dtype(b)))


@pytest.mark.parametrize("number", [True, 2, 2.5, 1j])
@pytest.mark.parametrize("name", NAMES)
def test_numbers_take_the_dtype_of_the_array_where_its_kind_holds_them(name: str, number: Any) -> None:
    want = np.result_type(np.zeros(1, name), number)
    assert cb.xp.result_type(NAMES[name], number) is as_dtype(want)


def test_bfloat16_follows_the_same_rules() -> None:
    xp: Any = cb.xp
    assert xp.result_type(xp.bfloat16, xp.float16) is xp.float32
    assert xp.result_type(xp.bfloat16, xp.float32) is xp.float32
    assert xp.result_type(xp.bfloat16, 1.5) is xp.bfloat16


def test_result_type_of_numbers_alone_and_of_nothing() -> None:
    assert cb.xp.result_type(1, 2.0) is DTYPES["f64"]
    with pytest.raises(TypeError, match="at least one"):
        cb.xp.result_type()


@pytest.mark.parametrize("name", NAMES)
def test_limits(name: str) -> None:
    dtype = np.dtype(name)
    if dtype.kind in "iu":
        info, want = cb.xp.iinfo(name), np.iinfo(dtype)
        assert (info.bits, info.max, info.min) == (want.bits, want.max, want.min)
    elif dtype.kind in "fc":
        info, want = cb.xp.finfo(name), np.finfo(dtype)
        assert (info.bits, info.eps, info.max, info.min) == (want.bits, want.eps, want.max, want.min)
        assert info.smallest_normal == want.smallest_normal
        assert info.dtype is as_dtype(want.dtype)
        with pytest.raises(TypeError, match=r"use xp\.finfo for floats"):
            cb.xp.iinfo(name)
    else:
        with pytest.raises(TypeError, match=r"use xp\.iinfo for integers"):
            cb.xp.finfo(name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_isdtype(name: str, kind: str) -> None:
    assert cb.xp.isdtype(NAMES[name], kind) is bool(np.isdtype(np.dtype(name), kind))
    assert cb.xp.isdtype(NAMES[name], (kind, NAMES[name]))
    assert not cb.xp.isdtype(NAMES[name], ())


@pytest.mark.parametrize(
    "source, to", [p for p in PAIRS if not p[0].startswith("complex") or p[1].startswith("complex")]
)
def test_astype(session: cb.sync.Device, source: str, to: str) -> None:
    host = np.array([[0, 1, 2], [3, 100, 0]]).astype(source)
    got = session.array(host).T.astype(to)
    assert got.dtype is NAMES[to]
    np.testing.assert_array_equal(got.get(), host.T.astype(to))


def test_astype_copies_unless_told_otherwise(session: cb.sync.Device) -> None:
    x = session.array([1.0, 2.0])
    assert session.xp.astype(x, "f64", copy=False) is x
    assert session.xp.astype(x, "f64").allocation is not x.allocation
    with pytest.raises(cb.ShapeError, match=r"take its real part first \(xp\.real, xp\.imag\)"):
        x.astype("c64").astype("f32")


def test_the_namespace_tells_about_itself(session: cb.sync.Device) -> None:
    info = session.xp.__array_namespace_info__()
    assert info.devices() == (info.default_device(),) == (session.name,)
    assert info.default_dtypes() == {
        "real floating": DTYPES["f64"],
        "complex floating": DTYPES["c128"],
        "integral": DTYPES["i64"],
        "indexing": DTYPES["i64"],
    }
    assert info.capabilities()["boolean indexing"]
    assert info.dtypes() == NAMES
    for kind, fits in KINDS.items():
        assert info.dtypes(kind=kind) == {name: d for name, d in NAMES.items() if fits(d)}
    assert set(info.dtypes(kind=("bool", "complex floating"))) == {"bool", "complex64", "complex128"}
    with pytest.raises(ValueError, match="kind 'odd'"):
        info.dtypes(kind="odd")
    assert session.xp.__array_api_version__ == "2025.12"
    x = session.array(1.0)
    assert all(x.__array_namespace__(api_version=f"{year}.12") is session.xp for year in range(2021, 2026))
    with pytest.raises(ValueError, match=r"api_version is '2020\.1'"):
        x.__array_namespace__(api_version="2020.1")


class Odd:
    dtype = 5

    def __hash__(self) -> int:
        raise RuntimeError("no hash")


@pytest.mark.parametrize(
    "other",
    ["text, with a comma", "f8,,", "\ud800", "(", "", None, [], {}, 1, Odd(), Odd, np.ma.masked, np.dtype("i4,i4")],
)
def test_a_dtype_equals_nothing_that_names_none(other: Any) -> None:
    for dtype in DTYPES.values():
        assert dtype != other
    if isinstance(other, str):
        with pytest.raises(TypeError, match="is not supported; use one of"):
            as_dtype(other)
