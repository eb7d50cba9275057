"""Sequences in common steps, one of which loses the context: it is found, and no other fails."""

import asyncio
from typing import Any

import pytest
from batching_lab import outcome
from hypothesis import given
from hypothesis import strategies as st
from speculative_lab import TableModel

import callboard as cb
from callboard.core.errors import Suspect

BAD = 7
"""The item, or the first token, of the sequence that loses the context."""


class Context:
    """A context that is lost in each step of a bad sequence that has grown to a length."""

    def __init__(self) -> None:
        self.losses = 0

    def lose(self) -> None:
        self.losses += 1
        error = cb.ContextPoisoned("lost", [Suspect("gpu", "op", "step", "a.py:1")])
        error.device, error.generation = "gpu", self.losses
        raise error


@given(good=st.integers(0, 6), at=st.integers(0, 5), late=st.integers(0, 3))
def test_continuous_batching_finds_the_sequence(good: int, at: int, late: int) -> None:
    context = Context()

    def step(slots: list[cb.Slot[int, int]]) -> list[Any]:
        if any(slot.item == BAD and len(slot.parts) >= at for slot in slots):
            context.lose()
        return [cb.DONE if len(slot.parts) == 6 else len(slot.parts) for slot in slots]

    async def story() -> None:
        async with cb.ContinuousBatchingServer(step, max_batch=4, executor="loop") as server:
            tasks = [asyncio.create_task(server.submit(item)) for item in [*range(100, 100 + good), BAD]]
            await asyncio.sleep(0)
            tasks += [asyncio.create_task(server.submit(200 + n)) for n in range(late)]
            found = [await outcome(task) for task in tasks]
            assert isinstance(found.pop(good), cb.Quarantined)
            assert found == [list(range(6))] * (good + late)
            assert context.losses == 2  # with others, then alone
            with pytest.raises(cb.Quarantined):
                await server.submit(BAD)
            assert context.losses == 2

    asyncio.run(story())


@given(good=st.integers(0, 4), at=st.integers(1, 6))
def test_a_decoder_finds_the_text(good: int, at: int) -> None:
    context, target = Context(), TableModel()

    async def forward(states: Any, tokens: Any, rows: Any) -> Any:
        texts = [[*state.tokens, *new] for state, new in zip(states, tokens, strict=True)]
        if any(text[0] == BAD and len(text) >= at for text in texts):
            context.lose()
        return await target.forward(states, tokens, rows)

    async def story() -> None:
        async with cb.SpeculativeDecoder(cb.Model(forward, target.begin), max_batch=3) as server:
            texts = [cb.Decode([n], max_new_tokens=8) for n in [*range(good), BAD]]
            found = [await outcome(task) for task in [asyncio.create_task(server.submit(text)) for text in texts]]
            assert isinstance(found.pop(), cb.Quarantined)
            assert [len(each.tokens) for each in found] == [9] * good  # with the prefix
            assert context.losses == 2
            with pytest.raises(cb.Quarantined):
                await server.submit(cb.Decode([BAD], max_new_tokens=8))
            assert context.losses == 2

    asyncio.run(story())
