"""``scripts/docs``: writes the pages of the site and starts the builder."""

import argparse
import subprocess
import sys
from pathlib import Path

from docsite.gallery import record, write_gallery
from docsite.reference import write_reference
from docsite.staging import stage
from docsite.terminal import survival

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "docs"
"""The ``docs_dir`` of mkdocs.yml."""


def write_pages() -> None:
    """Write all pages into `FOLDER`, and the picture of the start page beside the pages of the repository."""
    picture = survival((ROOT / "docs" / "index.md").read_text("utf-8"))
    (ROOT / "docs" / "images" / "survive.svg").write_text(picture, "utf-8")
    stage(ROOT, FOLDER)
    write_gallery(ROOT, FOLDER / "examples")
    write_reference(ROOT, FOLDER / "reference")


def main() -> int:
    """Run the command; the exit status of the builder."""
    parser = argparse.ArgumentParser("scripts/docs", description="Build the site of the documentation into site/.")
    parser.add_argument("--serve", action="store_true", help="and show it at http://localhost:8000")
    parser.add_argument("--pages", action="store_true", help="only write the pages, into build/docs")
    parser.add_argument("--builder", choices=("zensical", "mkdocs"), default="zensical", help="both read mkdocs.yml")
    parser.add_argument(
        "--record", nargs="*", metavar="EXAMPLE", help="run examples, all by default, and keep what they print"
    )
    given = parser.parse_args()
    if given.record is not None:
        return bool(record(ROOT, given.record))
    write_pages()
    if given.pages:
        return 0
    command = [sys.executable, "-m", given.builder, "serve" if given.serve else "build"]
    return subprocess.run(command if given.serve else [*command, "--strict"], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
