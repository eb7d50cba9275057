"""One mixture-of-experts block, computed in other ways: by expert in NumPy and in torch, and token by token."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

K = 2


class Block:
    """A linear gate and SwiGLU experts, as in Mixtral."""

    def __init__(self, experts: int, width: int, inner: int) -> None:
        rng = np.random.default_rng(1)
        self.gate_weights = rng.standard_normal((width, experts), np.float32) / width**0.5
        self.up = rng.standard_normal((experts, width, 2 * inner), np.float32) / width**0.5
        self.down = rng.standard_normal((experts, inner, width), np.float32) / inner**0.5

    def gate(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x @ self.gate_weights)

    def expert(self, number: int) -> Callable[[np.ndarray], np.ndarray]:
        up, down = self.up[number], self.down[number]
        inner = len(down)

        def call(rows: np.ndarray) -> np.ndarray:
            hidden = rows @ up
            gated, linear = hidden[:, :inner], hidden[:, inner:]
            return np.asarray((gated / (1 + np.exp(-gated)) * linear) @ down)

        return call

    @property
    def experts(self) -> list[Callable[[np.ndarray], np.ndarray]]:
        return [self.expert(number) for number in range(len(self.up))]


def chosen(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Experts and weights of each token."""
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    experts = np.argsort(-p, axis=1, kind="stable")[:, :K]
    weights = np.take_along_axis(p, experts, axis=1)
    return experts, weights / weights.sum(axis=1, keepdims=True)


def grouped(block: Block, x: np.ndarray) -> np.ndarray:
    """Sorted by expert, one product for each: the plain loop."""
    experts, weights = chosen(block.gate(x))
    order = np.argsort(experts.ravel(), kind="stable")
    tokens, scale = order // K, weights.ravel()[order, None]
    ends = np.cumsum(np.bincount(experts.ravel(), minlength=len(block.up)))
    rows, out, start = x[tokens], np.zeros_like(x), 0
    for expert, end in zip(block.experts, ends.tolist(), strict=True):
        if end > start:
            out[tokens[start:end]] += scale[start:end] * expert(rows[start:end])
        start = end
    return out


def torch_block(block: Block) -> Callable[[np.ndarray], np.ndarray] | None:
    """The loop of transformers' MixtralSparseMoeBlock, on one thread; None without torch."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    gate, up, down = (torch.from_numpy(w.swapaxes(-1, -2).copy()) for w in (block.gate_weights, block.up, block.down))
    linear = torch.nn.functional.linear

    def run(x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            t = torch.from_numpy(x)
            weights, experts = torch.topk(torch.softmax(linear(t, gate), dim=-1), K, dim=-1)
            weights /= weights.sum(dim=-1, keepdim=True)
            mask = torch.nn.functional.one_hot(experts, len(up)).permute(2, 1, 0)
            out = torch.zeros_like(t)
            for number in mask.sum(dim=(-1, -2)).nonzero()[:, 0].tolist():
                rank, token = torch.where(mask[number])
                gated, plain = linear(t[token], up[number]).chunk(2, dim=-1)
                rows = linear(torch.nn.functional.silu(gated) * plain, down[number])
                out.index_add_(0, token, rows * weights[token, rank, None])
            return np.asarray(out.numpy())

    return run


def transformers_block(block: Block) -> Callable[[np.ndarray], np.ndarray] | None:
    """The MixtralSparseMoeBlock of transformers itself, on one thread; None without it."""
    try:
        import torch
        import transformers
        from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
    except ImportError:
        return None
    torch.set_num_threads(1)
    experts, inner, width = block.down.shape
    config = transformers.MixtralConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_local_experts=experts,
        num_experts_per_tok=K,
        router_jitter_noise=0.0,
    )
    theirs = MixtralSparseMoeBlock(config).eval()
    weights = {"gate.weight": block.gate_weights.T, "experts.gate_up_proj": block.up.swapaxes(-1, -2)}
    weights["experts.down_proj"] = block.down.swapaxes(-1, -2)
    theirs.load_state_dict({name: torch.from_numpy(each.copy()) for name, each in weights.items()})

    def run(x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            out = theirs(torch.from_numpy(x)[None])
            return np.asarray((out[0] if isinstance(out, tuple) else out).reshape(x.shape).numpy())

    return run


class Messages:
    """Experts behind queues, each a task that answers one message after the other: what an actor costs at least."""

    def __init__(self, experts: list[Callable[[np.ndarray], np.ndarray]]) -> None:
        self._inboxes: list[asyncio.Queue[Any]] = [asyncio.Queue() for _ in experts]
        self._tasks = [asyncio.create_task(self._serve(n, expert)) for n, expert in enumerate(experts)]

    async def _serve(self, number: int, expert: Callable[[np.ndarray], np.ndarray]) -> None:
        while True:
            rows, reply = await self._inboxes[number].get()
            reply.set_result(expert(rows))

    def ask(self, number: int, rows: np.ndarray) -> "asyncio.Future[np.ndarray]":
        reply = asyncio.get_running_loop().create_future()
        self._inboxes[number].put_nowait((rows, reply))
        return reply

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


async def per_token(block: Block, messages: Messages, x: np.ndarray) -> np.ndarray:
    """A message for each token and expert; all tokens at once."""

    async def one(token: np.ndarray) -> np.ndarray:
        experts, weights = chosen(block.gate(token))
        replies = [messages.ask(number, token) for number in experts[0].tolist()]
        return np.asarray(sum([w * await reply for w, reply in zip(weights[0], replies, strict=True)]))

    return np.concatenate(await asyncio.gather(*(one(x[n : n + 1]) for n in range(len(x)))))
