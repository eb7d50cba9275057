"""One rank of DistributedDataParallel on gloo (or NCCL), for train_peers.py.

python benchmarks/_train_rank.py RANK SIZE FILE cpu WIDTH ROWS    # reads numbers of steps, answers with seconds
torchrun ... benchmarks/_train_rank.py until FOLDER cpu WIDTH ROWS    # trains; writes the time of each step there
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LAYERS = 4


def model(width: int) -> Any:
    """The model that both libraries train."""
    import torch

    parts: list[Any] = []
    for _ in range(LAYERS):
        parts += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts)


def prepared(rank: int, size: int, kind: str, width: int, rows: int) -> Callable[[], None]:
    """A step; the process group is open."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // size))
    device = torch.device(kind, rank) if kind == "cuda" else torch.device("cpu")
    torch.manual_seed(0)
    own = DistributedDataParallel(model(width).to(device))
    optimizer = torch.optim.SGD(own.parameters(), 1e-3)
    x, y = torch.randn(2, rows // size, width)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(own(x.to(device)), y.to(device)).backward()
        optimizer.step()
        if kind == "cuda":
            torch.cuda.synchronize()

    return step


def serve(rank: int, size: int, file: str, kind: str, width: int, rows: int) -> None:
    import torch.distributed as dist

    if kind == "cuda":
        __import__("torch").cuda.set_device(rank)
    engine = "gloo" if kind == "cpu" else "nccl"
    dist.init_process_group(engine, init_method=f"file://{file}", rank=rank, world_size=size)
    step = prepared(rank, size, kind, width, rows)
    step()
    print("ready", flush=True)
    for line in sys.stdin:
        dist.barrier()
        began = time.perf_counter()
        for _ in range(int(line)):
            step()
        print(time.perf_counter() - began, flush=True)


def train(folder: Path, kind: str, width: int, rows: int) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo" if kind == "cpu" else "nccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    step = prepared(rank, size, kind, width, rows)
    while True:
        step()
        told = folder / f"new-{rank}"
        told.write_text(f"{os.getpid()}")
        told.replace(folder / f"rank-{rank}")


if __name__ == "__main__":
    if sys.argv[1] == "until":
        train(Path(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:6]))
    else:
        serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], *map(int, sys.argv[5:7]))
