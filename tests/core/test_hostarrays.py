"""Values ``put`` takes beside NumPy arrays, and its errors for all others."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.sparse

from callboard.agents.checks import matrix
from callboard.core.dtype import as_dtype
from callboard.core.errors import ShapeError
from callboard.core.ref.hostarrays import host_array
from callboard.patterns.moe.grouped import GroupedExperts
from callboard.realtime.particles.obstacles import DistanceField

REFUSED: dict[str, tuple[Any, str]] = {
    "a sparse matrix": (scipy.sparse.csr_matrix(np.eye(3)), r"csr_matrix of SciPy; use dev\.sparse\.from_scipy"),
    "a sparse array": (scipy.sparse.coo_array(np.eye(3)), r"coo_array of SciPy; use dev\.sparse\.from_scipy"),
    "None": (None, "the value is None; pass an array"),
    "a dict": ({"w": np.ones(3)}, "the value is a dict; put each array"),
    "a text": ("ones", "the value is of type str; pass an array, or lists of numbers"),
    "an object": (object(), "the value is of type object; pass an array, or lists of numbers"),
    "an array of objects": (np.array([None]), r"the array's dtype dtype\('O'\) is not supported; use one of f16"),
    "dates": (np.array(["2026-01-01"], "datetime64[D]"), "the array's dtype .* is not supported"),
    "masked elements": (np.ma.MaskedArray([1.0, 2.0], mask=[True, False]), r"put\(array\.filled\(value\)\)"),
}


@pytest.mark.parametrize("value, says", REFUSED.values(), ids=REFUSED.keys())
def test_it_is_refused_with_the_way(value: Any, says: str) -> None:
    with pytest.raises(TypeError, match=f"put: .*{says}"):
        host_array(value, None)


def test_lists_of_different_lengths_are_a_shape_error() -> None:
    with pytest.raises(
        ShapeError, match=r"^put: the value \(list\) is not a regular array; pass lists of equal lengths"
    ):
        host_array([[1], [2, 3]], None)


def test_arrays_are_taken_as_they_are() -> None:
    array = np.arange(3)
    assert host_array(array, None) is array
    assert host_array(array, as_dtype("f4")).dtype == np.float32
    assert host_array([[1, 2], [3, 4]], None).shape == (2, 2)
    assert host_array(2.5, None).shape == ()


@pytest.mark.slow
@pytest.mark.parametrize("name, held", [("bfloat16", "bf16"), ("float8_e4m3fn", "f8_e4m3"), ("float32", "f32")])
def test_tensors_of_torch_are_read_bit_by_bit(name: str, held: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([[1.0, -2.5], [0.0, 448.0]]).to(getattr(torch, name)).t()
    array = host_array(tensor, None)
    assert as_dtype(array.dtype).name == held
    np.testing.assert_array_equal(array.astype("f4"), tensor.float().numpy())


def test_a_tensor_that_needs_gradients_is_read() -> None:
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(host_array(torch.ones(3, requires_grad=True), None), np.ones(3))
    assert host_array(torch.ones(3, dtype=torch.bfloat16), as_dtype("f64")).dtype == np.float64
    assert host_array(np.ones(2, ml_dtypes.bfloat16), None).dtype == ml_dtypes.bfloat16


MASKED = np.ma.MaskedArray([1.0, 2.0], mask=[True, False])


@pytest.mark.parametrize(
    "value",
    [
        MASKED,
        np.ma.masked,
        [MASKED],
        [[1.0, 2.0], MASKED],
        (0, np.ma.masked),
        [np.array([1.0, 2.0]), [0, np.ma.masked]],
    ],
)
@pytest.mark.parametrize("dtype", [None, "f4"])
def test_no_mask_is_left_out(value: Any, dtype: str | None) -> None:
    with pytest.raises(TypeError, match="here: the array has masked elements; fill them first"):
        host_array(value, None if dtype is None else as_dtype(dtype), "here")


def test_an_array_whose_mask_hides_nothing_is_its_values() -> None:
    for mask in (np.ma.nomask, [False, False]):
        found = host_array([np.ma.MaskedArray([1.0, 2.0], mask=mask)], None)
        assert type(found) is np.ndarray
        assert found.tolist() == [[1, 2]]


@pytest.mark.parametrize(
    "value",
    [
        [1.0, None],
        [[1.0], [None]],
        np.array([1, None], object),
        np.array([1, "2"], object),
        [scipy.sparse.csr_matrix(np.eye(2))],
        np.array(["2026-01-01"], "M8[D]"),
        np.array([5], "m8[s]"),
        np.array(["1"]),
        np.zeros(2, [("a", "f4")]),
        np.recarray((2,), [("a", "f4")]),
    ],
)
def test_a_dtype_makes_no_numbers_of_what_is_none(value: Any) -> None:
    with pytest.raises(TypeError, match="put: "):
        host_array(value, as_dtype("f4"))


def test_objects_that_are_numbers_are_converted() -> None:
    numbers = [2**70, 1, True, np.bool_(True), 0.5]
    assert host_array(np.array(numbers, object), as_dtype("f8")).tolist() == [float(number) for number in numbers]
    assert host_array(numbers, as_dtype("f8")).dtype == np.float64


def test_missing_values_of_pandas_are_refused() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    series = pandas.Series([1, None], dtype="Int64")
    for value in (series, series.astype("Float64"), pandas.DataFrame({"a": series, "b": [1.0, 2.0]}), series.array):
        with pytest.raises(TypeError, match="of pandas with missing values; fill them first"):
            host_array(value, as_dtype("f4"))
    assert host_array(series.fillna(7), None).tolist() == [1, 7]
    assert np.isnan(host_array(pandas.Series([1.0, np.nan]), None)).tolist() == [False, True]


def test_what_its_methods_raise_is_an_error_about_the_value() -> None:
    class Fails:
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
            raise ValueError("no values today")

    with pytest.raises(TypeError, match=r"put: the value \(.*Fails\) gives no array: ValueError: no values today"):
        host_array(Fails(), None)


ROWS = np.ma.MaskedArray(np.ones((2, 4), "f4"), mask=np.eye(2, 4, dtype=bool))
NO_DEVICE: Any = None


@pytest.mark.parametrize(
    "use",
    [
        lambda: matrix("rows", ROWS, columns=4),
        lambda: DistanceField.of(ROWS[None], spacing=1.0),
        lambda: GroupedExperts(NO_DEVICE, ROWS[None], np.ones((1, 4, 2))),
    ],
    ids=["embeddings", "distances", "weights"],
)
def test_masks_are_not_left_out_elsewhere(use: Any) -> None:
    with pytest.raises(TypeError, match=r"masked elements; fill them first: array\.filled\(value\)"):
        use()
