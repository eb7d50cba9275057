"""``demo --versus torch``: the same job and the same fault in plain torch, which has to start its process again."""

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from callboard.cli.demo.settings import POISONED

__all__ = ["versus_torch"]

LIMIT = 300
"""Seconds for one process."""

Event = dict[str, Any]


def versus_torch(device: str, fault: bool, say: Callable[[str], None]) -> float | None:
    """Run it and print the events.

    Args:
        device: ``"cpu"`` or ``"cuda"``.
        fault: Lose the context or the process in the middle.
        say: Called with each line.

    Returns:
        Seconds from the fault to the checkpoint that it delayed; None without a fault, or where torch is missing.
    """
    if importlib.util.find_spec("torch") is None:
        say("torch is not installed here: pip install torch")
        return None
    with tempfile.TemporaryDirectory(prefix="callboard-demo-") as folder:
        checkpoint = Path(folder) / "checkpoint.npz"
        events, code = _run(device, checkpoint, fault)
        _tell(events, say)
        struck = next((e for e in events if e["event"] == "fault"), None)
        if not fault or struck is None:
            _finish(events, code, say)
            return None
        say(f"the process ended with {_meaning(code)}; what was on the device is gone, a new process starts")
        events, code = _run(device, checkpoint, fault=False)
        _tell(events, say)
        _finish(events, code, say)
        good = next((e for e in events if e["event"] == "checkpoint"), None)
        return None if good is None else float(good["at"] - struck["at"])


def _run(device: str, checkpoint: Path, fault: bool) -> tuple[list[Event], int]:
    command = [sys.executable, "-P", "-m", "callboard.cli.demo.torch_pca", "--device", device]
    command += ["--checkpoint", str(checkpoint), *(["--fault"] if fault else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=False)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], done.returncode


def _tell(events: list[Event], say: Callable[[str], None]) -> None:
    for event in events:
        match event:
            case {"event": "imported", "version": version}:
                say(f"torch {version}, imported in {event['at'] - events[0]['at']:.2f} s")
            case {"event": "resumed", "iteration": i}:
                say(f"going on from iteration {i}, read from the checkpoint file")
            case {"event": "fault", "iteration": i}:
                say(f"iteration {i}: the same fault")
            case {"event": "poisoned", "error": error}:
                say(f"torch raises: {error}")
            case {"event": "attempt", "what": what, "error": error}:
                say(f"  {what}: {error or 'worked'}")


def _finish(events: list[Event], code: int, say: Callable[[str], None]) -> None:
    done = next((e for e in events if e["event"] == "done"), None)
    if done is None:
        say(f"torch did not finish: {_meaning(code)}")
    else:
        say(f"explained variance of two components: {sum(done['explained'][:2]):.4%}")


def _meaning(code: int) -> str:
    if code < 0:
        return f"signal {-code}"
    return f"exit code {code}" + (" (its context is dead)" if code == POISONED else "")
