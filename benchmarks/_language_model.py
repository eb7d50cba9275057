"""Language models made in the run from the documentation of Python: a network in NumPy, and tables of what follows."""

from typing import Any

import numpy as np

import callboard as cb

SEEN, WIDTH = 8, 128
"""Characters that the network sees, and numbers of a layer."""

RIDGE = 10.0


def corpus(length: int) -> tuple[np.ndarray, int]:
    """Text as token ids, and how many there are."""
    from pydoc_data.topics import topics

    text = "\n".join(topics[key] for key in sorted(topics))[:length]
    found, ids = np.unique(np.frombuffer(text.encode("ascii", "replace"), np.uint8), return_inverse=True)
    return ids, len(found)


class Network:
    """Many narrow layers of random features, and a readout of every eighth that is fitted to the text.

    A pass is bound by its many short calls, as that of a model on a GPU at batch 1 is by its launches and its reads of
    the weights: nine tokens take little longer than one. ``forward`` and ``begin`` make it a :class:`LanguageModel`;
    :meth:`logits` is the pass itself.
    """

    def __init__(self, ids: np.ndarray, vocabulary: int, depth: int) -> None:
        rng = np.random.default_rng(1)
        decay = 0.8 ** np.arange(SEEN)[::-1]  # what is near counts more
        self._embedding = rng.standard_normal((SEEN, vocabulary, WIDTH)) * decay[:, None, None]
        # Doubles, and small steps: rounding that depends on the number of rows is not to change a token.
        self._layers = rng.standard_normal((depth, WIDTH, WIDTH)) * 2 / (WIDTH * depth) ** 0.5
        windows = np.lib.stride_tricks.sliding_window_view(ids, SEEN)[:-1]
        hidden = self._hidden(windows)
        wanted = np.eye(vocabulary)[ids[SEEN:]]
        gram = hidden.T @ hidden + RIDGE * np.eye(hidden.shape[1])
        self._readout = 20 * np.linalg.solve(gram, hidden.T @ wanted)

    def _hidden(self, windows: np.ndarray) -> np.ndarray:
        x = self._embedding[range(SEEN), windows].sum(axis=1)
        found = []
        for i, layer in enumerate(self._layers):
            x = x + np.maximum(x @ layer, 0)
            x -= x.mean(axis=1, keepdims=True)
            if i % 8 == 0:
                found.append(x)
        return np.concatenate(found, axis=1)

    def logits(self, windows: np.ndarray) -> np.ndarray:
        """After each window of the last tokens."""
        return self._hidden(windows) @ self._readout

    def begin(self) -> cb.KvState:
        return Window()

    def forward(self, states: list[Any], tokens: list[list[int]], rows: list[int]) -> list[np.ndarray]:
        windows = []
        for state, new, count in zip(states, tokens, rows, strict=True):
            state.tokens += new
            end = len(state.tokens)
            windows += [state.tokens[i - SEEN : i] for i in range(end - count + 1, end + 1)]
        return np.split(self.logits(np.array(windows)), np.cumsum(rows)[:-1])


class Window:
    """The tokens so far, with space in front."""

    def __init__(self) -> None:
        self.tokens = [0] * SEEN

    def rollback(self, n: int) -> None:
        del self.tokens[-n:]

    def close(self) -> None:
        pass


class Table:
    """What the network says most often after each three tokens of the text: a draft that costs a lookup."""

    def __init__(self, network: Network, ids: np.ndarray) -> None:
        windows = np.lib.stride_tricks.sliding_window_view(ids, SEEN)
        best = network.logits(windows).argmax(axis=1)
        counts: dict[tuple[int, ...], dict[int, int]] = {}
        for window, token in zip(windows[:, -5:].tolist(), best.tolist(), strict=True):
            for length in (1, 3, 5):
                after = counts.setdefault(tuple(window[-length:]), {})
                after[token] = after.get(token, 0) + 1
        self._best = {key: max(after, key=lambda token, after=after: after[token]) for key, after in counts.items()}

    def __call__(self, prefix: list[int], k: int) -> list[int]:
        text = prefix[-5:]
        for _ in range(k):
            found = (self._best.get(tuple(text[-length:])) for length in (5, 3, 1))
            text.append(next(token for token in (*found, 0) if token is not None))
        return text[len(text) - k :]


def plain(network: Network, prefix: list[int], new: int) -> list[int]:
    """Greedy decoding by the shortest loop."""
    state, tokens, given = network.begin(), list(prefix), prefix
    for _ in range(new):
        (logits,) = network.forward([state], [given], [1])
        given = [int(logits[0].argmax())]
        tokens += given
    return tokens
