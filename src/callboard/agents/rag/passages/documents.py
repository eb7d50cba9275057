"""``Document``: a text with the name of its source, and ``Passage``: a part of it that a search finds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from callboard.agents.index.filters import as_metadata
from callboard.agents.index.protocol import Metadata, Value

__all__ = ["Document", "Ingested", "Passage"]


@dataclass(frozen=True)
class Document:
    """A text of a :class:`RagPipeline`.

    Attributes:
        source: Its name, such as a path; a document replaces the one of the same source.
        text: The text.
        metadata: Of all its passages, for ``where=`` of a query: str, numbers, bools, None, or lists of these.

    Raises:
        TypeError: The source or the text is no str, or the metadata is something else.
    """

    source: str
    text: str
    metadata: Metadata = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("source", "text"):
            value: object = getattr(self, name)
            if not isinstance(value, str):
                raise TypeError(f"{name} of a Document is {value!r:.80}; pass a str")
        object.__setattr__(self, "metadata", as_metadata("metadata of a Document", self.metadata))


@dataclass(frozen=True)
class Passage:
    """A part of a document.

    Attributes:
        id: Digest of the source, the heading and the text: equal as long as these are.
        source: Name of the document.
        text: ``document.text[start:end]``.
        start, end: Offsets in characters.
        line: Line of ``start``, from 1.
        heading: Headings above it, outermost first, joined by `` > ``.
        metadata: That of the document.
    """

    id: str
    source: str
    text: str
    start: int
    end: int
    line: int
    heading: str = ""
    metadata: Mapping[str, Value | list[Value]] = field(default_factory=dict)

    @property
    def described(self) -> str:
        """What is embedded and indexed: the text below its heading."""
        return f"{self.heading}\n{self.text}" if self.heading else self.text


@dataclass(frozen=True)
class Ingested:
    """What an ingestion has changed, in passages.

    Attributes:
        added: Passages that are new, and were embedded.
        unchanged: Passages that were there; their offsets are those of the new text.
        removed: Passages that their documents no longer have, or whose documents have vanished.
    """

    added: int
    unchanged: int
    removed: int


def passage_id(source: str, heading: str, text: str, occurrence: int) -> str:
    """The id of a passage; ``occurrence`` counts equal passages of a document from 0."""
    content = "\0".join((source, heading, text, str(occurrence)))
    return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
