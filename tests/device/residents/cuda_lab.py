"""Resident actors on CUDA, for tests: torch and CuPy are imported by the actors themselves, in their host."""

from typing import Any

import numpy as np

import callboard as cb


class Torch(cb.ResidentActor):
    """Works with torch."""

    def prepare(self) -> None:
        import torch

        self.torch = torch
        self.weights = np.arange(12, dtype=np.float32).reshape(3, 4)

    def setup(self, ctx: cb.HostContext) -> None:
        self.ctx = ctx
        self.w = self.torch.from_numpy(self.weights).to(ctx.torch_device)
        self.setup_stream = self.torch.cuda.current_stream().cuda_stream

    def streams(self) -> tuple[int, int, int]:
        return self.ctx.stream.native, self.setup_stream, self.torch.cuda.current_stream().cuda_stream

    def product(self, x: cb.In) -> cb.GpuRef:
        view: Any = x
        return self.ctx.ref(view.torch() @ self.w)

    def scale(self, x: Any, by: float) -> None:
        self.torch.from_dlpack(x).mul_(by)

    def slowly(self, x: Any, rounds: int) -> None:
        """Much work on the device, enqueued at once: x becomes x + rounds."""
        tensor = self.torch.from_dlpack(x)
        for _ in range(rounds):
            tensor.add_(1)

    def kind(self, x: cb.In) -> str:
        return str(self.torch.from_dlpack(x).dtype)

    def back(self, x: cb.In) -> Any:
        return self.torch.from_dlpack(x).float().cpu().numpy()

    def hosted(self, n: int, kind: str) -> Any:
        tensor = self.torch.arange(n, device=self.ctx.torch_device)
        if kind == "turned":
            return self.ctx.host(tensor.reshape(-1, 2).T)
        return self.ctx.host(tensor.to(getattr(self.torch, kind)))

    def parts(self) -> list[cb.GpuRef]:
        self.own = self.torch.zeros(8, device=self.ctx.torch_device)
        return [self.ctx.ref(self.own[:6]), self.ctx.ref(self.own[2:])]

    def again(self) -> cb.GpuRef:
        return self.ctx.ref(self.own)

    def too_much(self) -> None:
        self.kept = self.torch.empty(1 << 42, dtype=self.torch.uint8, device=self.ctx.torch_device)

    def out_of_range(self) -> float:
        table = self.torch.zeros(4, device=self.ctx.torch_device)
        index = self.torch.tensor([1 << 30], device=self.ctx.torch_device)
        return float(table[index].sum().item())

    def forget(self) -> Any:
        return self.torch.zeros(1 << 20, device=self.ctx.torch_device)


class Cupy(cb.ResidentActor):
    """Works with CuPy."""

    def setup(self, ctx: cb.HostContext) -> None:
        import cupy

        self.cupy = cupy
        self.ctx = ctx
        _ = ctx.stream  # current from here on

    def streams(self) -> tuple[int, int]:
        return self.ctx.stream.native, self.cupy.cuda.get_current_stream().ptr

    def total(self, x: cb.In) -> float:
        view: Any = x
        return float(view.cupy().sum()) + float(self.cupy.asarray(x).sum())

    def lend(self, n: int) -> list[cb.GpuRef]:
        a = self.cupy.arange(n, dtype="f8")
        return [self.ctx.ref(a), self.ctx.ref(a[::-2])]
