import subprocess
import sys
from pathlib import Path

import pytest

from callboard.cli import bench, main


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("callboard ")


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([])
    assert end.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


def test_module_is_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "callboard", "bench", "--list"], capture_output=True, text=True, timeout=30, check=True
    )
    assert set(done.stdout.split()) >= {"actors", "copies", "idle", "ops", "recovery"}


def test_an_unknown_benchmark_names_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "nothing"]) == 2
    assert "ops" in capsys.readouterr().err


def test_arguments_are_passed_on_and_failures_returned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    program = tmp_path / "one.py"
    program.write_text(f"import sys; open({str(seen)!r}, 'w').write(' '.join(sys.argv[1:])); sys.exit(3)", "utf-8")
    monkeypatch.setattr(bench, "benchmarks", lambda: {"one": program})
    assert main(["bench", "one", "--quick", "--json", "x"]) == 3
    assert seen.read_text("utf-8") == "--quick --json x"


def test_without_a_source_tree_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench, "benchmarks", dict)
    assert main(["bench"]) == 2
    assert "source tree" in capsys.readouterr().err
