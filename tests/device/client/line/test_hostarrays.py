"""Values ``put`` takes beside NumPy arrays, and its errors for all others."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.sparse

from callboard.core.dtype import as_dtype
from callboard.core.errors import ShapeError
from callboard.device.client.line.hostarrays import host_array

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
