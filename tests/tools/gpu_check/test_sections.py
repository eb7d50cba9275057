import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu_check import sections

TEST = """
import pytest
from callboard.kernel.blas import Gemm
from callboard.testing.session import LibrarySession
import numpy as np

def test_good(monkeypatch):
    with LibrarySession("cpu") as session:
        monkeypatch.setattr(type(session.backend), "name", "cuda")
        a = session.put(np.eye(2))
        session.submit(Gemm(a=a, b=a))

def test_bad():
    assert 1 == 2, "so it is"

@pytest.mark.skip(reason="not here")
def test_skipped():
    pass
"""

CARD_TEST = """
import os
import pytest

@pytest.mark.parametrize("i", range(3))
def test_card(i):
    worker = int(os.environ["PYTEST_XDIST_WORKER"][2:])
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ["GPU-a", "GPU-b"][worker % 2]
"""

ENDLESS = 3600.0


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sections.TESTS, "conformance", "not nothing")


@pytest.mark.usefixtures("everything")
def test_cases_come_back_with_what_they_executed(tmp_path: Path) -> None:
    path = tmp_path / "test_sample.py"
    path.write_text(TEST, "utf-8")
    lines, ended = sections.test_section("conformance", 50.0, 0, [str(path)], [])
    found = {line["case"].rpartition("::")[2]: line for line in lines}
    assert ended["code"] == 1
    assert not ended["timed_out"]
    assert {name: line["outcome"] for name, line in found.items()} == {
        "test_good": "passed",
        "test_bad": "failed",
        "test_skipped": "skipped",
    }
    assert {"blas.gemm", "blas.gemm of f64"} <= set(found["test_good"]["ops"])
    assert "so it is" in found["test_bad"]["why"]
    assert "not here" in found["test_skipped"]["why"]


