"""``scripts/dev``: the tests beside a change, and the commands of a dry run."""

from pathlib import Path

import pytest

from devtools.__main__ import main
from devtools.selection import OTHERS, RULES, SESSIONS, affected, everything, suite_command
from gpu_check.groups import ROOT

USERS: dict[str, set[str]] = {"blas": {"blas_lt", "solver"}, "blas_lt": set(), "fft": set(), "solver": set()}

# a changed file: tests that it brings, and tests that it does not bring
CASES: dict[str, tuple[set[str], set[str]]] = {
    "src/callboard/patterns/cascade/policy.py": ({"tests/patterns", *RULES}, {"tests/serve"}),
    "src/callboard/device/client/line/port.py": ({"tests/device/client/line"}, {"tests/device/host", "tests/patterns"}),
    "src/callboard/kernel/fft/transform.py": (
        {"tests/kernel/fft", "tests/conformance/test_fft.py"},
        {"tests/kernel", "tests/conformance/test_blas.py"},
    ),
    "src/callboard/backends/cpu/blas/level1.py": (
        {"tests/conformance/test_blas.py", "tests/conformance/test_blas_lt.py", "tests/conformance/test_solver.py"},
        {"tests/conformance/test_fft.py", "tests/backends"},
    ),
    "src/callboard/backends/cuda/blas/library.py": ({"tests/backends/cuda/blas"}, {"tests/backends/cuda"}),
    "src/callboard/_blocking_device.py": ({"tests/test_sync.py", "tests/test_sync_room.py"}, {"tests/test_system.py"}),
    "src/callboard/multi_device/replay/recorder.py": ({"tests/multi_device/replay"}, {"tests/multi_device"}),
    "tests/core/test_dtype.py": ({"tests/core/test_dtype.py"}, set(RULES)),
    "tests/conformance/sessions.py": (set(), {"tests/core/test_dtype.py"}),
    "docs/guides/errors.md": ({"tests/test_docs.py", "tests/test_guides.py"}, set(RULES)),
    "tools/devtools/selection.py": ({"tests/tools/devtools"}, {"tests/tools/gpu_check"}),
    "LICENSE": (set(), set(RULES)),
}


@pytest.mark.parametrize("file", CASES)
def test_the_tests_beside_a_file(file: str) -> None:
    brought, not_brought = CASES[file]
    found = set(affected([file], USERS, ROOT))
    assert brought <= found
    assert found.isdisjoint(not_brought)


def test_whoever_imports_what_changed_is_run() -> None:
    found = affected(["src/callboard/core/dtype.py"], USERS, ROOT)
    assert {"tests/core", "tests/kernel/test_api.py"} <= set(found)
    assert "tests/core/test_dtype.py" not in found, "it is inside of a folder that is run"


def test_a_helper_of_tests_brings_the_tests_that_import_it() -> None:
    assert "tests/test_sync_typing.py" in affected(["tests/checkers.py"], USERS, ROOT)


def test_files_that_were_deleted_are_not_run(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    assert affected(["tests/core/test_gone.py"], USERS, tmp_path) == []


def test_some_changes_belong_to_every_test() -> None:
    assert everything(["README.md", "tests/conftest.py"])
    assert not everything(["README.md"])


def test_what_the_table_names_exists() -> None:
    named = {*OTHERS, *(test for tests in OTHERS.values() for test in tests), *RULES}
    assert [name for name in named if not (ROOT / name).exists()] == []


# -- one suite ---------------------------------------------------------------------------------------------------------


def test_a_library_on_a_backend() -> None:
    *files, option, session = suite_command("blas", "process", USERS)
    assert "tests/conformance/test_blas.py" in files
    assert "tests/conformance/test_blas_lt.py" not in files
    assert (option, session) == ("-k", "cpu-process")
    assert suite_command("blas", None, USERS)[-1] == "library-cpu"
    assert suite_command("blas", "stand-in", USERS) == ["tests/backends/cuda/blas"]


def test_every_session_has_a_name() -> None:
    text = (ROOT / "tests" / "conformance" / "sessions.py").read_text("utf-8")
    assert [session for session in SESSIONS.values() if f'id="{session}"' not in text] == []
    assert text.count('id="') == len(SESSIONS)


def test_a_folder_or_a_file_is_a_suite_without_backends() -> None:
    assert suite_command("device", None, USERS) == ["tests/device"]
    assert suite_command("test_sync", None, USERS) == ["tests/test_sync.py"]
    with pytest.raises(ValueError, match="tests/device chooses its backends itself"):
        suite_command("device", "cpu", USERS)
    with pytest.raises(ValueError, match="no suite 'harbour'; give a library"):
        suite_command("harbour", None, USERS)


# -- dry runs ----------------------------------------------------------------------------------------------------------


def test_generate_lists_every_generator_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    said = ["callboard api", "callboard_image", "blocking-twin", "devtools.template", "xp-stub", "coverage-", "figures"]
    places = [next(i for i, line in enumerate(lines) if word in line) for word in said]
    assert places == sorted(places)
    assert "callboard.kernel.blas " in lines[places[0]]


def test_generate_takes_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "xp", "--dry-run"]) == 0
    assert capsys.readouterr().out == "python scripts/xp-stub\n"
    assert main(["generate", "xq", "--dry-run"]) == 2
    assert "nothing is generated by the name xq; known: api, blocking" in capsys.readouterr().err


def test_changed_and_suite_print_what_they_would_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suite", "fft", "--backend", "thread", "--dry-run", "-x"]) == 0
    assert capsys.readouterr().out.endswith("-k cpu-thread -x\n")
    assert main(["changed", "--since", "no-such-commit", "--dry-run"]) == 2
    assert "no common ancestor with 'no-such-commit'" in capsys.readouterr().err
