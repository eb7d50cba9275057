from typing import Any

from gpu_check.results import cases_of, counts_of, uses_of


def line(case: str, outcome: str = "passed", when: str = "call", ops: tuple[str, ...] = ()) -> dict[str, Any]:
    why = {} if outcome == "passed" else {"why": f"{when} {outcome}"}
    return {"case": case, "when": when, "outcome": outcome, "seconds": 0.5, "ops": list(ops), **why}


def test_a_case_has_one_outcome_and_all_its_seconds() -> None:
    found = cases_of([line("a"), line("b", "failed"), line("c", "skipped", "setup")])
    assert found["a"] == {"outcome": "passed", "seconds": 0.5}
    assert found["b"]["why"] == "call failed"
    assert counts_of(found) == {"passed": 1, "failed": 1, "skipped": 1}


def test_a_failed_teardown_fails_its_case() -> None:
    found = cases_of([line("a"), line("a", "failed", "teardown")])
    assert found["a"] == {"outcome": "failed", "seconds": 1.0, "why": "teardown failed"}


def test_the_first_failure_is_kept() -> None:
    found = cases_of([line("a", "failed"), line("a", "failed", "teardown")])
    assert found["a"]["why"] == "call failed"


def test_the_cases_that_used_an_op_count_for_it() -> None:
    lines = [
        line("a", ops=("blas.gemm", "blas.dot")),
        line("b", "failed", ops=("blas.dot",)),
        line("c", ops=("blas.gemm", "test.own")),
        line("c", "failed", "teardown"),
    ]
    assert uses_of(lines, {"blas.gemm", "blas.dot", "blas.nrm2"}) == {
        "blas.dot": {"passed": 1, "failed": 1},
        "blas.gemm": {"passed": 1, "failed": 1},
    }


def test_an_op_is_counted_with_each_engine_that_executed_it() -> None:
    lines = [
        line("a", ops=("tensor.contract", "tensor.contract by cutensor")),
        line("b", ops=("tensor.contract", "tensor.contract by builtin")),
        line("c", "failed", ops=("tensor.contract", "tensor.contract by builtin", "test.own by builtin")),
    ]
    assert uses_of(lines, {"tensor.contract"}) == {
        "tensor.contract": {"passed": 2, "failed": 1, "engines": {"builtin": 1, "cutensor": 1}}
    }


def test_an_op_is_counted_with_each_dtype_of_its_first_operand() -> None:
    lines = [
        line("a", ops=("fft.fft", "fft.fft of c64")),
        line("b", ops=("fft.fft", "fft.fft of c64", "fft.fft of c128")),
        line("c", "skipped", ops=("fft.fft", "fft.fft of f16", "test.own of f32")),
    ]
    assert uses_of(lines, {"fft.fft"}) == {
        "fft.fft": {"passed": 2, "failed": 0, "dtypes": {"c128": 1, "c64": 2, "f16": 0}}
    }
