"""The record of a benchmark: what it measured, where, and whether it came to its end."""

import datetime as dt
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, NoReturn

from callboard.cli.doctor import machine
from callboard.core import registry

__all__ = ["Record", "end_soon", "end_when_told"]

ROOT = Path(__file__).resolve().parent.parent


class Record:
    """What a benchmark has found so far: ``record[title] = result``.

    It is stored whenever it grows, so one that is cut short (a time limit, Ctrl-C, a crash) has what was measured.
    Until :meth:`done` it says that it is ``"partial"``.

    Args:
        name: Of the benchmark.
        given: Its arguments; ``given.json`` says where to, None stores nothing.
    """

    def __init__(self, name: str, given: Any) -> None:
        self._path: Path | None = given.json
        self._results: dict[str, Any] = {}
        self._head: dict[str, Any] = {}
        if self._path is not None:
            settings = {
                key: value.name if isinstance(value, Path) else value  # not where it lies here
                for key, value in vars(given).items()
                if key != "json"
            }
            self._head = {"benchmark": name, "environment": _environment(given.device), "settings": settings}

    def __setitem__(self, title: str, result: Any) -> None:
        self.update({title: result})

    def update(self, results: dict[str, Any]) -> None:
        """Add several at once."""
        self._results |= results
        self._store({"partial": True})
        if _told:
            raise _told[0]

    def done(self, bars: list[dict[str, Any]]) -> None:
        """All has been measured."""
        self._store({"bars": bars})

    def _store(self, rest: dict[str, Any]) -> None:
        if self._path is not None:
            text = json.dumps({**self._head, "results": self._results, **rest}, indent=2) + "\n"
            written = self._path.with_name(f"{self._path.name}.new")
            written.write_text(text, "utf-8")
            written.replace(self._path)  # whole or not at all, whenever the program is ended


_told: list[BaseException] = []


def end_soon(error: BaseException) -> None:
    """The program was told to end, by this; the next result is stored yet."""
    _told.append(error)


def end_when_told() -> None:
    """Have SIGTERM end the program as Ctrl-C does, so that rounds that are complete are kept."""

    def end(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)


def _environment(device: str) -> dict[str, Any]:
    """Where this runs: commit, versions, CPU, GPU, driver."""
    backend, info = registry.resolve(device)
    told = os.environ.get("CALLBOARD_COMMIT")  # by the check, which says itself whether that is what lies here
    return {
        "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": told or _git("rev-parse", "HEAD"),
        "dirty": None if told else bool(_git("status", "--porcelain")),
        "backend": backend.name,
        "device": info.name,
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "driver": machine.driver().detail,
        "packages": {name: version for name, version in machine.packages().items() if version},
        "threads": {name: os.environ.get(name) for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")},
        **{what: value for what, value in machine.system().items() if what != "executable"},
    }


def _git(*command: str) -> str | None:
    try:
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
