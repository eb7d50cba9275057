"""``docs/coverage.md``: the page is up to date, and the definition of a proof."""

from pathlib import Path
from typing import Any

import pytest

from callboard.core.op import info_of
from gpu_check import coverage
from gpu_check.groups import all_ops, groups


def run(at: str = "2026-11-20T12:00:00Z", **suites: dict[str, int]) -> dict[str, Any]:
    """A summary; suites by library."""
    probe = {"at": at, "commit": "0123456789abcdef", "dirty": False, "device": "NVIDIA H200", "driver": "580"}
    files = {f"tests/conformance/test_{name}.py": counts for name, counts in suites.items()}
    return {"name": at[:10], "probe": probe, "conformance": {"ended": {"seconds": 1.0}, **files}}


@pytest.fixture
def _dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for them takes seconds, and only one test is about them."""
    monkeypatch.setattr(coverage, "dtype_names", lambda backend: {"blas.gemm": f"{backend}-dtypes"})


def row(page: str, library: str = "blas") -> str:
    return next(line for line in page.splitlines() if line.startswith(f"| `{library}` |"))


def test_the_page_in_docs_is_up_to_date() -> None:
    found = coverage.PAGE.read_text("utf-8")
    assert found == coverage.coverage_page(coverage.stored()), "run: scripts/coverage-page --write"


@pytest.mark.usefixtures("_dtypes")
def test_a_library_without_a_run_says_so() -> None:
    page = coverage.coverage_page([])
    assert [row(page, group) for group in groups()] == [f"| `{group}` | not yet | | | | | |  |" for group in groups()]
    assert "| `blas.gemm` | cpu-dtypes | cuda-dtypes |" in page


@pytest.mark.usefixtures("_dtypes")
def test_the_newest_complete_run_without_a_failure_is_the_proof() -> None:
    old = run("2026-11-01T00:00:00Z", blas={"passed": 5}, blas_gemm={"passed": 2, "skipped": 1}, blas_lt={"passed": 9})
    told = row(coverage.coverage_page([old]))
    assert told.startswith(
        "| `blas` | NVIDIA H200 | 2026-11-01 | 0123456789 | 7 | 0 | 1 | no test executed blas.asum, "
    )
    cut = run("2026-11-02T00:00:00Z", blas={"passed": 5})
    cut["conformance"]["ended"]["timed_out"] = True
    chosen = run("2026-11-03T00:00:00Z", blas={"passed": 1})
    chosen["conformance"]["ended"]["chosen"] = ["tests/conformance/test_blas.py"]
    other = run("2026-11-04T00:00:00Z", fft={"passed": 1})
    failed = run("2026-11-05T00:00:00Z", blas={"passed": 4, "failed": 3})
    assert row(coverage.coverage_page([other, chosen, cut, old])) == told
    told_failed = row(coverage.coverage_page([failed, old]))
    assert "| 2026-11-01 |" in told_failed
    assert "| 3 failed on 2026-11-05 (0123456789); no test executed " in told_failed
    of_module = run("2026-11-07T00:00:00Z", module={"passed": 4})
    of_module["conformance"]["ended"]["chosen"] = ["tests/conformance/test_module.py"]  # that is all of them
    assert row(coverage.coverage_page([of_module]), "module").startswith("| `module` | NVIDIA H200 | 2026-11-07 ")
    mended = run("2026-11-06T00:00:00Z", blas={"passed": 7})
    assert "failed on" not in row(coverage.coverage_page([mended, failed, old]))
    assert (
        row(coverage.coverage_page([failed])) == "| `blas` | not yet | | | | | | 3 failed on 2026-11-05 (0123456789) |"
    )


@pytest.mark.usefixtures("_dtypes")
def test_a_proof_names_engines_and_ops_that_no_test_executed() -> None:
    one = run(tensor={"passed": 7})
    tensor = [info_of(op).tag.partition(".")[2] for op in all_ops() if info_of(op).library == "tensor"]
    used = dict.fromkeys(tensor, 1)
    one["libraries"] = {"tensor": {"ops": used, "engines": {"cutensor": 3, "builtin": 4}}}
    assert row(coverage.coverage_page([one]), "tensor").endswith("| by builtin 4, cutensor 3 |")
    del used["contract"]
    assert row(coverage.coverage_page([one]), "tensor").endswith("; no test executed tensor.contract |")


@pytest.mark.usefixtures("_dtypes")
def test_fault_suites_are_a_group_of_their_own() -> None:
    one = run()
    one["faults"] = {
        "ended": {},
        "tests/faults/cuda/test_kills.py": {"passed": 3},
        "tests/cli/test_demo.py": {"passed": 2},
    }
    page = coverage.coverage_page([one])
    assert "| 5 | 0 | 0 |" in row(page, "faults")
    assert "not yet" in row(page, "devices")


def test_check_says_when_the_page_is_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(coverage, "coverage_page", lambda summaries: "other")
    assert coverage.main(["--check"]) == 1


def test_ops_are_listed_once_by_tag() -> None:
    tags = [info_of(op).tag for op in all_ops()]
    assert tags == sorted(set(tags))
