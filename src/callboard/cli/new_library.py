"""``callboard new-library``: a library of one's own, with the example's op, to be changed.

The files are those of ``examples/plugin`` under another name; ``scripts/dev generate template`` puts them into the
package.
"""

import argparse
import json
import keyword
import re
import sys
from pathlib import Path

from callboard.core import plugins

__all__ = ["add_new_library", "new_library"]

EXAMPLE = "image"


def add_new_library(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "new-library",
        help="write the template of a library in a distribution of its own",
        description="Writes callboard-NAME: a message, its plans for the CPU and CUDA, the entry points that make it "
        "device.NAME, and tests that pass. Its op is that of examples/plugin; put yours in its place.",
    )
    parser.add_argument("name", metavar="NAME", help="the library's name: device.NAME")
    parser.add_argument("--into", type=Path, default=Path(), metavar="FOLDER", help="where callboard-NAME is written")
    parser.set_defaults(run=_run)


def _run(given: argparse.Namespace) -> int:
    try:
        folder = new_library(given.name, given.into)
    except (ValueError, FileExistsError) as e:
        print(f"callboard: {e}", file=sys.stderr)
        return 2
    print(f"{folder}: pip install -e {folder}, then pytest {folder}")
    return 0


def new_library(name: str, into: Path) -> Path:
    """Write the template and return its folder.

    Args:
        name: Name of the library.
        into: The folder for the folder.

    Raises:
        ValueError: The name is no identifier in lower case, or that of a built-in library.
        FileExistsError: The folder exists.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ValueError(f"name is {name!r}; a library's name is an identifier in lower case, such as 'image'")
    if name in plugins.BUILT_IN:
        raise ValueError(f"name is {name!r}, a library of callboard; choose one beside {', '.join(plugins.BUILT_IN)}")
    folder = into / f"callboard-{name.replace('_', '-')}"
    if folder.exists():
        raise FileExistsError(f"{folder} exists; choose another name, or another folder with --into")
    for path, text in _files().items():
        target = folder / _renamed(path, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_renamed(text, name), "utf-8")
    return folder


def _files() -> dict[str, str]:
    """The text of each file of the example, by its path."""
    files: dict[str, str] = json.loads((Path(__file__).parent / "data" / "new_library.json").read_text("utf-8"))
    return files


def _renamed(text: str, name: str) -> str:
    """The text with the library's name in the place of the example's; the op and its operands keep theirs."""
    camel = "".join(part.title() for part in name.split("_"))
    text = text.replace("./examples/plugin", f"./callboard-{name.replace('_', '-')}")
    text = text.replace("callboard-image", f"callboard-{name.replace('_', '-')}")
    text = re.sub(r"callboard_image|test_image", lambda found: found[0].replace(EXAMPLE, name), text)
    text = re.sub(r"\b(Cpu|Cuda)?Image(Actor|Api)?\b", lambda found: f"{found[1] or ''}{camel}{found[2] or ''}", text)
    text = re.sub(r"\b(device|dev|gpu)\.image\b", rf"\1.{name}", text)
    text = text.replace("image.grayscale", f"{name}.grayscale").replace('("image", SOURCE', f'("{name}", SOURCE')
    text = re.sub(r'"image" in dir', f'"{name}" in dir', text)
    assigned = re.compile(r'^\s*(?:name = "image"|image = ")', re.MULTILINE)
    return assigned.sub(lambda found: found[0].replace(EXAMPLE, name), text)
