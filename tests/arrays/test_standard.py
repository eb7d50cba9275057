"""Every function of the array API standard 2025.12 exists, with its parameters; exceptions are listed.

``tests/data/array_api_2025_12.txt`` has the signatures, taken from ``array_api_strict`` 2.6.1 (which keeps to the
standard), with what 2025.12 adds. ``expand_dims`` also takes its axis as 2024.12 has it, by name and 0 by default.
"""

import inspect
import math
from pathlib import Path
from typing import Any

import pytest

import callboard as cb
from callboard.arrays.namespace import Namespace
from callboard.core.dtype import DTYPES

LINES = (Path(__file__).parent.parent / "data" / "array_api_2025_12.txt").read_text("utf-8").splitlines()
STANDARD = {line.partition("(")[0]: "(" + line.partition("(")[2] for line in LINES}

MISSING: dict[str, str] = {}
"""Functions of the standard that are not there, and why."""

RESTRICTIONS = {
    "x[mask]": "in asyncio, a mask over some of the axes: the shape of what follows depends on data that is not there "
    "yet; xp.nonzero(mask) is awaited first",
    "repeat": "in asyncio, an array of repeats on the device: the shape depends on it",
    "x.shape": "of a result whose extents depend on data, in asyncio: await the result first",
    "float(x)": "in asyncio, as bool, int, complex, index: the value has to be awaited",
    "x.to_device": "another device: other.put(await x.get()) copies through the host",
    "x.__dlpack__": "under process isolation, and a capsule of host memory for an array of a GPU: x.get() copies it",
}
"""Where a function that is there does less than the standard: shown by the tests of its module, listed in the guide."""


def found(name: str) -> Any:
    owner: Any = Namespace("submit", "put", "cpu:0")  # type: ignore[arg-type] # nothing is called
    for part in name.split("."):
        owner = getattr(owner, part)
    return owner


def parameters(signature: inspect.Signature) -> list[tuple[str, str, Any]]:
    return [(p.name, p.kind.name, p.default) for p in signature.parameters.values()]


def declared(text: str) -> list[tuple[str, str, Any]]:
    made: dict[str, Any] = {}
    exec(f"def function{text}: ...", made)
    return parameters(inspect.signature(made["function"]))


@pytest.mark.parametrize("name", STANDARD)
def test_function_has_the_parameters_of_the_standard(name: str) -> None:
    if name in MISSING:
        assert not hasattr(Namespace, name)
        return
    own, wanted = parameters(inspect.signature(found(name))), declared(STANDARD[name])
    assert own == wanted


def test_the_table_is_that_of_the_standard() -> None:
    assert len(STANDARD) == 175
    assert set(MISSING) <= set(STANDARD)
    guide = (Path(__file__).parent.parent.parent / "docs" / "guides" / "arrays.md").read_text("utf-8")
    for name in RESTRICTIONS:
        assert f"`{name}`" in guide, f"docs/guides/arrays.md does not say what {name} does less"


@pytest.mark.parametrize(
    "name",
    ["e", "inf", "nan", "newaxis", "pi", "bool", "complex64", "complex128", "float32", "float64"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)],
)
def test_constants_and_dtypes(name: str) -> None:
    value = found(name)
    numbers = {"e": math.e, "pi": math.pi, "inf": math.inf, "newaxis": None}
    if name in numbers:
        assert value == numbers[name]
    elif name == "nan":
        assert math.isnan(value)
    else:
        assert value in DTYPES.values()
    assert name in dir(cb.xp)
    assert getattr(cb.xp, name) is value


def test_every_function_says_what_it_does() -> None:
    silent = [name for name in STANDARD if not inspect.getdoc(found(name))]
    assert not silent


def test_what_2025_12_changes(session: cb.sync.Device) -> None:
    xp = session.xp
    x = xp.ones((2, 3))
    assert xp.expand_dims(x, 0).shape == (1, 2, 3)
    assert xp.expand_dims(x, (0, -1)).shape == (1, 2, 3, 1)
    assert xp.permute_dims(x, (-1, 0)).shape == (3, 2)
    assert xp.broadcast_shapes((2, 1), (3,)) == (2, 3)
    assert xp.broadcast_shapes() == ()
    assert type(xp.meshgrid(x[0], x[0])) is type(xp.broadcast_arrays(x, x[0])) is tuple
    assert type(xp.__array_namespace_info__().devices()) is tuple
    line = xp.asarray([1.0, 1.1], dtype="f32")
    assert xp.searchsorted(line, 1.1).item() == 1  # the number in the dtype of the line
    assert xp.searchsorted(xp.asarray([1, 2], dtype="u8"), 300).item() == 2
    assert xp.isin(xp.asarray([1.0, math.nan]), xp.asarray([math.nan, 1.0])).get().tolist() == [True, False]
    with pytest.raises(TypeError, match=r"xp\.isin: x2 is int"):
        xp.isin(1, 2)
