"""A text continued with several tokens per pass: proposed by looking them up, verified by the model, streamed."""

import asyncio
import sys

import numpy as np

import callboard as cb

TEXT = b"the cat saw the dog, the dog saw the cat, the cat saw the dog and the bird saw the cat and the dog. " * 3
SEEN = 12


class TextModel(cb.ResidentActor):
    """Scores the next byte by how well the last ones agree with each place of a text; a torch model would be here."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.text = np.frombuffer(b"\n" * SEEN + TEXT, np.uint8)
        self.places = np.lib.stride_tricks.sliding_window_view(self.text, SEEN)[:-1]

    def forward(self, sequences: list[list[int]], rows: list[int]) -> list[np.ndarray]:
        ends = [range(len(s) - n + 1, len(s) + 1) for s, n in zip(sequences, rows, strict=True)]
        return [np.stack([self.after(s[:i]) for i in end]) for s, end in zip(sequences, ends, strict=True)]

    def after(self, tokens: list[int]) -> np.ndarray:
        last = np.array([10] * SEEN + tokens)[-SEEN:]
        agrees = np.logical_and.accumulate((self.places == last)[:, ::-1], axis=1).sum(axis=1)
        logits = np.zeros(256)
        np.maximum.at(logits, self.text[SEEN:], agrees.astype(float))
        return logits


async def main(name: str) -> None:
    async with cb.device(name) as gpu:
        actor = gpu.actor_of(cb.Props(TextModel), name="text")
        await actor.ready()

        async def forward(states: list[cb.TokenState], tokens: list[list[int]], rows: list[int]) -> list[np.ndarray]:
            for state, new in zip(states, tokens, strict=True):
                state.tokens += new
            return await actor.call(TextModel.forward, [state.tokens for state in states], rows)

        target = cb.Model(forward, cb.TokenState)
        request = cb.Decode(list(b"the cat"), stop=[b"."])
        async with cb.SpeculativeDecoder(target, max_total_tokens=400) as plain:
            expected = await plain.submit(request)
        async with cb.SpeculativeDecoder(target, cb.NGramDraft(), adaptive=False, max_total_tokens=400) as decoder:
            async for token in decoder.stream(request):
                print(chr(token), end="", flush=True)
            answer = await decoder.submit(request)
            assert answer.tokens == expected.tokens
            print(f"\n{len(answer.new_tokens)} tokens in {answer.iterations} passes; plain: {expected.iterations}")
            warm = cb.Decode(list(b"the bird"), max_new_tokens=40, temperature=0.7, seed=5)
            assert (await decoder.submit(warm)).tokens == (await decoder.submit(warm)).tokens


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
