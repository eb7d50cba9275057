"""The tables of docs/guides: both sides of each row of from-numpy.md agree; errors' have every public error class.

What README.md and the guides name of ``cb`` and of ``gpu``, a device, exists.
"""

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

import callboard as cb
from callboard import actors
from callboard.core import plugins
from callboard.kernel.blas import Gemm
from callboard.kernel.sparse import CooRef, CsrRef

ROOT = Path(__file__).parent.parent
GUIDES = ROOT / "docs" / "guides"
ROWS: list[tuple[str, str]] = re.findall(
    r"^\| `([^`]+)`[^|]* \| `([^`]+)` \|$", (GUIDES / "from-numpy.md").read_text("utf-8"), re.MULTILINE
)
ERRORS: list[tuple[str, str, str, str]] = re.findall(
    r"^\| `(cb|callboard\.actors)\.(\w+)` \| (?:`(\w+)`)? *\| (yes|no) \|",
    "".join((GUIDES / f"errors{page}.md").read_text("utf-8") for page in ("", "-of-services")),
    re.MULTILINE,
)
ARBITRARY = "rng.", "np.empty"
"""How rows begin that promise shape and dtype, not values."""


def host_names() -> dict[str, Any]:
    """The operands that the page names, and what else its left column uses."""
    rng = np.random.default_rng(3)
    a, b, c = (rng.random((4, 4)) for _ in range(3))
    names: dict[str, Any] = {"a": a + 2 * np.eye(4), "b": b, "c": c, "p": b @ b.T + np.eye(4)}
    names |= {"x": rng.random(4), "y": rng.random(4) - 0.5}
    names |= {
        "t": rng.random((2, 3, 4)),
        "u": rng.random((2, 4, 3)),
        "tall": rng.random((6, 4)),
        "k": rng.random((6, 2)),
    }
    names |= {"z": rng.random(8) + 1j * rng.random(8), "w": rng.random(8) - 1j, "f": rng.random((2, 3, 4)) + 1j}
    names |= {"h": rng.random((3, 2)), "m": scipy.sparse.csr_array(np.diag([1.0, 2, 3, 4]) + np.diag([5.0, 6, 7], 1))}
    return names | {"np": np, "scipy": scipy, "rng": np.random.default_rng(7)}


def device_names(gpu: cb.Device, host: dict[str, Any]) -> dict[str, Any]:
    """The same operands on the device, and what else the right column uses."""
    refs = {name: gpu.put(value) for name, value in host.items() if isinstance(value, np.ndarray) and name != "h"}
    others = {"s": gpu.sparse.from_scipy(host["m"]), "g": gpu.rng.philox(seed=7)}
    return {**refs, **others, "h": host["h"], "gpu": gpu, "__name__": __name__}


async def values(gpu: cb.Device, result: Any) -> list[Any]:
    """What a right column gives, on the host."""
    if isinstance(result, cb.GpuRef):
        return [await result.get()]
    if isinstance(result, tuple):
        return [value for item in result for value in await values(gpu, item)]
    if isinstance(result, CsrRef | CooRef):
        return [await gpu.sparse.to_scipy(await result)]
    return [result]


def differs(got: Any, want: Any, arbitrary: bool) -> str | None:
    """How two values differ."""
    if scipy.sparse.issparse(want):
        if got.format != want.format:
            return f"{got.format} for {want.format}"
        got, want = got.toarray(), want.toarray()
    got, want = np.asarray(got), np.asarray(want)
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return f"{got.dtype}{got.shape} for {want.dtype}{want.shape}"
    return None if arbitrary or np.allclose(got, want) else f"{got} for {want}"


async def wrong(gpu: cb.Device, left: str, right: str, host: dict[str, Any], device: dict[str, Any]) -> str | None:
    """How the sides of a row differ."""
    want = eval(left, dict(host))
    got = eval(compile(right, right, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), dict(device))
    results = await values(gpu, await got if inspect.iscoroutine(got) else got)
    wanted = list(want) if isinstance(want, tuple) else [want]
    if len(results) != len(wanted):
        return f"{len(results)} results for {len(wanted)}"
    found = [differs(*pair, left.startswith(ARBITRARY)) for pair in zip(results, wanted, strict=True)]
    return next(filter(None, found), None)


