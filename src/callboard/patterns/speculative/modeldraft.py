"""``ModelDraft``: a smaller model proposes tokens, one pass for each."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from callboard.patterns.requests.calling import Executor, UserCall
from callboard.patterns.speculative.drafts import Ask, Draft, Proposal
from callboard.patterns.speculative.models import KvState, LanguageModel
from callboard.patterns.speculative.verify import logits_of

__all__ = ["ModelDraft"]


class ModelDraft(Draft):
    """A model of the same vocabulary as the target. All sequences share its passes.

    Args:
        model: Model whose ``forward`` gets one row of logits to compute per sequence and pass.
        executor: The executor that calls ``forward``; as for :class:`UserCall`.
    """

    def __init__(self, model: LanguageModel, executor: Executor = "auto") -> None:
        self._model = model
        self._call = UserCall(model.forward, executor, 1)
        self.on_thread = self._call.on_thread

    def begin(self) -> "_Fed":
        """Return the state of a new sequence, with no tokens fed to the model."""
        return _Fed(self._model.begin())

    def end(self, state: Any) -> None:
        """Close the model's state."""
        state.kv.close()

    async def propose(self, asks: list[Ask]) -> Sequence[Proposal]:
        """``k`` tokens each; in one pass for each token."""
        drawn: list[list[tuple[int, Any]]] = [[] for _ in asks]
        inputs = [ask.state.catch_up(ask.tokens) for ask in asks]
        for i in range(max(ask.k for ask in asks)):
            some = [n for n, ask in enumerate(asks) if i < ask.k]
            passed = [inputs[n] for n in some]
            result = await self._call([asks[n].state.kv for n in some], passed, [1] * len(some))
            for n, logits, tokens in zip(some, logits_of(result, [1] * len(some)), passed, strict=True):
                ask = asks[n]
                ask.state.fed += tokens
                token, p = ask.sampler.propose(logits[0], len(ask.tokens) + i)
                drawn[n].append((token, p))
                inputs[n] = [token]
        return [_proposal(each) for each in drawn]

    def close(self) -> None:
        """End the thread."""
        self._call.close()


class _Fed:
    """A sequence as far as the draft's model has seen it."""

    def __init__(self, kv: KvState) -> None:
        self.kv = kv
        self.fed: list[int] = []
        self._kept = 0

    def catch_up(self, tokens: list[int]) -> list[int]:
        """Drop rejected tokens; returns the part of ``tokens`` that the model has not seen, at least the last one."""
        most = min(len(self.fed), len(tokens) - 1)
        same = self._kept  # a prefix that agreed with the text stays valid
        while same < most and self.fed[same] == tokens[same]:
            same += 1
        if same < len(self.fed):
            self.kv.rollback(len(self.fed) - same)
            del self.fed[same:]
        self._kept = same
        return tokens[same:]


def _proposal(drawn: list[tuple[int, Any]]) -> Proposal:
    tokens = [token for token, _ in drawn]
    certain = not drawn or drawn[0][1] is None
    return Proposal(tokens, None if certain else np.stack([p for _, p in drawn]))
