from typing import Any

import pytest

from callboard.testing.gpu_check import coverage
from callboard.testing.gpu_check.sources import op_sources


def run(source: str, passed: int = 1, failed: int = 0, at: str = "2026-11-20T12:00:00Z") -> dict[str, Any]:
    probe = {"at": at, "commit": "0123456789abcdef", "dirty": False, "device": "NVIDIA H200", "driver": "580"}
    ops = {"blas.gemm": {"source": source, "passed": passed, "failed": failed}}
    return {"probe": probe, "ops": ops, "counts": {"passed": passed, "failed": failed}}


def row(page: str) -> str:
    return next(line for line in page.splitlines() if line.startswith("| `blas.gemm` |")).split("|")[4].strip()


@pytest.fixture(scope="module")
def source() -> str:
    return op_sources("cuda")["blas.gemm"]


def test_the_page_in_docs_is_up_to_date() -> None:
    page = coverage.coverage_page(coverage.hardware_runs())
    found = coverage.PAGE.read_text("utf-8")
    assert found == page, "run: python -m callboard.testing.gpu_check.coverage --write"


def test_a_matching_proof_names_gpu_day_and_commit(source: str) -> None:
    assert row(coverage.coverage_page([run(source)])) == "NVIDIA H200, 2026-11-20 (0123456789)"


def test_an_older_source_is_last_proven(source: str) -> None:
    old, new = run("other"), run(source, at="2026-11-01T00:00:00Z")
    assert row(coverage.coverage_page([old])) == "last proven: NVIDIA H200, 2026-11-20 (0123456789)"
    assert row(coverage.coverage_page([old, new])) == "NVIDIA H200, 2026-11-01 (0123456789)"


@pytest.mark.parametrize("passed, failed", [(3, 1), (0, 2)])
def test_a_failure_is_said_even_where_an_older_run_passed(source: str, passed: int, failed: int) -> None:
    broken, older = run(source, passed, failed), run(source, at="2026-11-01T00:00:00Z")
    said = "failed: NVIDIA H200, 2026-11-20 (0123456789)"
    assert row(coverage.coverage_page([broken])) == said
    assert row(coverage.coverage_page([broken, older])) == said


def test_a_newer_run_that_passes_proves(source: str) -> None:
    broken, mended = run(source, 3, 1, at="2026-11-01T00:00:00Z"), run(source)
    assert row(coverage.coverage_page([mended, broken])) == "NVIDIA H200, 2026-11-20 (0123456789)"


def test_a_failure_of_another_source_is_not_this_ones(source: str) -> None:
    broken, proof = run("other", 3, 1), run(source, at="2026-11-01T00:00:00Z")
    assert row(coverage.coverage_page([broken, proof])) == "NVIDIA H200, 2026-11-01 (0123456789)"
    assert row(coverage.coverage_page([broken])) == "not yet"


def test_nothing_proves_nothing(source: str) -> None:
    assert row(coverage.coverage_page([run(source, 0, 0)])) == "not yet"


def test_a_test_that_ended_with_its_process_counts_against_its_library(source: str) -> None:
    found = run(source)
    found["ops"]["blas_lt.matmul"] = {"source": "other", "passed": 1, "failed": 0}
    crash = {"outcome": "failed", "seconds": 0.0, "why": "worker 'gw1' crashed while running 'test'"}
    for file, proven in (("blas_lt_plans", True), ("blas_gemm", False)):
        found["cases"] = {f"tests/conformance/test_{file}.py::test_any[cuda]": crash}
        assert row(coverage.coverage_page([found])).startswith("failed:") != proven


def test_a_proof_names_the_engines(source: str) -> None:
    found = run(source)
    found["ops"]["blas.gemm"]["engines"] = {"cutensor": 3, "builtin": 1, "other": 0}
    expected = "NVIDIA H200, 2026-11-20 (0123456789), by builtin and by cutensor"
    assert row(coverage.coverage_page([found])) == expected


def test_a_proof_names_the_dtypes_that_no_passing_test_used(source: str) -> None:
    found, where = run(source), "NVIDIA H200, 2026-11-20 (0123456789)"
    tried = found["ops"]["blas.gemm"]["dtypes"] = dict.fromkeys(("f16", "bf16", "f32", "f64", "c64", "c128", "i8"), 1)
    assert row(coverage.coverage_page([found])) == where
    tried["bf16"] = 0
    del tried["i8"]
    assert row(coverage.coverage_page([found])) == f"{where}, not with bf16 i8"
    newer = run(source, 7, 0)
    newer["ops"]["blas.gemm"]["dtypes"] = {"i8": 1}
    assert row(coverage.coverage_page([newer, found])) == f"{where}, not with bf16"


def test_runs_are_listed_with_their_counts(source: str) -> None:
    page = coverage.coverage_page([run(source, 7, 2)])
    assert "| NVIDIA H200 | 2026-11-20 | 0123456789 | 580 | 7 | 2 | 0 |" in page
    assert "None yet." not in page


def test_check_says_when_the_page_is_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(coverage, "PAGE", coverage.ROOT / "docs" / "no-such-page.md")
    assert coverage.main(["--check"]) == 1
