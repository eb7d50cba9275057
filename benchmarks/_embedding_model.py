"""A torch model that a token id out of range kills: on CUDA by a device-side assertion, on a CPU by ``os._exit``."""

import os
from typing import Any

import numpy as np

import callboard as cb

__all__ = ["GOOD", "POISON", "Embedding"]

TOKENS, WIDTH = 30_000, 384
GOOD, POISON = [101, 2023, 102], [101, TOKENS + 5, 102]


class Embedding(cb.ResidentActor):
    """The mean of the tokens' vectors, and two linear layers."""

    def prepare(self) -> None:
        import torch

        torch.manual_seed(1)
        self.weights = torch.randn(TOKENS, WIDTH)

    def setup(self, ctx: cb.HostContext) -> None:
        import torch

        self.device, self.on_cpu = ctx.torch_device, not ctx.is_cuda
        self.embedding = torch.nn.Embedding(TOKENS, WIDTH, _weight=self.weights.to(self.device))
        layers = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)
        self.layers = torch.nn.Sequential(*layers).to(self.device)

    def warm_up(self, ctx: cb.HostContext) -> None:
        self.setup(ctx)
        self.embed(GOOD)

    def embed(self, tokens: list[int]) -> "np.ndarray[Any, Any]":
        import torch

        if self.on_cpu and max(tokens) >= TOKENS:
            os._exit(70)
        with torch.inference_mode():
            vectors = self.embedding(torch.tensor(tokens, device=self.device))
            found: np.ndarray[Any, Any] = self.layers(vectors.mean(0)).cpu().numpy()
        return found

    def embeds(self, batch: list[list[int]]) -> "list[np.ndarray[Any, Any]]":
        return [self.embed([int(token) for token in tokens]) for tokens in batch]
