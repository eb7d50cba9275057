"""Shared by the tests of the speculative decoder: a small language model whose states check how they are used."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

import callboard as cb
from callboard.actors import ManualClock

VOCABULARY = 8


class State:
    """A cache as it should be used: only whole tokens, never after its end."""

    def __init__(self, model: "TableModel") -> None:
        self.model = model
        self.tokens: list[int] = []
        self.closed = False
        model.opened += 1

    def rollback(self, n: int) -> None:
        assert not self.closed, "rolled back after its end"
        assert 0 < n < len(self.tokens)
        del self.tokens[-n:]

    def close(self) -> None:
        assert not self.closed, "closed twice"
        self.closed = True
        self.model.closed += 1


class TableModel:
    """Logits by the last two tokens; ``noise`` above 0 makes it another model, for a draft.

    Attributes:
        passes: The lengths of the inputs of each pass.
        opened, closed: How many states.
    """

    def __init__(self, seed: int = 1, noise: float = 0.0, sharpness: float = 3.0) -> None:
        shape = (VOCABULARY, VOCABULARY, VOCABULARY)
        self.table = sharpness * np.random.default_rng(seed).standard_normal(shape)
        self.table += noise * sharpness * np.random.default_rng(seed + 1).standard_normal(shape)
        self.passes: list[list[int]] = []
        self.opened = self.closed = 0

    def begin(self) -> State:
        return State(self)

    async def forward(self, states: list[State], tokens: list[list[int]], rows: list[int]) -> list[Any]:
        self.passes.append([len(each) for each in tokens])
        await asyncio.sleep(0)
        found = []
        for state, new, count in zip(states, tokens, rows, strict=True):
            assert not state.closed, "used after its end"
            assert 0 < count <= len(new)
            state.tokens += new
            found.append(np.stack([self.after(state.tokens[: len(state.tokens) - i]) for i in reversed(range(count))]))
        return found

    def after(self, tokens: list[int]) -> Any:
        return self.table[tokens[-2] if len(tokens) > 1 else 0, tokens[-1]]


class TreeState(State):
    """A cache that trees go through: between a pass over a tree and ``keep`` it is not used."""

    def __init__(self, model: "TableModel") -> None:
        super().__init__(model)
        self.tree: list[int] | None = None

    def keep(self, places: list[int]) -> None:
        assert not self.closed, "used after its end"
        assert self.tree is not None, "there was no tree"
        assert places == sorted(set(places))
        self.tokens += [self.tree[place] for place in places]
        self.tree = None

    def rollback(self, n: int) -> None:
        assert self.tree is None
        super().rollback(n)


class TreeModel(TableModel):
    """The same model, which verifies trees; ``trees`` counts such passes."""

    trees = 0

    def begin(self) -> TreeState:
        return TreeState(self)

    async def forward_tree(
        self, states: list[TreeState], tokens: list[list[int]], parents: list[list[int]], rows: list[int]
    ) -> list[Any]:
        self.trees += 1
        self.passes.append([len(each) for each in tokens])
        await asyncio.sleep(0)
        found = []
        for state, new, before, count in zip(states, tokens, parents, rows, strict=True):
            assert not state.closed, "used after its end"
            assert state.tree is None, "a tree is still to be decided"
            state.tree = list(new)
            logits = []
            for place in range(len(new) - count, len(new)):
                path, at = [], place
                while at >= 0:
                    path.append(new[at])
                    at = before[at]
                logits.append(self.after([*state.tokens, *reversed(path)]))
            found.append(np.stack(logits))
        return found


def plain(model: TableModel, prefix: list[int], new: int) -> list[int]:
    """Greedy decoding, by the book."""
    tokens = list(prefix)
    for _ in range(new):
        tokens.append(int(model.after(tokens).argmax()))
    return tokens


@asynccontextmanager
async def decoder(target: Any, draft: Any = None, **options: Any) -> AsyncIterator[cb.SpeculativeDecoder]:
    """A decoder in virtual time; stopped at the end, whatever the test left."""
    options.setdefault("clock", ManualClock())
    server = await cb.SpeculativeDecoder(target, draft, **options).start()
    try:
        yield server
    finally:
        await server.stop()
