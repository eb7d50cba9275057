"""``Library``: the passages of all documents, and what an ingestion changes in them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from callboard.agents.rag.passages.chunking import Chunking
from callboard.agents.rag.passages.documents import Document, Passage

__all__ = ["Change", "Library"]


@dataclass(frozen=True)
class Change:
    """What an ingestion is about to change.

    Attributes:
        digests: Of the texts that are new or different, by source; None of a document that leaves.
        sources: The ids of the passages that each of these documents has after it.
        passages: These passages.
        added: Those that are not there yet.
        removed: Ids of passages that leave.
    """

    digests: dict[str, str | None]
    sources: dict[str, list[str]]
    passages: dict[str, Passage]
    added: list[Passage]
    removed: list[str]


class Library:
    """Passages by id, and the documents that they are of.

    Args:
        chunking: How documents are cut.
    """

    def __init__(self, chunking: Chunking) -> None:
        self.chunking = chunking
        self.passages: dict[str, Passage] = {}
        self.sources: dict[str, list[str]] = {}
        self.digests: dict[str, str] = {}

    def change(self, documents: Iterable[Document], *, complete: bool) -> Change:
        """What these documents change; a document whose text is the same is not even cut again.

        Args:
            documents: The documents, one for each source.
            complete: All other documents have vanished.

        Raises:
            TypeError: One is no document.
            ValueError: Two documents have the same source.
        """
        digests: dict[str, str | None] = {}
        sources: dict[str, list[str]] = {}
        passages: dict[str, Passage] = {}
        seen: set[str] = set()
        for each in documents:
            other: object = each
            if not isinstance(other, Document):
                raise TypeError(f"documents has {other!r:.80}; pass a list of cb.Document(source, text)")
            if each.source in seen:
                raise ValueError(f"two documents have the source {each.source!r}; give each a name of its own")
            seen.add(each.source)
            digest = _digest(each)
            if self.digests.get(each.source) == digest:
                continue
            found = self.chunking.passages(each)
            digests[each.source], sources[each.source] = digest, [passage.id for passage in found]
            passages.update((passage.id, passage) for passage in found)
        for source in set(self.sources) - seen if complete else ():
            digests[source], sources[source] = None, []
        return self._with_removed(digests, sources, passages)

    def removal(self, gone: Sequence[str]) -> Change:
        """The change that these documents leave."""
        known = [source for source in gone if source in self.sources]
        return self._with_removed(dict.fromkeys(known), {source: [] for source in known}, {})

    def _with_removed(
        self, digests: dict[str, str | None], sources: dict[str, list[str]], passages: dict[str, Passage]
    ) -> Change:
        removed = [each for source in sources for each in self.sources.get(source, ()) if each not in passages]
        added = [
            passage
            for each, passage in passages.items()
            if each not in self.passages or self.passages[each].metadata != passage.metadata
        ]
        return Change(digests, sources, passages, added, removed)

    def apply(self, change: Change) -> None:
        """Have the passages of a change, and not those that leave."""
        self.passages.update(change.passages)
        for each in change.removed:
            self.passages.pop(each, None)
        for source, digest in change.digests.items():
            if digest is None:
                del self.sources[source], self.digests[source]
            else:
                self.sources[source], self.digests[source] = change.sources[source], digest

    def restore(self, passages: Iterable[Passage], digests: dict[str, str]) -> None:
        """Have what a file has kept."""
        for each in passages:
            self.passages[each.id] = each
            self.sources.setdefault(each.source, []).append(each.id)
        self.digests = dict(digests)
        for source in digests:
            self.sources.setdefault(source, [])


def _digest(document: Document) -> str:
    content = repr((document.text, sorted(document.metadata.items())))
    return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
