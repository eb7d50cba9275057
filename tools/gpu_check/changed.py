"""The groups affected by a change: ``scripts/gpu-check --changed`` runs only these.

A library is touched by its messages, its CUDA code and its tests, and by those of the libraries whose code it imports;
the envelope of every op (``core``, ``device``, the CUDA device) touches all groups. Documents, benchmarks, scripts and
the CPU backend touch none.
"""

import re
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from gpu_check.coverage import Proof
from gpu_check.groups import DEVICES, FAULTS, ROOT, library_named, suite_group

__all__ = ["changed_since", "groups_to_run", "touched", "users_of"]

SOURCE = "src/callboard/"
EVERY_OP = ("actors", "core", "device", "kernel", "testing")
"""Packages that every op runs through; in ``kernel``, what belongs to no library."""
EVERY_TEST = ("tests/conftest.py", "tests/early.py", "tests/gpu_cases.py")
NO_GPU = tuple(f"tests/{name}/" for name in ("actors", "backends/cpu", "core", "data", "kernel", "testing", "tools"))
"""Tests without cases for a GPU."""


def touched(files: Iterable[str], users: Mapping[str, Collection[str]]) -> set[str]:
    """The groups to run again after changes to these files.

    Args:
        files: Paths relative to the root of the repository.
        users: By library: those that use its code; the keys are all libraries.
    """
    found: set[str] = set()
    for file in files:
        found |= _touched(file, users)
    return found


def _touched(file: str, users: Mapping[str, Collection[str]]) -> set[str]:
    everything = {*users, DEVICES, FAULTS}
    if file in EVERY_TEST:
        return everything
    if file.startswith("tests/"):
        return set() if file.startswith(NO_GPU) else _touched_by_test(file, users)
    if file.startswith("examples/") and file.endswith(".py"):
        return {DEVICES}
    if not file.startswith(SOURCE):
        return set()
    match file.removeprefix(SOURCE).split("/"):
        case ["backends", "cuda", "data", name]:
            library = library_named(name.partition(".")[0], users)
            return everything if library is None else {library, *users[library]}
        case ["backends", "cuda", name, *_] | ["kernel", name, *_] if name.removesuffix(".py") in users:
            library = name.removesuffix(".py")
            return {library, *users[library]}
        case ["backends", "cuda", *_]:
            return everything
        case ["backends", *_]:
            return set()
        case [name, *_] if name in EVERY_OP:
            return everything
    return {DEVICES}


def _touched_by_test(file: str, users: Mapping[str, Collection[str]]) -> set[str]:
    path = Path(file)
    if path.name.startswith("test_"):
        return {suite_group(file, users)}
    if path.parts[1] == "conformance":  # blas_lab.py, or what all suites share
        library = library_named(path.stem.removesuffix("_lab"), users)
        return set(users) if library is None else {library}
    return {FAULTS} if path.parts[1] == "faults" else {DEVICES}


def users_of(names: Sequence[str], root: Path = ROOT) -> dict[str, set[str]]:
    """By library: those whose messages or CUDA code import its code, directly or through others."""
    imports = {name: _imports(root, name) & set(names) - {name} for name in names}
    users = {name: {other for other in names if name in imports[other]} for name in names}
    grown = True
    while grown:
        wider = {name: found.union(*(users[one] for one in found)) for name, found in users.items()}
        grown, users = wider != users, wider
    return users


def _imports(root: Path, name: str) -> set[str]:
    found: set[str] = set()
    for folder in ("kernel", "backends/cuda"):
        place = root / SOURCE / folder / name
        for path in [place.with_suffix(".py"), *place.rglob("*.py")]:
            if path.exists():
                found.update(re.findall(r"callboard\.(?:kernel|backends\.cuda)\.(\w+)", path.read_text("utf-8")))
    return found


def groups_to_run(
    proofs: Mapping[str, Proof | None],
    users: Mapping[str, Collection[str]],
    changed: Callable[[str], Sequence[str] | None],
) -> list[str]:
    """The groups that were never proven, or are touched by what changed since they were.

    Args:
        proofs: The last of each group.
        users: See :func:`touched`.
        changed: The files that differ from a commit, None if it is unknown here.
    """
    differences: dict[str, Sequence[str] | None] = {}

    def stale(group: str, proof: Proof | None) -> bool:
        commit = None if proof is None else proof.commit
        if commit is None:
            return True
        if commit not in differences:
            differences[commit] = changed(commit)
        files = differences[commit]
        return files is None or group in touched(files, users)

    return [group for group, proof in proofs.items() if stale(group, proof)]


def changed_since(commit: str, root: Path = ROOT) -> list[str] | None:
    """The files that differ from a commit, uncommitted and new ones included; None if git does not know it."""
    tracked = _git(root, "diff", "--name-only", "--no-renames", commit, "--")
    new = _git(root, "ls-files", "--others", "--exclude-standard")
    return None if tracked is None or new is None else sorted({*tracked, *new})


def _git(root: Path, *command: str) -> list[str] | None:
    try:
        done = subprocess.run(["git", *command], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.splitlines()
