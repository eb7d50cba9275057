"""Extras of the wheel in fresh environments: resolved, installed unless they bring wheels for GPUs, and imported."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Installed", "closure", "environment", "for_gpus", "installed", "name_of", "report", "uninvited"]

GPU = re.compile(r"(nvidia|cuda|cutensor|cudss|cupti|nccl4py|nvmath|triton)\b.*|onnxruntime-gpu")
"""Names of distributions that are of use on a machine with an NVIDIA GPU only."""
BRINGS_GPU = {"torch"}
"""What asks for some of those on PyPI, and is chosen by an extra of its own."""

IMPORT = """
import importlib, re, sys
from importlib import metadata
import callboard
for name in callboard.__all__:
    getattr(callboard, name)
modules = metadata.packages_distributions()
for wanted in sys.argv[1:]:
    for module, owners in modules.items():
        if module.isidentifier() and wanted in {re.sub("[-_.]+", "-", owner).lower() for owner in owners}:
            importlib.import_module(module)
"""


class Installed(NamedTuple):
    """An extra of the wheel in an environment of its own; ``""`` is the wheel alone.

    Attributes:
        extra: Its name.
        seconds: That it took.
        problem: Why it cannot be installed or does not start here; None if it does.
        resolved: It brings so many wheels for GPUs, and was resolved only; 0 if it was installed.
    """

    extra: str
    seconds: float
    problem: str | None
    resolved: int = 0


def report(one: Installed) -> str:
    """A line."""
    outcome = one.problem
    if outcome is None:
        told = f", resolved and not installed: {one.resolved} wheels are for GPUs" if one.resolved else ", imported"
        outcome = f"ok{told}"
    return f"{one.extra or '(none)':<26} {one.seconds:6.0f} s  {outcome}"


def name_of(requirement: str) -> str:
    """The name of a distribution in a requirement, as PyPI spells it."""
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None, requirement
    return re.sub("[-_.]+", "-", found[0]).lower()


def closure(extras: Mapping[str, Sequence[str]], extra: str, project: str = "callboard") -> list[str]:
    """The requirements of an extra, with those of the extras that it names."""
    found: list[str] = []
    for requirement in extras[extra]:
        if name_of(requirement) == project:
            options = re.search(r"\[(.*?)\]", requirement)
            assert options is not None, requirement
            found += [one for other in options[1].split(",") for one in closure(extras, other, project)]
        else:
            found.append(requirement)
    return found


def for_gpus(names: Iterable[str]) -> list[str]:
    """Those of some distributions that a machine without a GPU has no use for."""
    return sorted(name for name in names if GPU.fullmatch(name))


def uninvited(names: Sequence[str], brought: Sequence[str]) -> list[str]:
    """The wheels for GPUs that an extra brings though none of its requirements stands for such."""
    return [] if for_gpus(names) or BRINGS_GPU.intersection(names) else list(brought)


def environment(folder: Path, name: str, seconds: float) -> str:
    """A fresh virtual environment below a folder; its interpreter."""
    place = folder / "environments" / name
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True, timeout=seconds)
    return str(place / ("Scripts" if os.name == "nt" else "bin") / "python")


class Attempt:
    """Steps in a fresh environment, within a time that they have together."""

    def __init__(self, folder: Path, name: str, seconds: float) -> None:
        self._folder = folder
        self._ends = time.monotonic() + seconds
        self._python = environment(folder, name, seconds)

    def run(self, *arguments: str) -> None:
        """Run Python outside of the source tree, so that the wheel's package is found and not this one's.

        Raises:
            subprocess.SubprocessError: It fails, or the time is over.
        """
        subprocess.run(
            [self._python, *arguments],
            cwd=self._folder,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            check=True,
            timeout=max(1.0, self._ends - time.monotonic()),
            capture_output=True,
            text=True,
        )

    def resolved(self, what: str) -> list[str]:
        """The names of what pip would install."""
        plan = self._folder / "resolved.json"
        self.run("-m", "pip", "install", "-qq", "--dry-run", "--report", str(plan), what)
        return [name_of(one["metadata"]["name"]) for one in json.loads(plan.read_text("utf-8"))["install"]]


def installed(
    folder: Path, wheel: Path, extra: str, requirements: Sequence[str], seconds: float, *, demo: bool = False
) -> Installed:
    """Resolve an extra, and install and import it where it brings no wheels for GPUs.

    Args:
        folder: Where the environment is made, and removed.
        wheel: The wheel.
        extra: Its name; ``""`` for the wheel alone.
        requirements: What the extra asks for: :func:`closure`.
        seconds: For all steps.
        demo: Run the demo, too.
    """
    began, name = time.monotonic(), extra or "plain"
    what = f"{wheel}[{extra}]" if extra else str(wheel)
    names, gpu, problem = [name_of(one) for one in requirements], list[str](), None
    try:
        attempt = Attempt(folder, name, seconds)
        gpu = for_gpus(attempt.resolved(what))
        if wrong := uninvited(names, gpu):
            problem = f"brings {', '.join(wrong)}, of no use without a GPU"
        elif not gpu:
            attempt.run("-m", "pip", "install", "-qq", what)
            attempt.run("-m", "pip", "check")
            attempt.run("-m", "callboard", "--version")
            attempt.run("-c", IMPORT, *names)
        if demo:
            attempt.run("-m", "callboard", "demo", "--device", "cpu")
    except subprocess.TimeoutExpired:
        problem = f"not finished within {seconds:.0f} s"
    except subprocess.CalledProcessError as e:
        problem = (e.stderr or e.stdout or "").strip().rpartition("\n")[2] or f"exit status {e.returncode}"
    finally:
        shutil.rmtree(folder / "environments" / name, ignore_errors=True)
    return Installed(extra, time.monotonic() - began, problem, len(gpu))