async def wrong_rows(rows: list[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    async with cb.device("cpu") as gpu:
        host = host_names()
        device = device_names(gpu, host)
        for left, right in rows:
            why = await wrong(gpu, left, right, host, device)
            if why is not None:
                found[f"{left} | {right}"] = why
        for name, value in device.items():
            if isinstance(value, cb.GpuRef) and not np.array_equal(await value.get(), host[name]):
                found[name] = "overwritten"
    return found


def test_both_sides_of_a_row_agree() -> None:
    assert len(ROWS) > 60
    assert asyncio.run(wrong_rows(ROWS)) == {}


@pytest.mark.parametrize(
    "row",
    [
        ("a @ b", "gpu.blas.gemm(b, a)"),
        ("np.zeros(3)", "gpu.zeros(3)"),
        ("m", "gpu.sparse.convert(s, 'coo')"),
        ("np.linalg.qr(a)", "gpu.solver.inverse(a)"),
        ("rng.random(3)", "g.uniform(4, dtype='f64')"),
        ("2 * x + y", "gpu.blas.axpy(x, y, alpha=2)"),
    ],
)
def test_a_wrong_row_is_found(row: tuple[str, str]) -> None:
    assert len(asyncio.run(wrong_rows([row]))) == 1


def test_every_error_class_is_explained_once() -> None:
    modules = {"callboard.actors": actors, "cb": cb}  # what both export is found in the second
    public = {name: place for place, module in modules.items() for name in module.__all__ if is_error(module, name)}
    assert {name: place for place, name, *_ in ERRORS} == public
    assert len(ERRORS) == len(public)


@pytest.mark.parametrize("place, name, builtin, retryable", ERRORS, ids=[row[1] for row in ERRORS])
def test_what_errors_say_of_a_class(place: str, name: str, builtin: str, retryable: str) -> None:
    cls: type[cb.AccelError] = getattr(cb if place == "cb" else actors, name)
    bases = [base.__name__ for base in cls.__mro__ if base.__module__ == "builtins"]
    assert (bases[0] if bases[0] != "Exception" else "") == builtin
    assert cls.retryable == (retryable == "yes")


def is_error(module: Any, name: str) -> bool:
    value = getattr(module, name)
    return isinstance(value, type) and issubclass(value, cb.AccelError)


# -- the original's Python API -----------------------------------------------------------------------------------------

ORIGINAL: list[str] = re.findall(
    r"^\| `.*` \| `([^`]+)` \|$", (GUIDES / "from-original.md").read_text("utf-8"), re.MULTILINE
)


async def failing(rows: list[str]) -> dict[str, str]:
    """The right columns that raise."""
    found: dict[str, str] = {}
    async with cb.System("original") as system:
        gpu = await system.device("cpu")
        square, rng = np.eye(4), np.random.default_rng(3)
        names = {name: gpu.put(square * factor) for name, factor in (("a", 2), ("b", 3), ("c", 4))}
        names |= {name: gpu.put(rng.random(4)) for name in "xy"}
        known = {**names, "cb": cb, "gpu": gpu, "system": system, "host": rng.random(4), "Gemm": Gemm}
        for row in rows:
            try:
                result = eval(compile(row, row, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), dict(known))
                result = await result if inspect.iscoroutine(result) else result
                await values(gpu, result)
            except Exception as e:
                found[row] = f"{type(e).__name__}: {e}"
    return found


def test_the_right_column_of_the_original_runs() -> None:
    assert len(ORIGINAL) > 45
    assert asyncio.run(failing(ORIGINAL)) == {}
    assert list(asyncio.run(failing(["gpu.zeros(4)", "gpu.allocate_f32(4)"]))) == ["gpu.allocate_f32(4)"]


# -- names -------------------------------------------------------------------------------------------------------------


def unknown_names(text: str) -> set[str]:
    """``cb.name``, ``gpu.name`` and ``gpu.library.name`` in a page that there are not."""
    found = {f"cb.{name}" for name in re.findall(r"\bcb\.(\w+)", text) if not hasattr(cb, name)}
    for path, first, second in re.findall(r"(\bgpu\.(\w+)(?:\.(\w+))?)", text):
        library = first in plugins.library_names()
        there = not second or hasattr(plugins.api_class(first), second) if library else hasattr(cb.Device, first)
        found |= set() if there else {path}
    return found


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(GUIDES.glob("*.md"))], ids=lambda page: page.stem)
def test_named_parts_of_the_api_exist(page: Path) -> None:
    assert unknown_names(page.read_text("utf-8")) == set()


def test_a_name_that_does_not_exist_is_found() -> None:
    text = "`cb.Device` `cb.Devise` `gpu.put` `gpu.pot(a)` `gpu.blas` `gpu.blas.gemm(a, b)` `gpu.blas.gem(a)`"
    assert unknown_names(text) == {"cb.Devise", "gpu.pot", "gpu.blas.gem"}
