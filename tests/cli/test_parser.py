import re
import subprocess
import sys
from pathlib import Path

import pytest

from callboard.cli import main
from callboard.cli.measuring import bench
from callboard.cli.parser import COMMANDS


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("callboard ")


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    assert said.startswith("usage: callboard")
    assert "doctor" in said


def test_a_closed_output_is_one_line_and_a_failure() -> None:
    command = [sys.executable, "-c", "import os, subprocess, sys; os.close(1); os.execv(sys.executable, sys.argv[1:])"]
    done = subprocess.run(
        [*command, sys.executable, "-m", "callboard", "doctor"], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "callboard: standard output is closed; redirect it to a file or to /dev/null\n"


CLOSED = """
import os
os.close(0); os.close(2)
import sys
sys.stdin = sys.stderr = None  # as where they were closed before Python began
from callboard.cli.parts.streams import open_missing
open_missing()
print("stderr works", file=sys.stderr)
kind = [os.fstat(descriptor).st_rdev == os.stat(os.devnull).st_rdev for descriptor in (0, 2)]
print(kind, sys.stdin.read() == "")
"""


def test_closed_streams_are_the_null_device() -> None:
    done = subprocess.run([sys.executable, "-c", CLOSED], stdout=subprocess.PIPE, text=True, timeout=30, check=True)
    assert done.stdout == "[True, True] True\n"


def test_an_interrupt_of_imports_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Interrupted:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == "callboard.cli.parser":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "callboard.cli.parser")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert main(["--version"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "variable, value, says",
    [
        (
            "CALLBOARD_ISOLATION",
            "fork",
            "isolation = 'fork' (set by CALLBOARD_ISOLATION in the environment): use one of",
        ),
        ("CALLBOARD_SPIN", "-1", "spin = -1 (set by CALLBOARD_SPIN in the environment): Expected `float` >= 0.0"),
        ("CALLBOARD_REQUIRE", "gpu", "CALLBOARD_REQUIRE is 'gpu'; use 'cuda'"),
        ("CALLBOARD_TENSOR_ENGINE", "fast", "CALLBOARD_TENSOR_ENGINE is 'fast'; use 'auto' or 'cutensor' or 'builtin'"),
        ("CALLBOARD_CACHE_BYTES", "1GB", "CALLBOARD_CACHE_BYTES is '1GB'; use an integer from 0"),
        ("CALLBOARD_CPU_DEVICES", "0", "CALLBOARD_CPU_DEVICES is '0'; use an integer from 1 to 1024"),
    ],
)
def test_a_variable_that_does_not_fit_is_one_line_and_a_failure(
    variable: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, value)
    assert main(["doctor"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert says in said.err


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_an_output_without_space_is_one_line_and_a_failure() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "callboard", "bench", "--list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "callboard: the output cannot be written: No space left on device\n"


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


def test_a_command_imports_what_it_needs_and_no_other_command() -> None:
    code = """
import sys
from callboard.cli import main

try:
    main(["new-library", "--help"])
except SystemExit:
    print(sorted(name for name in sys.modules if name.startswith(("callboard.cli.", "callboard.serve"))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.splitlines()[-1] == str(
        ["callboard.cli.new_library", "callboard.cli.parser", "callboard.cli.parts", "callboard.cli.parts.streams"]
    )


def test_each_command_has_the_name_by_which_it_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert re.findall(r"^    (\S+)", capsys.readouterr().out, re.MULTILINE) == list(COMMANDS)
