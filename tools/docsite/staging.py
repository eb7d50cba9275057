"""The pages of the site: those of ``docs/`` and a few from beside it, with links that fit their places there.

A builder of sites takes one folder of pages. Ours are where a reader of the repository expects them, so that links work
there, too.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PAGES", "changed", "place", "repository_pages", "stage"]

PAGES = {
    "README.md": "overview.md",
    "ARCHITECTURE.md": "contributing/architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing/index.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "examples/index.md",
    "examples/deploy/README.md": "examples/deploy.md",
    "examples/plugin/README.md": "examples/plugin.md",
    "examples/data/ATTRIBUTION.md": "examples/attribution.md",
    "ai-skills/README.md": "skills.md",
}
"""Pages that are not in ``docs/``, and their places in the site."""

NOT_STAGED = "docs/gallery/"
LINK = re.compile(
    r"(?P<fence>^(?P<ticks>```+).*?^(?P=ticks)$)"
    r"|(?P<code>(?P<tick>`+)(?!`)(?:(?!\n\n).)+?(?<!`)(?P=tick)(?!`))"
    r"|\]\((?P<target>[^)\s]+)\)",
    re.MULTILINE | re.DOTALL,
)
"""Inline links; code is matched first, so that what looks like a link there is none."""


def links(text: str) -> Iterator[str]:
    """Targets of the inline links of a page, those in code left out."""
    for found in LINK.finditer(text):
        if target := found["target"]:
            yield target


def repository_pages(root: Path) -> dict[str, str]:
    """All pages: path in the repository, and in the site."""
    found = {path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md")}
    return {path: place(path) for path in sorted({*found, *(name for name in PAGES if (root / name).exists())})}


def place(path: str) -> str:
    """Where a file of the repository is in the site."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("ai-skills/") and path.endswith("/SKILL.md"):
        return f"skills/{path.split('/')[1]}.md"
    if re.fullmatch(r"examples/[a-z]\w*\.py", path):
        return path.removesuffix(".py") + ".md"
    return f"source/{path}"


def changed(text: str, page: str, root: Path, linked: set[str] | None = None) -> str:
    """A page's text with the links of the site; `linked` collects files that are to be copied there."""
    here = Path(place(page)).parent

    def replaced(found: re.Match[str]) -> str:
        target = found["target"]
        if target is None or re.match(r"[a-z]+:|#", target):
            return found[0]
        file, _, anchor = target.partition("#")
        path = os.path.normpath(Path(page).parent / file)
        if (root / path).is_dir():
            return "](#)"
        where = place(path)
        if linked is not None and where.startswith("source/"):
            linked.add(path)
        return f"]({os.path.relpath(where, here)}{'#' + anchor if anchor else ''})"

    return LINK.sub(replaced, text)


def stage(root: Path, folder: Path) -> None:
    """Write all pages, and the files that they name, into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = repository_pages(root)
    skills = sorted((root / "ai-skills").glob("*/SKILL.md"))
    pages |= {path.relative_to(root).as_posix(): place(path.relative_to(root).as_posix()) for path in skills}
    linked: set[str] = set()
    for page, where in pages.items():
        file = folder / where
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(changed((root / page).read_text("utf-8"), page, root, linked), "utf-8")
    others = {path.relative_to(root).as_posix() for path in (root / "docs").rglob("*") if path.is_file()}
    for path in sorted((others | linked) - pages.keys()):
        if not path.startswith(NOT_STAGED):
            (folder / place(path)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / path, folder / place(path))