@pytest.fixture
def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipe: the time of a program with the limit of :data:`ENDLESS` is over when it has opened it."""
    pipe = tmp_path / "ready"
    os.mkfifo(pipe)

    class Impatient(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            if timeout != ENDLESS:
                return super().wait(timeout)
            pipe.read_bytes()  # blocks until the program has opened and closed it
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(subprocess, "Popen", Impatient)
    return pipe


@pytest.mark.slow
@pytest.mark.usefixtures("everything")
def test_a_section_that_takes_too_long_keeps_what_it_has_done(tmp_path: Path, ready: Path) -> None:
    path = tmp_path / "test_sample.py"
    second = f"def test_second():\n    open({str(ready)!r}, 'w').close()\n    threading.Event().wait()\n"
    path.write_text(f"import threading\ndef test_first(): pass\n{second}", "utf-8")
    lines, ended = sections.test_section("conformance", ENDLESS, 0, [str(path)], [])
    assert ended["timed_out"]
    assert [line["outcome"] for line in lines] == ["passed"]


def test_a_program_that_will_not_end_is_ended(monkeypatch: pytest.MonkeyPatch, ready: Path) -> None:
    monkeypatch.setattr(sections, "GRACE", 0.2)
    stubborn = (
        "import signal, threading; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"open({str(ready)!r}, 'w').close(); threading.Event().wait()"
    )
    ended = sections._run([sys.executable, "-c", stubborn], ENDLESS, sections._environment())
    assert ended["timed_out"]
    assert ended["code"] == -9


def test_benchmarks_are_merged_and_those_without_time_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    def run(command: list[str], seconds: float, environment: dict[str, str]) -> dict[str, Any]:
        out = Path(command[command.index("--json") + 1])
        out.write_text(json.dumps({"benchmark": Path(command[1]).stem}), "utf-8")
        limits.append(seconds)
        return {"code": 0, "seconds": 1.0, "timed_out": False}

    monkeypatch.setattr(sections, "_run", run)
    found = dict(sections.benchmark_section("cpu", 100.0, quick=True, only=["ops", "copies"]))
    assert {name: one["benchmark"] for name, one in found.items()} == {"ops": "ops", "copies": "copies"}
    assert [round(given) for given in limits] == [50, 100]
    late = dict(sections.benchmark_section("cpu", 0.0, quick=True, only=[]))
    assert set(late) == set(sections.BENCHMARKS)
    assert all(one["ended"]["timed_out"] for one in late.values())


def test_a_benchmark_that_does_not_fit_the_device_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def run(command: list[str], seconds: float, environment: dict[str, str]) -> dict[str, Any]:
        ran.append(" ".join(command[command.index("--hold") :]))
        return {"code": 0, "seconds": 1.0, "timed_out": False}

    monkeypatch.setattr(sections, "_run", run)
    found = dict(sections.benchmark_section("cuda", 100.0, False, ["recovery"], 79.2))
    assert ran == ["--hold 1"]
    assert found["recovery, 100 GiB held"]["left_out"].endswith("the device has 79.2 GiB")
    assert found["recovery, 100 GiB held"]["ended"]["code"] == 0
    for memory in (139.8, None):
        ran.clear()
        found = dict(sections.benchmark_section("cuda:0", 100.0, False, ["recovery"], memory))
        assert len(ran) == len(found) == 2
        assert not any("left_out" in one for one in found.values())


def test_the_probe_tells_the_memory_of_the_device() -> None:
    devices = [
        {"name": f"cuda:{i}", "detail": f"NVIDIA X, 1.5 of {n} GiB free, opened"} for i, n in enumerate((79.2, 40))
    ]
    found = {"doctor": {"backends": [{"name": "cpu"}, {"name": "cuda", "devices": devices}]}}
    assert [sections.memory_of(found, device) for device in ("cuda", "cuda:1", "cuda:2", "cpu")] == [
        79.2,
        40,
        None,
        None,
    ]


@pytest.mark.usefixtures("everything")
@pytest.mark.slow
def test_each_worker_has_one_of_several_cards(tmp_path: Path) -> None:
    path = tmp_path / "test_cards.py"
    path.write_text(CARD_TEST)
    lines, ended = sections.test_section("conformance", 50.0, 3, [str(path)], ["GPU-a", "GPU-b"])
    assert ended["code"] == 0
    assert [line["outcome"] for line in lines] == ["passed"] * 3


def test_every_benchmark_program_exists() -> None:
    for command in sections.BENCHMARKS.values():
        assert (sections.ROOT / "benchmarks" / command[0]).exists()


@pytest.mark.slow
def test_the_probe_names_device_and_commit() -> None:
    found = sections.probe("cpu", commit="abc")
    assert found["commit"] == "abc"
    assert found["device"]
    assert found["packages"]["numpy"]


def test_the_probe_tells_whether_the_tree_is_that_of_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*command: str, given: str | None = None) -> str:
        who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        done = subprocess.run(
            ["git", *who, *command], cwd=tmp_path, input=given, capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout.strip()

    def told(commit: str | None, tree: str | None = None) -> Any:
        return sections._differs(git("rev-parse", "HEAD"), commit, tree)

    monkeypatch.setattr(sections, "ROOT", tmp_path)
    git("init")
    for name in sections.FOLDERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text("1\n")
    git("add", ".")
    git("commit", "-m", "first")
    first = git("rev-parse", "HEAD")
    (tmp_path / "src" / "b.py").write_text("2\n")
    assert told(first) is False  # an untracked file of somebody's
    git("add", ".")
    git("commit", "-m", "second")
    second = git("rev-parse", "HEAD")
    tree = git("mktree", given=git("ls-tree", second, *sections.FOLDERS) + "\n")
    git("reset", "--soft", first)  # a folder that lags behind, as in a copy that was made earlier
    assert told(second) is None
    assert told(second, tree) is False
    assert told(None) is True
    (tmp_path / "tests" / "a.py").write_text("3\n")
    assert told(second, tree) is True


def test_a_missing_device_is_an_error_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"platform": {}, "packages": {}, "backends": [{"name": "quantum", "error": "no qubits"}]}
    answer = subprocess.CompletedProcess([], 0, json.dumps(found), "")
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: answer)
    with pytest.raises(sections.NoDevice, match="no device of 'quantum' can be used here: no qubits;"):
        sections.probe("quantum", None)
