"""GPT-2s of random weights for ``assisted.py``, and what callboard's decoder needs around a model of transformers."""

from typing import Any

import numpy as np
import torch
import transformers

VOCABULARY, LONGEST = 256, 1024
LITTLE = 0.1
"""Factor of what layers but the first add."""


class Cached:
    """A model of transformers as a :class:`LanguageModel`; each sequence has a cache of its own."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def begin(self) -> "State":
        return State()

    def forward(self, states: "list[State]", tokens: list[list[int]], rows: list[int]) -> list[np.ndarray]:
        found = []
        with torch.inference_mode():
            for state, new, count in zip(states, tokens, rows, strict=True):
                ids = torch.tensor([new])
                passed = self._model(ids, past_key_values=state.cache, use_cache=True, logits_to_keep=count)
                found.append(passed.logits[0].numpy())
        return found


class State:
    def __init__(self) -> None:
        self.cache = transformers.DynamicCache()

    def rollback(self, n: int) -> None:
        self.cache.crop(-n)

    def close(self) -> None:
        self.cache = None


def models(layers: int, width: int) -> tuple[Any, Any, Any]:
    """The target, a good draft and a useless one."""

    def gpt2(layers: int, seed: int) -> Any:
        torch.manual_seed(seed)
        config = transformers.GPT2Config(
            vocab_size=VOCABULARY, n_positions=LONGEST, n_embd=width, n_layer=layers, n_head=4, initializer_range=0.1
        )
        model = transformers.GPT2LMHeadModel(config).eval()
        model.generation_config.eos_token_id = None
        model.generation_config.pad_token_id = 0
        return model

    target, good, useless = gpt2(layers, 1), gpt2(1, 1), gpt2(1, 2)
    with torch.no_grad():
        for block in target.transformer.h[1:]:
            for part in (block.attn.c_proj, block.mlp.c_proj):
                part.weight.mul_(LITTLE)
    first = {k: v for k, v in target.state_dict().items() if ".h." not in k or ".h.0." in k}
    good.load_state_dict(first)
    return target, good, useless
