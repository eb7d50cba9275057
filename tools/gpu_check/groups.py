"""The groups of a run: one of test files per library, the fault suites, and the rest ("devices")."""

from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from callboard.core import registry
from callboard.core.dtype import DType
from callboard.core.library import Library
from callboard.core.op import Op, info_of

__all__ = [
    "DEVICES",
    "FAULTS",
    "ROOT",
    "all_ops",
    "dtypes_of",
    "groups",
    "libraries",
    "library_named",
    "ops_of",
    "suite_group",
    "suites",
]

ROOT = Path(__file__).resolve().parents[2]
DEVICES = "devices"
"""Devices, residents, the command line, examples."""
FAULTS = "faults"


def libraries() -> list[str]:
    """The names of CUDA's libraries in this repository; imports none of them."""
    kernel = ROOT / "src" / "callboard" / "kernel"
    mine = {path.stem for path in kernel.iterdir()}  # others may be installed beside callboard
    return sorted(mine.intersection(registry.backend("cuda").libraries()))


def groups() -> list[str]:
    """Every group."""
    return [*libraries(), DEVICES, FAULTS]


def ops_of(backend: str) -> dict[type[Op[Any, Any]], type[Library]]:
    """What a backend executes, and by which library; imports no vendor package."""
    found = registry.backend(backend).libraries()
    return {op: library for library in found.values() for op in library.launch_table}


def all_ops() -> list[type[Op[Any, Any]]]:
    """Every op of callboard that a built-in backend executes, by tag."""
    executed = {op for backend in ("cpu", "cuda") for op in ops_of(backend)}
    found = {info_of(op).tag: op for op in executed if op.__module__.startswith("callboard.")}
    return [found[tag] for tag in sorted(found)]


def dtypes_of(op: type[Op[Any, Any]], library: type[Library]) -> list[DType]:
    """The dtypes that a library takes for the first operand of an op."""
    return library.dtypes_of(op)


def library_named(name: str, names: Collection[str]) -> str | None:
    """The library that a file name starts with, the longest of several: ``blas_lt_plans`` is of ``blas_lt``."""
    return max((one for one in names if f"{name}_".startswith(f"{one}_")), key=len, default=None)


def suite_group(path: str, names: Collection[str]) -> str:
    """The group of a test file.

    Args:
        path: Relative to the root of the repository.
        names: Of the libraries.
    """
    file = PurePosixPath(path)
    match file.parts[:-1]:
        case ("tests", "faults", *_):
            return FAULTS
        case ("tests", "conformance", *_):
            return library_named(file.stem.removeprefix("test_"), names) or DEVICES
        case ("tests", "backends", "cuda", name, *_) if name in names:
            return name
    return DEVICES


def suites(root: Path = ROOT) -> Iterator[str]:
    """Every test file."""
    for path in sorted((root / "tests").rglob("test_*.py")):
        yield path.relative_to(root).as_posix()
