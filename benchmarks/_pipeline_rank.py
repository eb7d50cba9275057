"""One rank of torch.distributed.pipelining, for pipeline_train.py: steps of 1F1B, timed on demand.

    python benchmarks/_pipeline_rank.py RANK SIZE FILE cpu WIDTH ROWS MICRO_BATCHES

It reads lines with a number of steps, and answers each with the seconds that all of them took.
"""

import sys
import time
from typing import Any

LAYERS = 4
"""Linear layers of a stage."""


def stage(width: int) -> Any:
    """A part of the model that both libraries train."""
    import torch

    parts: list[Any] = []
    for _ in range(LAYERS):
        parts += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts)


def main() -> None:
    rank, size, file, kind, width, rows, micros = sys.argv[1:]
    serve(int(rank), int(size), file, kind, int(width), int(rows), int(micros))


def serve(rank: int, size: int, file: str, kind: str, width: int, rows: int, micros: int) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    torch.set_num_threads(1)
    device = torch.device(kind, rank) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(rank)
    engine = "gloo" if kind == "cpu" else "nccl"
    dist.init_process_group(engine, init_method=f"file://{file}", rank=rank, world_size=size)
    torch.manual_seed(rank)
    module = stage(width).to(device)
    optimizer = torch.optim.SGD(module.parameters(), 1e-3)
    schedule = Schedule1F1B(
        PipelineStage(module, rank, size, device), n_microbatches=micros, loss_fn=torch.nn.functional.mse_loss
    )
    x, y = torch.randn(rows, width), torch.randn(rows, width)

    def step() -> None:
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x.to(device))
        elif rank == size - 1:
            schedule.step(target=y.to(device), losses=[])
        else:
            schedule.step()
        optimizer.step()

    step()
    print("ready", flush=True)
    for line in sys.stdin:
        dist.barrier()
        began = time.perf_counter()
        for _ in range(int(line)):
            step()
        if kind == "cuda":
            torch.cuda.synchronize()
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
