"""A journal in MongoDB: one document for each record, a unique index, and ``insert_many(ordered=True)``.

``python examples/journals/mongo_journal.py mongodb://localhost`` records to a server and reads the records back.
"""

import sys
import threading
from collections.abc import Sequence
from typing import Any

import callboard as cb
from callboard.multi_device.replay import Recovered
from callboard.multi_device.replay.journals.seals import Seal

DUPLICATE = 11000


class MongoJournal:
    """Records as documents of a collection; document 0 has the range of sequences that must be there.

    Args:
        collection: A ``pymongo.collection.Collection`` with write concern ``majority``.
    """

    def __init__(self, collection: Any) -> None:
        self._documents = collection
        self._identity: str | None = None
        self._seal = Seal("", "")
        self._lock = threading.RLock()

    def open(self, identity: str) -> Recovered:
        if self._identity not in (None, identity):
            raise cb.JournalConflict(f"this object records {self._identity}; make another one for {identity}")
        self._documents.create_index([("identity", 1), ("sequence", 1)], unique=True)
        self._identity, self._seal = identity, Seal("MongoDB", identity)
        return Recovered(self.last())

    def append(self, first: int, records: Sequence[bytes]) -> None:
        with self._lock:
            last, discarded = self._range()
            if first != last + 1:
                raise cb.JournalConflict(f"record {first} does not follow record {last}", last + 1, first)
            seal = self._seal.of
            rows = [
                {"identity": self._identity, "sequence": n, "record": record, "crc": seal(n, record)}
                for n, record in enumerate(records, first)
            ]
            try:
                self._documents.insert_many(rows, ordered=True)  # a failure leaves a prefix
            except Exception as e:  # pymongo's, which this file does not import
                errors = getattr(e, "details", {}).get("writeErrors", [])
                if not any(error["code"] == DUPLICATE for error in errors):
                    raise
                raise cb.JournalConflict(f"another writer took {first}", self.last() + 1, first) from e
            self._set_range(first + len(records) - 1, discarded)

    def read(self, first: int, count: int) -> list[tuple[int, bytes]]:
        last, discarded = self._range()
        where = {"identity": self._identity, "sequence": {"$gte": max(first, discarded + 1), "$lte": last}}
        found = self._documents.find(where).sort("sequence", 1).limit(count)
        rows = ((each["sequence"], each["record"], each["crc"]) for each in found)
        return self._seal.check_page(rows, first, count, last, discarded)

    def last(self) -> int:
        return self._range()[0]

    def discard(self, before: int) -> None:
        with self._lock:
            last, discarded = self._range()
            new = max(discarded, min(before - 1, last))
            self._set_range(last, new)  # first: what is deleted must not be missing
            self._documents.delete_many({"identity": self._identity, "sequence": {"$gt": 0, "$lte": new}})

    def close(self) -> None:
        self._identity = None

    def _range(self) -> tuple[int, int]:
        """The last sequence, and the one up to which records were discarded."""
        if self._identity is None:
            raise RuntimeError("the journal is not open")
        mine = {"identity": self._identity}
        ends = self._documents.find_one({**mine, "sequence": 0}) or {"last": 0, "discarded": 0, "crc": None}
        known, discarded = (0, 0) if ends["crc"] is None else self._seal.range(*(ends[n] for n in ENDS))
        top = self._documents.find_one({**mine, "sequence": {"$gt": 0}}, sort=[("sequence", -1)])
        last = max(discarded, top["sequence"] if top else 0)  # a writer that was killed did not note its last group
        if last < known:
            raise self._seal.corrupt(f"record {known} is missing; the last one is {last}")
        return last, discarded

    def _set_range(self, last: int, discarded: int) -> None:
        values = {"last": last, "discarded": discarded, "crc": self._seal.of_range(last, discarded)}
        self._documents.update_one({"identity": self._identity, "sequence": 0}, {"$set": values}, upsert=True)


ENDS = ("last", "discarded", "crc")


def main() -> None:
    import pymongo

    database = pymongo.MongoClient(sys.argv[1])["callboard"]
    collection = database.get_collection("journal", write_concern=pymongo.WriteConcern("majority"))
    journal = MongoJournal(collection)
    last = journal.open("example").last
    journal.append(last + 1, [b"one", b"two"])
    print(journal.read(last + 1, 10))
    journal.close()


if __name__ == "__main__":
    main()
