"""NaN, infinities, zeros and numbers at the ends of a range: results are the CPU's, not those of PyTorch."""

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from callboard.backends.cpu import device as cpu_device
from callboard.backends.torch import device as torch_device
from callboard.kernel.blas import Axpy, Gemm
from callboard.kernel.elementwise import Map
from callboard.testing.session import LibrarySession

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

PARTS = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan]
REAL = [*PARTS, 7.25, 1e38, -1e38, 1e-42, -1e-42, 3.0]


@pytest.fixture(scope="module")
def session() -> Iterator[tuple[LibrarySession, LibrarySession]]:
    """The CPU backend, and PyTorch's."""
    with LibrarySession("cpu", pure=False) as cpu, LibrarySession("torch:cpu", pure=False) as torch:
        yield cpu, torch


def both(session: Any, expression: str, *operands: Any) -> list[Any]:
    return [one.get(one.submit(Map(expression=expression, operands=tuple(map(one.put, operands))))) for one in session]


@pytest.mark.parametrize("expression", ["x + y", "x - y", "-x", "sign(x)"])
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_parts_of_complex_numbers_are_apart(session: Any, expression: str, dtype: str) -> None:
    numbers = np.array([complex(a, b) for a in PARTS for b in PARTS], dtype)
    pairs = np.meshgrid(numbers, numbers)[: 2 if "y" in expression else 1]
    wanted, found = both(session, expression, *(x.reshape(-1) for x in pairs))
    for part, other in ((found.real, wanted.real), (found.imag, wanted.imag)):
        np.testing.assert_array_equal(part, other)
        if "sign" not in expression:
            signed = ~np.isnan(other)
            np.testing.assert_array_equal(np.signbit(part)[signed], np.signbit(other)[signed])


def test_powers_of_zero_and_by_one(session: Any) -> None:
    bases = np.array([0, 0, 0, complex(np.inf, 1), complex(np.nan, 2)])
    exponents = np.array([0, 2 + 1j, 3, 1, 0])
    np.testing.assert_array_equal(*both(session, "pow(x, y)", bases, exponents))


@pytest.mark.parametrize("function", ["fmod", "remainder"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_remainders_whose_quotient_is_out_of_range(session: Any, function: str, dtype: str) -> None:
    numbers = np.array(REAL if dtype == "f4" else [*REAL, 1e300, 5e-324], dtype)
    x, y = (a.reshape(-1) for a in np.meshgrid(numbers, numbers))
    wanted, found = both(session, f"{function}(x, y)", x, y)
    np.testing.assert_array_equal(found, wanted)


def test_sums_of_products_keep_an_infinite_part_apart(session: Any) -> None:
    far, near = np.array([[complex(0, np.inf)]], "c8"), np.array([[1 + 1j]], "c8")
    for one in session:
        y = one.put(far[0])
        one.submit(Axpy(x=one.put(near[0]), y=y, alpha=2.0))
        assert one.get(y)[0] == complex(2, np.inf)
        product = one.submit(Gemm(a=one.put(near), b=one.put(near), c=one.put(far), beta=1.0))
        assert one.get(product)[0, 0] == complex(0, np.inf)


def test_both_backends_count_the_same_memory() -> None:
    assert torch_device.memory is cpu_device.memory
