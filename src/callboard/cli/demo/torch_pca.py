"""``python -m callboard.cli.demo.torch_pca``: the demo's job in plain torch, as a program of its own.

Events go to stdout as JSON lines with ``time.monotonic()``, which all processes of a machine share. The checkpoint is a
file, since no other state outlives the process.
"""

import argparse
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from callboard.cli.demo.digits import load_digits
from callboard.cli.demo.settings import CHECKPOINT, FAULT_AT, MOST, POISONED, RANK, SETTLED, first_block


def _say(event: str, **more: object) -> None:
    print(json.dumps({"event": event, "at": time.monotonic(), **more}), flush=True)


def _strike(device: str) -> None:
    if device == "cpu":
        os.kill(os.getpid(), signal.SIGKILL)
    from callboard.cli.demo.illegal_write import launch_illegal_write

    launch_illegal_write()


def _attempts(torch: Any) -> None:
    """Attempts of a program to continue after the fault, with their results."""
    fresh = np.ones((8, 8))
    attempts: dict[str, Callable[[], object]] = {
        "the next operation": lambda: torch.from_numpy(fresh).to("cuda").sum().item(),
        "synchronize": torch.cuda.synchronize,
        "empty_cache": torch.cuda.empty_cache,
        "an operation on another stream": lambda: _on_another_stream(torch, fresh),
    }
    for what, attempt in attempts.items():
        try:
            attempt()
            _say("attempt", what=what, error=None)
        except Exception as e:  # whatever torch raises is the finding
            _say("attempt", what=what, error=f"{type(e).__name__}: {str(e).partition(chr(10))[0]}")


def _on_another_stream(torch: Any, fresh: "np.ndarray[Any, Any]") -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.from_numpy(fresh).to("cuda").sum().item()


def main() -> int:
    """Iterate from the checkpoint file, if there is one, until the variances have settled."""
    parser = argparse.ArgumentParser("callboard.cli.demo.torch_pca", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--fault", action="store_true")
    arguments = parser.parse_args()
    _say("started")
    import torch

    _say("imported", version=torch.__version__)
    data = load_digits().images
    samples = torch.from_numpy(data).to(arguments.device)
    samples = samples - samples.mean(dim=0)
    covariance = samples.T @ samples / (samples.shape[0] - 1)
    at, block = 0, first_block(RANK, data.shape[1])
    if arguments.checkpoint.exists():
        with np.load(arguments.checkpoint) as saved:
            at, block = int(saved["at"]), saved["block"]
        _say("resumed", iteration=at)
    rows = torch.from_numpy(block).to(arguments.device)
    found = before = np.zeros(RANK)
    try:
        for i in range(at + 1, MOST + 1):
            rows = torch.linalg.qr((rows @ covariance).T)[0].T
            if arguments.fault and i == FAULT_AT:
                if arguments.device == "cuda":
                    torch.cuda.synchronize()
                _say("fault", iteration=i)
                _strike(arguments.device)
            if i % CHECKPOINT == 0:
                found = ((rows @ covariance) * rows).sum(dim=1).cpu().numpy()
                np.savez(arguments.checkpoint, at=i, block=rows.cpu().numpy())
                _say("checkpoint", iteration=i)
                if np.max(np.abs(found - before) / found) < SETTLED:
                    break
                before = found
    except RuntimeError as e:
        _say("poisoned", error=str(e).partition("\n")[0])
        _attempts(torch)
        return POISONED
    total = float((samples * samples).sum()) / (samples.shape[0] - 1)
    _say("done", explained=[float(v) / total for v in found])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
