"""What tests of the pipeline share: an embedding that counts letters, and some documents."""

from typing import Any

import numpy as np

import callboard as cb

DOCUMENTS = [
    cb.Document("loss.md", "# Loss\n\nA lost context fails its arrays.\n\n## Arrays\n\nArrays of it are stale.\n"),
    cb.Document("plans.md", "# Plans\n\nA plan is kept for each shape. A new shape makes another plan.\n"),
    cb.Document("queues.md", "# Queues\n\nA full queue refuses requests at once.\n", {"area": "serving"}),
]


class Letters:
    """Vectors that count the letters of texts; remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    async def __call__(self, texts: list[str]) -> Any:
        self.calls.append(texts)
        return np.array(
            [[1 + text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts], "f4"
        )
