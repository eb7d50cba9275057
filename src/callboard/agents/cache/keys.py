"""Keys of texts: everything that an embedding depends on, in full or as a digest of 128 bits."""

import hashlib
from typing import Literal

__all__ = ["Key", "KeyKind", "Keys"]

Key = bytes
KeyKind = Literal["digest", "full"]


def _framed(part: str) -> bytes:
    """The length comes first, so that no two lists of parts are the same bytes."""
    data = part.encode("utf-8", "surrogatepass")
    return len(data).to_bytes(8, "little") + data


class Keys:
    """The keys of one model: of its name, revision and dtype, and of a text and its prefix.

    Args:
        kind: ``"digest"`` for BLAKE2b of 128 bits, ``"full"`` for the parts themselves.
        model, revision, dtype: What all its keys are of.
    """

    def __init__(self, kind: KeyKind, model: str, revision: str, dtype: str) -> None:
        if kind not in ("digest", "full"):
            raise ValueError(f"keys is {kind!r}; it must be 'digest' or 'full'")
        self._digests = kind == "digest"
        self._model = b"".join(map(_framed, (model, revision, dtype)))
        self.scope = hashlib.blake2b(self._model, digest_size=8).digest()
        """Digest of the model: in front of its keys in a file that has those of several."""
        self._starts: dict[str, tuple[bytes, hashlib.blake2b]] = {}

    def of(self, text: str, prefix: str) -> Key:
        """The key of one text."""
        start = self._starts.get(prefix)
        if start is None:
            if len(self._starts) >= 64:  # prefixes are few, unless a caller puts data into them
                self._starts.clear()
            data = self._model + _framed(prefix)
            start = self._starts[prefix] = data, hashlib.blake2b(data, digest_size=16)
        try:
            encoded = text.encode()
        except UnicodeEncodeError:
            encoded = text.encode("utf-8", "surrogatepass")
        except AttributeError:
            raise TypeError(f"a text is {text!r}, of {type(text).__name__}; pass str") from None
        if not self._digests:
            return start[0] + encoded
        digest = start[1].copy()
        digest.update(encoded)
        return digest.digest()
