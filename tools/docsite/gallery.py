"""A page for each example: what it shows, its code, and what it printed when it was last recorded.

Examples take a minute together, so that they are run by ``scripts/docs --record`` only. ``docs/gallery`` keeps what
they printed.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from docsite.pictures import picture_in

__all__ = ["record", "write_gallery"]

ROW = re.compile(r"^\| \[(?P<file>\w+)\.py\]\(\w+\.py\) \| (?P<shows>.*) \|$", re.MULTILINE)
RECORDED = Path("docs/gallery")
LIMIT = 120.0
DRAWN = {"fountain", "sharpen"}
"""Examples that draw to a file, their second argument."""
QUIET = {"CALLBOARD_STANDBY": "none", "OPENBLAS_NUM_THREADS": "2", "PYTHONWARNINGS": "ignore"}


def rows(root: Path) -> dict[str, str]:
    """Examples, and what each shows."""
    return {row["file"]: row["shows"] for row in ROW.finditer((root / "examples" / "README.md").read_text("utf-8"))}


def write_gallery(root: Path, folder: Path) -> None:
    """Write the pages."""
    for name, shows in rows(root).items():
        code = (root / "examples" / f"{name}.py").read_text("utf-8")
        text = f"# {name}.py\n\n{shows}\n\n```python\n{code}```\n"
        for picture in sorted((root / RECORDED).glob(f"{name}.[gp][in][fg]")):
            shutil.copy(picture, folder)
            text += f"\n![What {name}.py draws]({picture.name})\n"
        printed = root / RECORDED / f"{name}.txt"
        if printed.exists():
            text += f"\n`python examples/{name}.py cpu` prints:\n\n```text\n{printed.read_text('utf-8')}```\n"
        (folder / f"{name}.md").write_text(text, "utf-8")


def record(root: Path, names: list[str]) -> list[str]:
    """Run examples on the CPU and keep what they print; those that fail keep what they had, and are returned."""
    (root / RECORDED).mkdir(exist_ok=True)
    failed: list[str] = []
    for name in names or sorted(rows(root)):
        path = os.pathsep.join([str(root / "src"), str(root / "examples")])
        command = [sys.executable, str(root / "examples" / f"{name}.py"), "cpu"]
        if name in DRAWN:
            command.append(str(root / RECORDED / f"{name}.gif"))
        environment = {**os.environ, **QUIET, "PYTHONPATH": path}
        try:
            done = subprocess.run(
                command, cwd=root, env=environment, capture_output=True, text=True, timeout=LIMIT, check=True
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as e:
            sys.stderr.write(f"{name}: {e}\n")
            failed.append(name)
        else:
            picture, text = picture_in(done.stdout.replace(f"{root}/", ""))  # no paths of this machine
            (root / RECORDED / f"{name}.txt").write_text(text, "utf-8")
            if picture is not None:
                (root / RECORDED / f"{name}.png").write_bytes(picture)
    return failed
