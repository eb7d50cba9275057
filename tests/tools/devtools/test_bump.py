"""``scripts/dev bump``: on a copy of the files that name the version."""

import datetime as dt
import shutil
import tomllib
from pathlib import Path

import pytest

from devtools.__main__ import main
from devtools.bump import bumped, order
from devtools.release import version_problems

ROOT = Path(__file__).parents[3]
PAGE = "pip install 'callboard[cuda13]=={0}'; numpy {1}; my-callboard {1}; callboard {0}; callboard {1}.5\n"
TODAY = dt.date(2027, 1, 2)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("pyproject.toml", "CHANGELOG.md", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "docs").mkdir()
    old = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    text = (
        f"pip install 'callboard[cuda13]=={old}'; numpy {old}; my-callboard {old}; callboard {old}; callboard {old}.5\n"
    )
    (tmp_path / "docs" / "page.md").write_text(text, "utf-8")
    return tmp_path


def test_the_version_changes_everywhere_it_stands(copy: Path) -> None:
    old = tomllib.loads((copy / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    for path, text in bumped(copy, "7.2.0", TODAY):
        path.write_text(text, "utf-8")
    project = tomllib.loads((copy / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == "7.2.0"
    assert version_problems("7.2.0", (copy / "CHANGELOG.md").read_text("utf-8"), []) == []  # scripts/release accepts it
    assert "## [Unreleased]\n\n## [7.2.0] - 2027-01-02\n" in (copy / "CHANGELOG.md").read_text("utf-8")
    page = (copy / "docs" / "page.md").read_text("utf-8")
    assert page == PAGE.format("7.2.0", old)
    assert (copy / "README.md").read_text("utf-8") == (ROOT / "README.md").read_text("utf-8").replace(
        f"callboard {old}", "callboard 7.2.0"
    )


@pytest.mark.parametrize(
    "version, says",
    [("7", "no version"), ("7.2.0-beta", "no version"), ("0.0.1", "does not come after"), ("same", "no version")],
)
def test_what_is_refused(copy: Path, version: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        list(bumped(copy, version, TODAY))


def test_a_changelog_that_has_the_version_is_refused(copy: Path) -> None:
    log = copy / "CHANGELOG.md"
    log.write_text(log.read_text("utf-8") + "\n## [7.2.0] - 2027-01-01\n", "utf-8")
    with pytest.raises(ValueError, match=r"none of 7\.2\.0"):
        list(bumped(copy, "7.2.0", TODAY))


def test_the_order_of_versions() -> None:
    versions = ["0.1.0.dev1", "0.1.0a1", "0.1.0b2", "0.1.0rc1", "0.1.0rc2", "0.1.0", "0.1.0.post1", "0.2.0"]
    assert sorted(versions, key=order) == versions


def test_the_command_says_what_it_would_change(capsys: pytest.CaptureFixture[str]) -> None:
    before = (ROOT / "pyproject.toml").read_text("utf-8")
    assert main(["bump", "99.0.0", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["pyproject.toml", "CHANGELOG.md"]
    assert (ROOT / "pyproject.toml").read_text("utf-8") == before
    assert main(["bump", "0.0.1", "--dry-run"]) == 2
    assert "0.0.1 does not come after" in capsys.readouterr().err
