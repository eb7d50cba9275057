"""Suites affected by a change."""

import subprocess
from pathlib import Path

import pytest

from gpu_check.changed import NO_GPU, changed_since, groups_to_run, touched, users_of
from gpu_check.coverage import Proof
from gpu_check.groups import ROOT, groups, libraries, suite_group, suites

USERS: dict[str, set[str]] = {
    "blas": {"blas_lt", "solver"},
    "blas_lt": set(),
    "fft": set(),
    "solver": set(),
    "sparse": set(),
    "sparse_lt": set(),
}
EVERY_LIBRARY = set(USERS)
EVERYTHING = {*USERS, "devices", "faults"}

CASES: dict[str, set[str]] = {
    "src/callboard/kernel/fft/transform.py": {"fft"},
    "src/callboard/kernel/blas/level3.py": {"blas", "blas_lt", "solver"},
    "src/callboard/kernel/blas_lt/products.py": {"blas_lt"},
    "src/callboard/kernel/blas.py": {"blas", "blas_lt", "solver"},
    "src/callboard/kernel/views.py": EVERYTHING,
    "src/callboard/backends/cuda/fft/library.py": {"fft"},
    "src/callboard/backends/cuda/data/fft.cu": {"fft"},
    "src/callboard/backends/cuda/data/sparse_order.cu": {"sparse"},
    "src/callboard/backends/cuda/data/sparse_lt_products.cu": {"sparse_lt"},
    "src/callboard/backends/cuda/data/numbers.cuh": EVERYTHING,
    "src/callboard/backends/cuda/stream.py": EVERYTHING,
    "src/callboard/backends/cpu/fft/library.py": set(),
    "src/callboard/actors/cell.py": EVERYTHING,
    "src/callboard/core/op.py": EVERYTHING,
    "src/callboard/device/supervision/actor.py": EVERYTHING,
    "src/callboard/testing/session.py": EVERYTHING,
    "src/callboard/cli/doctor/devices.py": {"devices"},
    "src/callboard/sync.py": {"devices"},
    "tests/conformance/test_fft_many.py": {"fft"},
    "tests/conformance/test_blas_lt_scales.py": {"blas_lt"},
    "tests/conformance/test_same_bits.py": {"devices"},
    "tests/conformance/blas_lt_lab.py": {"blas_lt"},
    "tests/conformance/sessions.py": EVERY_LIBRARY,
    "tests/backends/cuda/solver/test_suite.py": {"solver"},
    "tests/backends/cuda/test_gpu.py": {"devices"},
    "tests/faults/cuda/test_kills.py": {"faults"},
    "tests/faults/strike.py": {"faults"},
    "tests/device/protocol/residents/test_cuda.py": {"devices"},
    "tests/core/test_dtype.py": set(),
    "tests/conftest.py": EVERYTHING,
    "examples/pca.py": {"devices"},
    "examples/README.md": set(),
    "docs/coverage.md": set(),
    "README.md": set(),
    "benchmarks/ops.py": set(),
    "scripts/test": set(),
    "tools/gpu_check/figures.py": set(),
    "pyproject.toml": set(),
}


@pytest.mark.parametrize("file, wanted", CASES.items())
def test_a_file_touches(file: str, wanted: set[str]) -> None:
    assert touched([file], USERS) == wanted


def test_several_files_touch_what_each_does() -> None:
    assert touched(["docs/a.md", "tests/conformance/test_fft.py", "examples/a.py"], USERS) == {"fft", "devices"}
    assert touched([], USERS) == set()


def proof(commit: str | None) -> Proof:
    return Proof("run", "GPU", "2026-11-20", commit, {"passed": 1}, {}, frozenset())


def test_each_group_is_compared_with_the_commit_of_its_own_proof() -> None:
    changes = {
        "old": ["src/callboard/kernel/fft/plans.py", "src/callboard/kernel/blas/level1.py"],
        "new": ["README.md"],
    }
    asked: list[str] = []

    def changed(commit: str) -> list[str] | None:
        asked.append(commit)
        return changes.get(commit)

    proofs = {
        "blas": proof("new"),
        "blas_lt": proof("old"),
        "fft": proof("old"),
        "solver": None,
        "sparse": proof("gone"),
        "sparse_lt": proof(None),
        "devices": proof("old"),
    }
    assert groups_to_run(proofs, USERS, changed) == ["blas_lt", "fft", "solver", "sparse", "sparse_lt"]
    assert sorted(asked) == ["gone", "new", "old"]


def test_users_are_those_that_import_its_code() -> None:
    found = users_of(libraries())
    assert set(found) == set(libraries())
    assert "tensor" in found["blas"]
    assert "blas" not in found["fft"]
    assert all(name not in users for name, users in found.items())


def test_what_git_tells(tmp_path: Path) -> None:
    def git(*command: str) -> str:
        who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        done = subprocess.run(["git", *who, *command], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init")
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text("1\n")
    git("add", ".")
    git("commit", "-m", "first")
    first = git("rev-parse", "HEAD")
    assert changed_since(first, tmp_path) == []
    (tmp_path / "a").write_text("2\n")
    git("commit", "-am", "second")
    (tmp_path / "b").unlink()
    (tmp_path / "d").write_text("new\n")
    assert changed_since(first, tmp_path) == ["a", "b", "d"]
    assert changed_since("0" * 40, tmp_path) is None


def test_every_group_has_test_files() -> None:
    assert {suite_group(file, libraries()) for file in suites()} == set(groups())


def test_folders_without_cases_for_a_gpu_have_none() -> None:
    mark = "pytest.mark." + "gpu"  # this file is in one of the folders
    assert all((ROOT / folder).is_dir() for folder in NO_GPU)
    found = [file for file in suites() if file.startswith(NO_GPU) and mark in (ROOT / file).read_text("utf-8")]
    assert found == []
