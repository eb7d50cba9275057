"""Torch's random numbers, which all threads of a process share: seeds, and models built without disturbance."""

import contextlib
import hashlib
import threading
from collections.abc import Iterator

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


def seeded(seed: int) -> None:
    """Seed torch's random numbers for a pass."""
    import torch

    with _lock:
        torch.manual_seed(seed)


def seed_of(*parts: object) -> int:
    """A seed for the random numbers of one pass, unrelated to those of the next."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
