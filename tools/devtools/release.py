"""``scripts/release``: is this tree a release? Version and changelog, sdist and wheel, each extra, the demo.

The distributions are built twice and must be the same bytes. Beside them are their checksums and, as CycloneDX, what
the wheel installs. Everything is made below ``build/release``. Nothing is published, and no tag is set.
Extras that bring wheels for GPUs are resolved and not installed; one that has no business with GPUs fails by them.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from devtools.extras import closure, environment, installed, report

__all__ = ["NOT_FOR_USERS", "checksums", "chosen", "main", "version_problems"]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "release"
MINUTES = 10.0
"""For the installation of one extra."""
STEP = 600.0
"""Seconds for a build, and for the demo."""
NOT_FOR_USERS = {"bench", "dev", "docs", "test"}


def version_problems(version: str, changelog: str, tags: Sequence[str]) -> list[str]:
    """What keeps this version from being released; empty if nothing does.

    Args:
        version: Of ``pyproject.toml``.
        changelog: The text, in the form of Keep a Changelog.
        tags: Of the repository.
    """
    sections = re.findall(r"^## \[([^\]]+)\](.*)$", changelog, re.MULTILINE)
    names = [name for name, _ in sections]
    found = [f"the tag v{version} exists: raise the version in pyproject.toml"] if f"v{version}" in tags else []
    if version not in names:
        found.append(f"CHANGELOG.md has no section for {version}: rename [Unreleased] to [{version}] - YYYY-MM-DD")
        return found
    if not re.fullmatch(r" - \d{4}-\d{2}-\d{2}", dict(sections)[version]):
        found.append(f"CHANGELOG.md: the section of {version} has no date; its heading is ## [{version}] - YYYY-MM-DD")
    before = names[: names.index(version)]
    if before not in ([], ["Unreleased"]):
        found.append(f"CHANGELOG.md: {before[-1]} is newer than {version}, the version in pyproject.toml")
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if unreleased and unreleased[1].strip():
        found.append(
            f"CHANGELOG.md: [Unreleased] is not empty; what it lists belongs to {version} or to a later version"
        )
    return found


def chosen(extras: Mapping[str, Sequence[str]], asked: str | None) -> list[str]:
    """The extras to install, by ``--extras a,b``; None: those that are for users.

    Raises:
        ValueError: There is no such extra.
    """
    if asked is None:
        return sorted(extras.keys() - NOT_FOR_USERS)
    names = [name for name in asked.split(",") if name]
    if unknown := set(names) - extras.keys():
        raise ValueError(f"no extra {', '.join(sorted(unknown))}; pyproject.toml has {', '.join(sorted(extras))}")
    return names


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, build, install, run; 1 if the version, the build, the demo or an extra fails."""
    parser = argparse.ArgumentParser("scripts/release", description="Checks that this tree can be released.")
    parser.add_argument("--extras", metavar="A,B", help="these alone; by default all for users")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"for each extra ({MINUTES:g})")
    parser.add_argument("--rehearse", action="store_true", help="go on where version and changelog do not fit yet")
    parser.add_argument(
        "--of-tag", action="store_true", help="the tag of this version exists, as where it is published"
    )
    given = parser.parse_args(arguments)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared: Mapping[str, Sequence[str]] = project["optional-dependencies"]
    try:
        extras = chosen(declared, given.extras)
    except ValueError as e:
        parser.error(str(e))
    tags = [] if given.of_tag else _tags()
    problems = version_problems(project["version"], (ROOT / "CHANGELOG.md").read_text("utf-8"), tags)
    for problem in problems:
        _say(problem)
    if problems and not given.rehearse:
        return 1
    wheel = _built(project["version"])
    failed = bool(problems)
    for extra in ("", *extras):
        needs = closure(declared, extra) if extra else []
        one = installed(FOLDER, wheel, extra, needs, given.minutes * 60 if extra else STEP, demo=not extra)
        failed |= one.problem is not None
        _say(report(one))
    return int(failed)


def _tags() -> list[str]:
    return subprocess.run(["git", "tag"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()


def checksums(folder: Path) -> str:
    """A line for each file, as ``sha256sum`` prints and checks them."""
    return "".join(f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in sorted(folder.iterdir()))


def _built(version: str) -> Path:
    """The wheel, which is built from the sdist: that has all it needs."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    python = environment(FOLDER, "build", STEP)
    dist, again = FOLDER / "dist", FOLDER / "again"
    for command in (
        ["-m", "pip", "install", "-qq", "build", "cyclonedx-bom"],
        ["-m", "build", "--outdir", str(dist), str(ROOT)],
        ["-m", "build", "--outdir", str(again), str(ROOT)],
    ):
        subprocess.run([python, *command], check=True, timeout=STEP)
    if (sums := checksums(dist)) != (other := checksums(again)):
        raise SystemExit(f"two builds of this tree differ:\n{sums}{other}")
    (FOLDER / "SHA256SUMS").write_text(sums, "utf-8")
    (wheel,) = dist.glob(f"callboard-{version}-*.whl")
    _bill(python, wheel)
    return wheel


def _bill(python: str, wheel: Path) -> None:
    """Write what the wheel installs without an extra, with versions and licences: ``callboard.cdx.json``."""
    target = environment(FOLDER, "bill", STEP)
    for command in (
        [target, "-m", "pip", "install", "-qq", str(wheel)],
        [
            python,
            "-m",
            "cyclonedx_py",
            "environment",
            "--output-reproducible",
            "-o",
            str(FOLDER / "callboard.cdx.json"),
            target,
        ],
    ):
        subprocess.run(command, check=True, timeout=STEP)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
