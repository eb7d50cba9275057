"""Texts of unequal lengths, written together by an actor: each leaves when it is complete, and the next one joins."""

import asyncio
import sys

import numpy as np

import callboard as cb

TEXT = b"the cat saw the dog. the dog saw the bird and the cat. the bird saw the cat, the dog and the mouse. " * 2
SEEN = 5
END = ord(".")


class Writer(cb.ResidentActor):
    """Writes what has followed the last bytes somewhere in a text. A torch model would keep a KV cache per number."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.texts: dict[int, bytes] = {}  # of the sequences that run
        self.rng = np.random.default_rng(1)

    def step(self, numbers: list[int], fresh: list[bytes | None], gone: list[int]) -> list[int]:
        for number in gone:
            self.texts.pop(number, None)
        self.texts |= {number: text for number, text in zip(numbers, fresh, strict=True) if text is not None}
        new = [self.after(self.texts[number][-SEEN:]) for number in numbers]
        self.texts |= {number: self.texts[number] + bytes([byte]) for number, byte in zip(numbers, new, strict=True)}
        return new

    def after(self, seen: bytes) -> int:
        ends = [n + len(seen) for n in range(len(TEXT) - len(seen)) if TEXT.startswith(seen, n)]
        return TEXT[self.rng.choice(ends)] if ends else END


async def main(name: str) -> None:
    async with cb.device(name) as gpu:
        writer = gpu.actor_of(cb.Props(Writer), name="writer")
        gone: list[int] = []

        async def step(slots: list[cb.Slot[bytes, int]]) -> list[object]:
            fresh = [slot.item + bytes(slot.parts) if slot.fresh else None for slot in slots]
            over, gone[:] = list(gone), []
            new = await writer.call(Writer.step, [slot.number for slot in slots], fresh, over)
            return [cb.Last(byte) if byte == END else byte for byte in new]

        server = cb.ContinuousBatchingServer[bytes, int](step, close=lambda slot: gone.append(slot.number), max_batch=4)
        async with server:
            async for byte in server.stream(b"the bird saw"):
                print(chr(byte), end="", flush=True)
            before = server.stats()
            prompts = [b"the cat", b"the dog saw", b"mouse", b"bird saw the cat", b"the", b"saw the cat,", b"and"]
            found = await asyncio.gather(*(server.submit(prompt) for prompt in prompts))
            steps, lengths = server.stats().steps - before.steps, [len(text) for text in found]
            assert all(text[-1] == END for text in found)
            assert steps < max(lengths[:4]) + max(lengths[4:])  # what two batches of whole texts would take
            print(f"\n{sum(lengths)} bytes, in texts of {min(lengths)} to {max(lengths)}, in {steps} steps")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
