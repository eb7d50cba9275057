"""``scripts/dev bump``: another version, everywhere it stands."""

import datetime as dt
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["bumped", "order"]

VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)((?:a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?")
PAGES = "*.md", "docs/**/*.md", "examples/**/*.md", "examples/**/*.toml"
UNRELEASED = "## [Unreleased]\n"


def bumped(root: Path, version: str, today: dt.date) -> Iterator[tuple[Path, str]]:
    """The files that name the version, and their text with the new one.

    ``pyproject.toml`` has it, the changelog gets a heading above what is unreleased, and pages may tell to install it
    (``callboard==0.1.0``). Code reads it from the installed distribution.

    Args:
        root: The repository.
        version: The new one, as pip spells it: ``0.2.0``, ``0.2.0rc1``.
        today: For the heading.

    Raises:
        ValueError: It is no version, not a later one, or the changelog has no place for it.
    """
    project = root / "pyproject.toml"
    text = project.read_text("utf-8")
    old = str(tomllib.loads(text)["project"]["version"])
    if VERSION.fullmatch(version) is None:
        raise ValueError(f"{version!r} is no version; write 0.2.0, 0.2.0rc1, 0.2.0.post1 or 0.2.0.dev1")
    if order(version) <= order(old):
        raise ValueError(f"{version} does not come after {old}, the version in pyproject.toml")
    changelog = root / "CHANGELOG.md"
    log = changelog.read_text("utf-8")
    if log.count(UNRELEASED) != 1 or f"## [{version}]" in log:
        raise ValueError(f"CHANGELOG.md needs one heading {UNRELEASED.strip()!r}, and none of {version}")
    yield (
        project,
        re.sub(rf'^version = "{re.escape(old)}"', f'version = "{version}"', text, count=1, flags=re.MULTILINE),
    )
    yield changelog, log.replace(UNRELEASED, f"{UNRELEASED}\n## [{version}] - {today.isoformat()}\n")
    named = re.compile(rf"(?<![\w-])(callboard(?:\[[\w,-]+\])?(?:==|>=|~=|-| ))v?{re.escape(old)}(?![\w.]*\d)")
    for page in sorted({path for pattern in PAGES for path in root.glob(pattern)} - {changelog}):
        before = page.read_text("utf-8")
        after = named.sub(rf"\g<1>{version}", before)
        if after != before:
            yield page, after


def order(version: str) -> tuple[float, ...]:
    """Versions in their order: dev < a < b < rc < the release < post."""
    found = VERSION.fullmatch(version)
    if found is None:
        return (-1.0,)
    *release, pre, post, dev = found.groups()
    stage = {"a": 1, "b": 2, "rc": 3}[pre.rstrip("0123456789")] if pre else 0 if dev and not post else 4
    numbers = [int(re.sub(r"\D", "", part)) if part else default for part, default in ((pre, 0), (post, -1))]
    return *map(float, release), stage, *numbers, int(dev[4:]) if dev else float("inf")
