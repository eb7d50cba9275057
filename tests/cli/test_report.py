"""``callboard doctor --report``: what is in the file, and what is not."""

import json
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from callboard.cli import main
from callboard.cli.doctor import command, reporting
from callboard.cli.doctor.findings import BackendFinding, Finding, Findings
from callboard.cli.doctor.reporting import Cleaner, report_of, write_report
from callboard.telemetry.sampling.snapshot import LossFigures

PLANTED = "hunter2-not-for-you"
ENVIRON = {
    "HOME": "/srv/people/ada",
    "CALLBOARD_NODE_TOKEN": PLANTED,
    "CALLBOARD_CACHE_DIR": "/srv/people/ada/cache",
    "CALLBOARD_ISOLATION": "process",
    "AWS_SECRET_ACCESS_KEY": "AKIA/very+secret",
    "EDITOR": "vi",
}
SAID = (
    f"cannot open /srv/people/ada/models/x.npz as ada on forge.lab: token {PLANTED}; password=swordfish "
    "Authorization: Bearer abc.def.ghi redis://ada:pw@db:6379 /home/bob/w AKIA/very+secret at 10.1.2.3:9 and 127.0.0.1"
)


def found(detail: str = SAID) -> Findings:
    return Findings(
        platform={"system": "Linux", "machine": "x86_64", "python": "3.11", "executable": "/srv/people/ada/bin/python"},
        packages={"callboard": "1.0", "torch": None},
        driver=Finding(name="NVIDIA driver", error="not there"),
        backends=[BackendFinding(name="cpu", error=detail)],
        limits=[],
    )


def cleaner() -> Cleaner:
    return Cleaner(ENVIRON, user="ada", host="forge.lab")


def test_planted_secrets_and_names_are_not_in_the_report() -> None:
    text = report_of(found(), ENVIRON, cleaner()).decode()
    for planted in (PLANTED, "swordfish", "abc.def", "ada", "bob", "forge", "very+secret", "pw@", "10.1.2.3", "EDITOR"):
        assert planted not in text, planted
    report = json.loads(text)
    assert report["settings"] == {
        "CALLBOARD_CACHE_DIR": "~/cache",
        "CALLBOARD_ISOLATION": "process",
        "CALLBOARD_NODE_TOKEN": "<hidden>",
    }
    assert report["findings"]["packages"] == {"callboard": "1.0", "torch": None}
    error = report["findings"]["backends"][0]["error"]
    assert error.startswith("cannot open ~/models/x.npz as <user> on <host>: token <hidden>")
    assert "127.0.0.1" in error


@pytest.mark.parametrize(
    "text", ["adapter of 3 adapters", "cpu:0 took 1.2.3", "blas.gemm (train/step-7)", "cuBLAS 13.0.2.14"]
)
def test_what_only_resembles_them_stays(text: str) -> None:
    assert cleaner().text(text) == text


def test_the_file_is_the_users_own_and_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")
    path.chmod(0o644)
    write_report(path, found("fine"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text("utf-8"))["findings"]["backends"][0]["error"] == "fine"
    assert list(tmp_path.iterdir()) == [path]


def test_the_command_writes_it_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "examine", lambda isolation: found("fine"))
    assert main(["doctor", "--report", str(tmp_path / "r.json")]) == 0
    assert "read it before you send it" in capsys.readouterr().err
    assert main(["doctor", "--report", str(tmp_path / "no" / "r.json")]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_losses_of_an_observed_application_are_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loss = LossFigures(1.0, 1, "HostCrashed", "signal 9", 3, ["blas.gemm (/user/ada)"])
    figures = dict.fromkeys(("backend", "isolation", "state", "generation", "losses", "completed", "failed"), 1)
    snapshot = SimpleNamespace(system="app", devices=[SimpleNamespace(name="cpu:0", last_loss=loss, **figures)])
    monkeypatch.setattr(reporting, "installed", lambda: [SimpleNamespace(sample=lambda: snapshot)])
    report = json.loads(report_of(found("fine"), ENVIRON, cleaner()))
    (application,) = [each for each in report["applications"] if each["system"] == "app"]
    assert application["devices"][0]["last_loss"]["suspects"] == ["blas.gemm (/user/<user>)"]
