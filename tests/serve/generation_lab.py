"""Shared by the tests of text generation: an app whose models write bytes."""

import asyncio
from typing import Any

import numpy as np

import callboard as cb
from callboard.actors.clock import Clock
from callboard.serve import App

EOS = 0


class Writer:
    """A step function: it says its prompt backwards, then ends. ``hold`` stops it in front of a step."""

    def __init__(self) -> None:
        self.items: list[cb.Decode] = []
        self.steps = 0
        self.fails_after: int | None = None
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, slots: list[Any]) -> list[Any]:
        await self.go.wait()
        self.steps += 1
        self.items += [slot.item for slot in slots if slot.fresh]
        if self.fails_after is not None and self.steps > self.fails_after:
            raise cb.DriverError("the context was lost")
        return [self.after(slot) for slot in slots]

    def after(self, slot: Any) -> Any:
        text = [*reversed(slot.item.prefix), EOS]
        n = len(slot.parts)
        last = n + 1 == min(len(text), slot.item.max_new_tokens)
        return cb.Last(text[n]) if last else text[n]


def encode(text: str) -> list[int]:
    return list(text.encode())


def decode(tokens: list[int]) -> str:
    return bytes(tokens).decode(errors="replace")


def chat(messages: list[dict[str, Any]]) -> str:
    return "".join(f"<{each['role']}>{each['content']}" for each in messages)


def logits(sequences: list[list[int]], rows: list[int]) -> list[np.ndarray]:
    """Counts: after the byte n comes n + 1; after "z", the end."""
    found = []
    for sequence, count in zip(sequences, rows, strict=True):
        rows_ = np.zeros((count, 256))
        for row, token in zip(rows_, sequence[len(sequence) - count :], strict=True):
            row[EOS if token == ord("z") else token + 1] = 9.0
        found.append(rows_)
    return found


def writing(writer: Writer, clock: Clock | None = None, **options: Any) -> App:
    """``writer`` batches continuously, by the clock, ``counter`` decodes speculatively."""
    app = App("writing", **options)
    server = cb.ContinuousBatchingServer[cb.Decode, int](writer, max_queue=2, max_batch=2, clock=clock)
    app.add_decoder("writer", server, encode=encode, decode=decode, eos=EOS, chat=chat, max_tokens=64)
    counter = cb.SpeculativeDecoder(cb.Cacheless(logits), cb.NGramDraft(), eos=EOS)
    app.add_decoder("counter", counter, encode=encode, decode=decode, eos=EOS)
    return app
