"""``src/callboard/cli/data/new_library.json``: the files of ``examples/plugin``, for ``callboard new-library``."""

import json
from pathlib import Path

__all__ = ["TARGET", "template_source"]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "plugin"
TARGET = ROOT / "src" / "callboard" / "cli" / "data" / "new_library.json"


def template_source() -> str:
    """The text of each file by its path, as JSON."""
    paths = sorted(path for path in EXAMPLE.rglob("*") if path.suffix in (".md", ".py", ".pyi", ".toml"))
    files = {path.relative_to(EXAMPLE).as_posix(): path.read_text("utf-8") for path in paths}
    return json.dumps(files, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TARGET.write_text(template_source(), "utf-8")
