"""One rank of another library, for collectives.py: all-reduces of f32 in place, timed on demand.

    python benchmarks/_rank.py torch RANK SIZE FILE cpu

It reads lines "<bytes> <how often>" and answers each with the seconds that all of them took.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Timed = Callable[[int, int], float]


def of_torch(rank: int, size: int, file: str, kind: str) -> Timed:
    """torch.distributed, by gloo on CPUs and NCCL on GPUs."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if kind == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        "gloo" if kind == "cpu" else "nccl", init_method=f"file://{file}", rank=rank, world_size=size
    )

    def timed(nbytes: int, count: int) -> float:
        x = torch.ones(nbytes // 4, device=kind)
        dist.all_reduce(x)
        dist.barrier()
        began = time.perf_counter()
        for _ in range(count):
            dist.all_reduce(x)
            if kind == "cuda":
                torch.cuda.synchronize()
        return time.perf_counter() - began

    return timed


def of_nccl4py(rank: int, size: int, file: str, kind: str) -> Timed:
    """NCCL by its binding, with CuPy's arrays."""
    import cupy as cp
    from nccl.bindings import nccl

    cp.cuda.Device(rank).use()
    path = Path(file)
    if rank == 0:
        path.with_suffix(".new").write_bytes(bytes(nccl.get_unique_id()))
        path.with_suffix(".new").rename(path)
    until = time.monotonic() + 60.0
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.01)
    comm: Any = nccl.comm_init_rank_scalable(size, rank, 1, bytearray(path.read_bytes()), 0)
    stream = cp.cuda.Stream(non_blocking=True)

    def timed(nbytes: int, count: int) -> float:
        x = cp.ones(nbytes // 4, cp.float32)
        cp.cuda.Device().synchronize()

        def once() -> None:
            nccl.all_reduce(x.data.ptr, x.data.ptr, x.size, 7, 0, comm, stream.ptr)
            stream.synchronize()

        once()
        began = time.perf_counter()
        for _ in range(count):
            once()
        return time.perf_counter() - began

    return timed


def main() -> None:
    library, rank, size, file, kind = sys.argv[1:]
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    timed = {"torch": of_torch, "nccl4py": of_nccl4py}[library](int(rank), int(size), file, kind)
    print("ready", flush=True)
    for line in sys.stdin:
        nbytes, count = map(int, line.split())
        print(timed(nbytes, count), flush=True)


if __name__ == "__main__":
    main()
