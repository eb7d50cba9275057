"""``scripts/dev changed`` and ``suite``: which tests belong to a change, to a library, to a folder.

A test belongs to a source file if it lies in the folder that mirrors the file's, imports the file's module, or is a
conformance suite of the file's library or of one whose code uses that. This is the neighbourhood of a change and not
all that it may break: nearly every test runs through ``core`` and ``device``.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath

from gpu_check.changed import EVERY_TEST
from gpu_check.groups import ROOT, library_named, suites

__all__ = ["SESSIONS", "affected", "everything", "suite_command"]

SOURCE = "src/callboard/"
RULES = ["tests/test_architecture.py", "tests/test_import.py"]
"""What a change of any source can break, in two seconds."""
PAGES = ["tests/test_docs.py", "tests/test_doc_programs.py", "tests/test_guides.py", "tests/test_vocabulary.py"]
OTHERS = {
    ".ci/": ["tests/test_docs.py"],
    ".github/": ["tests/tools/devtools"],
    "ARCHITECTURE.md": PAGES,
    "CHANGELOG.md": ["tests/test_docs.py"],
    "CONTRIBUTING.md": ["tests/test_docs.py"],
    "README.md": PAGES,
    "SECURITY.md": ["tests/test_docs.py"],
    "ai-skills/": PAGES,
    "benchmarks/": ["tests/test_benchmarks.py"],
    "docs/": PAGES,
    "docs/hardware/": ["tests/tools/gpu_check"],
    "examples/": ["tests/test_examples.py", "tests/test_plugin.py"],
    "pyproject.toml": ["tests/test_docs.py", "tests/test_import.py", "tests/tools/devtools"],
    "scripts/": ["tests/test_docs.py", "tests/tools"],
    "tools/devtools/": ["tests/tools/devtools"],
    "mkdocs.yml": ["tests/tools/docsite"],
    "tools/docsite/": ["tests/tools/docsite"],
    "tools/gpu_check/": ["tests/tools/gpu_check"],
}
"""By the beginning of a path outside of ``src`` and ``tests``."""

SESSIONS = {
    "cpu": "library-cpu",
    "thread": "cpu-thread",
    "process": "cpu-process",
    "recorded": "cpu-recorded",
    "node": "cpu-node",
    "cuda": "library-cuda",
    "cuda-graph": "graph-cuda",
    "cuda-thread": "cuda-thread",
    "cuda-process": "cuda-process",
    "cuda-recorded": "cuda-recorded",
    "torch-cuda": "library-torch-cuda",
}
"""By backend, or backend and host, for the command line: the session of the conformance suites."""
STAND_IN = "stand-in"
"""CUDA's launches on doubles of driver and vendor libraries."""


def everything(files: Iterable[str]) -> bool:
    """Whether these changes belong to every test."""
    return any(file in EVERY_TEST for file in files)


def affected(files: Iterable[str], users: Mapping[str, Collection[str]], root: Path = ROOT) -> list[str]:
    """Test files and folders for changes to ``files``, without those inside of others.

    Args:
        files: Paths relative to the root of the repository; what was deleted, too.
        users: By library: those that use its code.
        root: Of the repository.
    """
    found = {test for file in files for test in _tests_of(file, users, root) if (root / test).exists()}
    return sorted(test for test in found if not any(str(folder) in found for folder in PurePosixPath(test).parents))


def _tests_of(file: str, users: Mapping[str, Collection[str]], root: Path) -> Iterator[str]:
    path = PurePosixPath(file)
    if file.startswith("tests/"):
        helper = not path.name.startswith("test_") and path.suffix == ".py"
        yield from _importers(".".join(path.with_suffix("").parts), root) if helper else [file]
    elif file.startswith(SOURCE):
        yield from RULES
        yield from _tests_of_source(PurePosixPath(file.removeprefix(SOURCE)), users, root)
    else:
        for start, tests in OTHERS.items():
            if file.startswith(start):
                yield from tests


def _tests_of_source(path: PurePosixPath, users: Mapping[str, Collection[str]], root: Path) -> Iterator[str]:
    module = ("callboard", *path.with_suffix("").parts)
    yield from _importers(".".join(part for part in module if part != "__init__"), root)
    if len(path.parts) == 1:
        name = "sync" if path.stem.startswith("_b") else path.stem  # what is behind cb.sync begins with _b
        yield from (f"tests/{test.name}" for test in (root / "tests").glob(f"test_{name.strip('_')}*.py"))
        return
    mirrored = PurePosixPath("tests", *path.parent.parts)
    while not (root / mirrored).is_dir():
        mirrored = mirrored.parent
    if len(mirrored.parts) > 1 + (path.parts[0] in ("backends", "kernel")):
        yield str(mirrored)
    if path.parts[0] == "kernel" or path.parts[0] == "backends":
        part = path.parts[1 if path.parts[0] == "kernel" else min(2, len(path.parts) - 1)]
        library = library_named(part.partition(".")[0], users)
        for name in [] if library is None else [library, *users[library]]:
            yield from _conformance(name, users, root)


def _conformance(library: str, names: Collection[str], root: Path) -> Iterator[str]:
    for path in (root / "tests" / "conformance").glob("test_*.py"):
        if library_named(path.stem.removeprefix("test_"), names) == library:
            yield f"tests/conformance/{path.name}"


def _importers(module: str, root: Path) -> Iterator[str]:
    """The test files that import a module, or names of it."""
    parent, _, name = module.rpartition(".")
    whole = re.compile(
        rf"^\s*(?:import {re.escape(module)}\b|from {re.escape(module)} import |"
        rf"from {re.escape(parent)} import .*\b{re.escape(name)}\b)",
        re.MULTILINE,
    )
    for test in suites(root):
        if whole.search(_text(root / test)):
            yield test


@cache
def _text(path: Path) -> str:
    return path.read_text("utf-8")


def suite_command(name: str, backend: str | None, names: Collection[str], root: Path = ROOT) -> list[str]:
    """The arguments of pytest for one suite.

    Args:
        name: A library, a folder of ``tests`` or a test file.
        backend: A key of :data:`SESSIONS` or ``stand-in``, for a library; None: the CPU.
        names: Of the libraries.
        root: Of the repository.

    Raises:
        ValueError: There is no such suite, or it has no backends.
    """
    if name in names:
        if backend == STAND_IN:
            folder = root / "tests" / "backends" / "cuda" / name
            if not folder.is_dir():
                raise ValueError(f"{name} has no tests on the stand-ins: there is no tests/backends/cuda/{name}")
            return [f"tests/backends/cuda/{name}"]
        return [*sorted(_conformance(name, names, root)), "-k", SESSIONS[backend or "cpu"]]
    found = [path for path in (name, f"tests/{name}", f"tests/{name}.py") if (root / path).exists()]
    if not found:
        raise ValueError(f"no suite {name!r}; give a library ({', '.join(sorted(names))}), or a path below tests/")
    if backend is not None:
        raise ValueError(f"{found[0]} chooses its backends itself; --backend is for a library, such as blas")
    return [found[0]]
