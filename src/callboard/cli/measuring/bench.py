"""``callboard bench``: run the benchmarks of a source tree."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

__all__ = ["add_bench", "benchmarks"]


def add_bench(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "bench",
        help="run the benchmarks of a source tree",
        description="Runs the programs in benchmarks/ of the source tree that callboard is imported from, or of the "
        "current folder; without a name all of them. Arguments after the name are the program's own (--quick, --json).",
    )
    parser.add_argument("name", nargs="?", help="name of a program; see --list")
    parser.add_argument("--list", action="store_true", help="list the programs")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
    parser.set_defaults(run=run)


def benchmarks() -> dict[str, Path]:
    """The programs by name; empty if there is no source tree."""
    for root in (Path(__file__).resolve().parents[3], Path.cwd()):
        folder = root / "benchmarks"
        if (root / "pyproject.toml").exists() and folder.is_dir():
            return {path.stem: path for path in sorted(folder.glob("*.py")) if not path.stem.startswith("_")}
    return {}


def run(arguments: argparse.Namespace) -> int:
    """Run them one after the other; the exit code is the last that is not 0."""
    programs = benchmarks()
    if not programs:
        print("no benchmarks/ here: they belong to the source tree, not to the package", file=sys.stderr)
        return 2
    if arguments.list:
        print("\n".join(programs))
        return 0
    if arguments.name is not None and arguments.name not in programs:
        print(f"no benchmark {arguments.name!r}; there are {', '.join(programs)}", file=sys.stderr)
        return 2
    code = 0
    for name in [arguments.name] if arguments.name else list(programs):
        print(f"== {name}", file=sys.stderr, flush=True)
        code = _run(programs[name], arguments.arguments) or code
    return code


def _run(program: Path, arguments: list[str]) -> int:
    source = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(entry for entry in (source, os.environ.get("PYTHONPATH", "")) if entry)
    command = [sys.executable, str(program), *arguments]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode
