"""A journal in DynamoDB: an item for each record, and ``TransactWriteItems`` with ``attribute_not_exists``.

``python examples/journals/dynamo_journal.py journal`` records to a table and reads the records back. Its key is
``identity`` (S) and ``sequence`` (N). An item has at most 400 KB: keep messages below that.
"""

import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import callboard as cb
from callboard.multi_device.replay import Recovered
from callboard.multi_device.replay.journals.seals import Seal

ITEMS, BYTES = 100, 3_000_000
"""Of one transaction at most."""
NAMES = {"#i": "identity", "#s": "sequence"}


class DynamoJournal:
    """Records as items; item 0 has the range of sequences that must be there.

    Args:
        table: A table of ``boto3.resource("dynamodb")``.
    """

    def __init__(self, table: Any) -> None:
        self._table = table
        self._identity: str | None = None
        self._seal = Seal("", "")
        self._lock = threading.RLock()

    def open(self, identity: str) -> Recovered:
        if self._identity not in (None, identity):
            raise cb.JournalConflict(f"this object records {self._identity}; make another one for {identity}")
        self._identity, self._seal = identity, Seal(f"table {self._table.name}", identity)
        return Recovered(self.last())

    def append(self, first: int, records: Sequence[bytes]) -> None:
        with self._lock:
            last, discarded = self._range()
            if first != last + 1:
                raise cb.JournalConflict(f"record {first} does not follow record {last}", last + 1, first)
            for group in groups(first, records):  # in order: the transactions before a failure are a prefix
                items = [{**self._key(n), "record": r, "crc": self._seal.of(n, r)} for n, r in group]
                puts = [{"TableName": self._table.name, "Item": each, **NEW} for each in items]
                try:
                    self._table.meta.client.transact_write_items(TransactItems=[{"Put": put} for put in puts])
                except Exception as e:  # botocore's, which this file does not import
                    if "ConditionalCheckFailed" not in str(getattr(e, "response", "")):
                        raise
                    raise cb.JournalConflict(f"another writer took {group[0][0]}", self.last() + 1, first) from e
            self._set_range(first + len(records) - 1, discarded)

    def read(self, first: int, count: int) -> list[tuple[int, bytes]]:
        with self._lock:
            last, discarded = self._range()
            start = max(first, discarded + 1)
            end = min(last, start + count - 1)
            items = items_of(self._table, self._key(start), end) if start <= end else ()
            rows = ((int(each["sequence"]), binary(each["record"]), int(each["crc"])) for each in items)
            return self._seal.check_page(rows, first, count, last, discarded)

    def last(self) -> int:
        return self._range()[0]

    def discard(self, before: int) -> None:
        with self._lock:
            last, discarded = self._range()
            new = max(discarded, min(before - 1, last))
            self._set_range(last, new)  # first: what is deleted must not be missing
            with self._table.batch_writer() as batch:
                for n in range(discarded + 1, new + 1):
                    batch.delete_item(Key=self._key(n))

    def close(self) -> None:
        self._identity = None

    def _range(self) -> tuple[int, int]:
        """The last sequence, and the one up to which records were discarded."""
        ends = self._table.get_item(Key=self._key(0), ConsistentRead=True).get("Item")
        known, discarded = self._seal.range(*(int(ends[n]) for n in ENDS)) if ends else (0, 0)
        top = next(items_of(self._table, self._key(1), MAX, ScanIndexForward=False, Limit=1), None)
        last = max(discarded, int(top["sequence"]) if top else 0)  # a killed writer did not note its last group
        if last < known:
            raise self._seal.corrupt(f"record {known} is missing; the last one is {last}")
        return last, discarded

    def _set_range(self, last: int, discarded: int) -> None:
        values = {"last": last, "discarded": discarded, "crc": self._seal.of_range(last, discarded)}
        self._table.put_item(Item={**self._key(0), **values})

    def _key(self, sequence: int) -> dict[str, Any]:
        if self._identity is None:
            raise RuntimeError("the journal is not open")
        return {"identity": self._identity, "sequence": sequence}


MAX = (1 << 63) - 1
ENDS = ("last", "discarded", "crc")
NEW = {"ConditionExpression": "attribute_not_exists(#s)", "ExpressionAttributeNames": {"#s": "sequence"}}


def items_of(table: Any, first: dict[str, Any], last: int, **options: Any) -> Iterator[dict[str, Any]]:
    """The items from a key on; a page has at most a megabyte."""
    options |= {"KeyConditionExpression": "#i = :i AND #s BETWEEN :a AND :b", "ExpressionAttributeNames": NAMES}
    options |= {"ExpressionAttributeValues": {":i": first["identity"], ":a": first["sequence"], ":b": last}}
    while True:
        page = table.query(ConsistentRead=True, **options)
        yield from page["Items"]
        if "LastEvaluatedKey" not in page:
            return
        options["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def binary(value: Any) -> bytes:
    """The bytes of an attribute, which boto3 wraps."""
    return bytes(getattr(value, "value", value))


def groups(first: int, records: Sequence[bytes]) -> Iterator[list[tuple[int, bytes]]]:
    """The records of one transaction after the other, with their sequences."""
    group: list[tuple[int, bytes]] = []
    for n, record in enumerate(records, first):
        if group and (len(group) == ITEMS or sum(len(r) for _, r in group) + len(record) > BYTES):
            yield group
            group = []
        group.append((n, record))
    if group:
        yield group


def main() -> None:
    import boto3

    journal = DynamoJournal(boto3.resource("dynamodb").Table(sys.argv[1]))
    last = journal.open("example").last
    journal.append(last + 1, [b"one", b"two"])
    print(journal.read(last + 1, 10))
    journal.close()


if __name__ == "__main__":
    main()
