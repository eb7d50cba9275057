"""A photograph for the examples, and how they show pictures: loaded from ``data/``, drawn in the terminal."""

from pathlib import Path
from typing import Any

import numpy as np

Picture = np.ndarray[Any, np.dtype[np.float32]]

SHADES = " .:-=+*#%@"
"""From black to white, for a light text on a dark ground."""


def photo() -> Picture:
    """A man with a camera: f32 ``[256, 256]``, 0 black to 1 white (``data/ATTRIBUTION.md`` says whose it is)."""
    with np.load(Path(__file__).parent / "data" / "camera.npz") as stored:
        picture: Picture = (stored["photo"] / 255).astype(np.float32)
    return picture


def draw(*pictures: Picture, columns: int = 48) -> str:
    """Pictures of one shape side by side, a character for each patch, each from its own black to its own white."""
    height, width = pictures[0].shape
    patch = width // columns
    shown = []
    for picture in pictures:
        # A character is about twice as high as wide.
        cut = picture[: height // (2 * patch) * 2 * patch, : columns * patch]
        patches = cut.reshape(-1, 2 * patch, columns, patch).mean(axis=(1, 3))
        low, high = np.percentile(patches, (2, 98))
        levels = np.clip((patches - low) / ((high - low) or 1), 0, 1) * (len(SHADES) - 1)
        shown.append(["".join(SHADES[level] for level in row) for row in levels.round().astype(int)])
    return "\n".join("  ".join(rows) for rows in zip(*shown, strict=True))
