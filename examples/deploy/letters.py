"""The model of app.toml: how often each letter is in a text. Put yours here."""

import string

import numpy as np


def embed(texts: list[str]) -> np.ndarray:
    counts = [[text.lower().count(letter) for letter in string.ascii_lowercase] for text in texts]
    return np.array(counts, np.float32)
