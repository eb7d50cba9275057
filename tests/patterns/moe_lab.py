"""Shared by the tests of the router: Mixtral's block in NumPy, experts that answer when the test says so."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from batching_lab import turns

import callboard as cb

LIMIT = 30.0


class Block:
    """Mixtral's sparse block: a linear gate, SwiGLU experts. ``dense`` computes every expert for every token."""

    def __init__(self, experts: int = 4, width: int = 8, inner: int = 12, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.gate_weights = rng.standard_normal((experts, width), np.float32)
        self.w1, self.w3 = rng.standard_normal((2, experts, inner, width), np.float32) / width**0.5
        self.w2 = rng.standard_normal((experts, width, inner), np.float32) / inner**0.5

    def gate(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x @ self.gate_weights.T)

    def expert(self, number: int) -> Any:
        def swiglu(x: np.ndarray) -> np.ndarray:
            a = x @ self.w1[number].T
            return np.asarray((a / (1 + np.exp(-a)) * (x @ self.w3[number].T)) @ self.w2[number].T)

        return swiglu

    @property
    def experts(self) -> list[Any]:
        return [self.expert(number) for number in range(len(self.w1))]

    def tokens(self, count: int, seed: int = 1) -> np.ndarray:
        return np.random.default_rng(seed).standard_normal((count, self.w1.shape[2]), np.float32)

    def dense(self, x: np.ndarray, k: int, without: tuple[int, ...] = ()) -> np.ndarray:
        logits = self.gate(x).astype(np.float64)
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        mask = p >= np.sort(p, axis=1)[:, [-k]]
        mask[:, list(without)] = False
        weights = p * mask
        weights /= weights.sum(axis=1, keepdims=True)
        outputs = np.stack([expert(x.astype(np.float64)) for expert in self.experts], axis=1)
        return np.asarray((weights[:, :, None] * outputs).sum(axis=1))


class Held:
    """Experts that double their rows when they are let go; ``calls`` are those that have no answer yet."""

    def __init__(self, experts: int = 2) -> None:
        self.calls: list[tuple[int, np.ndarray, asyncio.Future[Any]]] = []
        self.started = 0
        self._changed = asyncio.Condition()
        self.experts = [self._expert(number) for number in range(experts)]

    def _expert(self, number: int) -> Any:
        async def expert(rows: np.ndarray) -> Any:
            self.started += 1
            call = (number, rows, asyncio.get_running_loop().create_future())
            self.calls.append(call)
            async with self._changed:
                self._changed.notify_all()
            try:
                return await call[2]
            finally:
                self.calls.remove(call)

        return expert

    async def called(self, count: int = 1) -> None:
        """Wait until so many calls have no answer."""
        async with asyncio.timeout(LIMIT), self._changed:
            await self._changed.wait_for(lambda: len(self.calls) >= count)

    async def release(self, expert: int | None = None, outcome: Any = None) -> None:
        """Answer the oldest call, of an expert or of any."""
        _, rows, gate = next(c for c in self.calls if expert in (None, c[0]) and not c[2].done())
        if isinstance(outcome, Exception):
            gate.set_exception(outcome)
        else:
            gate.set_result(2 * rows if outcome is None else outcome)
        await turns()

    async def release_all(self) -> None:
        while any(not gate.done() for *_, gate in self.calls):
            await self.release()


def by_sign(x: np.ndarray) -> np.ndarray:
    """A gate for two experts: tokens that begin with a positive number belong to expert 0."""
    return np.stack([x[:, 0], -x[:, 0]], axis=1)


@asynccontextmanager
async def lab(gate: Any, experts: Any, **options: Any) -> AsyncIterator[cb.MoeRouter]:
    """A router; stopped at the end, whatever the test left."""
    router = await cb.MoeRouter(gate, experts, **options).start()
    try:
        yield router
    finally:
        await router.stop()
