"""Torch's random numbers, which all threads of a process share: seeds, and models built without disturbance."""

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["building", "seed_of", "seeded"]

_lock = threading.Lock()
"""Held while a model is built. A step of another device in this process waits with its seed until then."""


@contextlib.contextmanager
def building(seed: int) -> Iterator[None]:
    """Seed torch's random numbers, and have no other thread seed them meanwhile."""
    import torch

    with _lock:
        torch.manual_seed(seed)
        yield


def seeded(seed: int, device: Any = None) -> None:
    """Seed torch's random numbers for a pass.

    Args:
        seed: The seed.
        device: Where the pass is; None: on any. For a CPU, those of other kinds of devices stay: only to arrange for
            these takes torch longer than a small layer.
    """
    import torch

    with _lock:
        if device is not None and device.type == "cpu":
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)


def seed_of(*parts: object) -> int:
    """A seed for the random numbers of one pass, unrelated to those of the next."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
