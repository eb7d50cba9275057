"""Clients of MongoDB, Cassandra and DynamoDB in memory, as far as the recipes of examples/journals use them."""

import contextlib
import re
import threading
from collections.abc import Iterator, Mapping
from struct import Struct
from types import SimpleNamespace
from typing import Any

Row = dict[str, Any]
Key = tuple[Any, ...]

RECORD = Struct("<qq")
RANGE = Struct("<qqq")


class Rows:
    """Rows by identity and sequence; those of sequence 0 are the ranges. The Store of the conformance suite."""

    def __init__(self) -> None:
        self.rows: dict[Key, Row] = {}
        self.lock = threading.RLock()

    def load(self) -> dict[str, bytes]:
        return {f"{key[0]} {key[1]}": self._packed(key[1], row) for key, row in sorted(self.rows.items())}

    def _packed(self, sequence: int, row: Row) -> bytes:
        if not sequence:
            return RANGE.pack(row["last"], row["discarded"], row["crc"])
        return RECORD.pack(row["sequence"], row["crc"]) + row["record"]

    def save(self, contents: Mapping[str, bytes]) -> None:
        self.rows.clear()
        for name, content in contents.items():
            identity, _, sequence = name.partition(" ")
            if sequence == "0":
                numbers = RANGE.unpack(content[: RANGE.size].ljust(RANGE.size, b"\0"))
                row = dict(zip(("last", "discarded", "crc"), numbers, strict=True))
                self.rows[identity, 0] = {"identity": identity, "sequence": 0, **row}
            else:
                n, crc = RECORD.unpack_from(content)
                row = {"identity": identity, "sequence": n, "record": content[RECORD.size :], "crc": crc}
                self.rows.setdefault((identity, n), row)


class DuplicatesError(Exception):
    """``pymongo.errors.BulkWriteError``, ``botocore.exceptions.ClientError``."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__("a key is taken")
        self.__dict__.update(attributes)


class Collection:
    """A ``pymongo.collection.Collection``."""

    def __init__(self, store: Rows) -> None:
        self._store = store

    def create_index(self, keys: list[tuple[str, int]], *, unique: bool) -> None:
        assert (keys, unique) == ([("identity", 1), ("sequence", 1)], True)

    def insert_many(self, rows: list[Row], *, ordered: bool) -> None:
        assert ordered
        for n, row in enumerate(rows):
            with self._store.lock:
                key = row["identity"], row["sequence"]
                if key in self._store.rows:
                    raise DuplicatesError(details={"writeErrors": [{"index": n, "code": 11000}]})
                self._store.rows[key] = dict(row)

    def find(self, where: Row) -> "Cursor":
        with self._store.lock:
            return Cursor([row for row in self._store.rows.values() if fits(row, where)])

    def find_one(self, where: Row, sort: list[tuple[str, int]] | None = None) -> Row | None:
        return next(iter(self.find(where).sort(*(sort or [("sequence", 1)])[0])), None)

    def update_one(self, where: Row, change: Row, *, upsert: bool) -> None:
        assert upsert
        with self._store.lock:
            row = self._store.rows.setdefault((where["identity"], where["sequence"]), dict(where))
            row.update(change["$set"])

    def delete_many(self, where: Row) -> None:
        with self._store.lock:
            for key, row in list(self._store.rows.items()):
                if fits(row, where):
                    del self._store.rows[key]


class Cursor(list[Row]):
    """What ``find`` returns."""

    def sort(self, key: str, direction: int) -> "Cursor":  # type: ignore[override]
        return Cursor(sorted(self, key=lambda row: row[key], reverse=direction < 0))

    def limit(self, count: int) -> "Cursor":
        return Cursor(self[:count] if count else self)


def fits(row: Row, where: Row) -> bool:
    tests = {"$gt": int.__gt__, "$gte": int.__ge__, "$lte": int.__le__}
    return all(
        all(tests[test](row[name], bound) for test, bound in wanted.items())
        if isinstance(wanted, dict)
        else row[name] == wanted
        for name, wanted in where.items()
    )


class Session:
    """A ``cassandra.cluster.Session``: runs the few forms of statements that a recipe has."""

    def __init__(self, store: Rows) -> None:
        self._store = store

    def prepare(self, text: str) -> str:
        return text

    def execute(self, text: str, values: tuple[Any, ...] = ()) -> "Result":
        with self._store.lock:
            if text.startswith("CREATE TABLE IF NOT EXISTS"):
                return Result([])
            given = iter(values)
            if found := re.fullmatch(r"INSERT INTO (\w+) \(([\w, ]+)\) VALUES \([?, ]+\)( IF NOT EXISTS)?", text):
                row = dict(zip(found[2].split(", "), given, strict=True))
                key = row["identity"], row.setdefault("sequence", 0)
                applied = not found[3] or key not in self._store.rows
                if applied:
                    self._store.rows[key] = row
                return Result([], applied)
            form = r"(SELECT [\w, ]+|DELETE) FROM (\w+) WHERE (.+?)( ORDER BY sequence DESC)?(?: LIMIT (\?|1))?"
            found = re.fullmatch(form, text)
            assert found, text
            tests = [(*clause.split(" ")[:2], next(given)) for clause in found[3].split(" AND ")]
            ends = found[2].endswith("_ends")
            rows = [row for key, row in sorted(self._store.rows.items()) if ends is (key[1] == 0) and holds(row, tests)]
            if found[1] == "DELETE":
                for row in rows:
                    del self._store.rows[row["identity"], row["sequence"]]
                return Result([])
            rows = rows[::-1] if found[4] else rows
            count = {None: len(rows), "1": 1}.get(found[5]) if found[5] != "?" else next(given)
            names = found[1].removeprefix("SELECT ").split(", ")
            return Result([tuple(row[name] for name in names) for row in rows[:count]])


def holds(row: Row, tests: list[Any]) -> bool:
    part = {"part": row["sequence"] // 10_000}
    compare = {"=": lambda a, b: a == b, ">=": lambda a, b: a >= b, "<=": lambda a, b: a <= b}
    return all(compare[test]({**row, **part}[name], bound) for name, test, bound in tests)


class Result(list[tuple[Any, ...]]):
    """A ``cassandra.cluster.ResultSet``."""

    def __init__(self, rows: list[tuple[Any, ...]], applied: bool = True) -> None:
        super().__init__(rows)
        self.was_applied = applied

    def one(self) -> tuple[Any, ...] | None:
        return self[0] if self else None


class Table:
    """A table of ``boto3.resource("dynamodb")``; pages of 1000 items."""

    name = "journal"

    def __init__(self, store: Rows) -> None:
        self._store = store
        self.meta = SimpleNamespace(client=SimpleNamespace(transact_write_items=self._transact))

    def _transact(self, *, TransactItems: list[Row]) -> None:
        assert 0 < len(TransactItems) <= 100
        with self._store.lock:
            items = [each["Put"]["Item"] for each in TransactItems]
            assert all(each["Put"]["ConditionExpression"] == "attribute_not_exists(#s)" for each in TransactItems)
            if any((item["identity"], item["sequence"]) in self._store.rows for item in items):
                code = {"Code": "TransactionCanceledException"}
                raise DuplicatesError(
                    response={"Error": code, "CancellationReasons": [{"Code": "ConditionalCheckFailed"}]}
                )
            for item in items:
                self.put_item(Item=item)

    def put_item(self, *, Item: Row) -> None:
        with self._store.lock:
            self._store.rows[Item["identity"], Item["sequence"]] = dict(Item)

    def get_item(self, *, Key: Row, ConsistentRead: bool) -> Row:
        assert ConsistentRead
        row = self._store.rows.get((Key["identity"], Key["sequence"]))
        return {} if row is None else {"Item": row}

    def query(self, **options: Any) -> Row:
        values = options["ExpressionAttributeValues"]
        low = options.get("ExclusiveStartKey", {"sequence": values[":a"] - 1})["sequence"]
        with self._store.lock:
            rows = [row for key, row in sorted(self._store.rows.items()) if key[0] == values[":i"]]
        rows = [row for row in rows if max(low + 1, values[":a"]) <= row["sequence"] <= values[":b"]]
        rows = rows if options.get("ScanIndexForward", True) else rows[::-1]
        page = rows[: min(options.get("Limit", 1000), 1000)]
        more = {} if len(page) == len(rows) else {"LastEvaluatedKey": {"sequence": page[-1]["sequence"]}}
        return {"Items": page, **more}

    @contextlib.contextmanager
    def batch_writer(self) -> Iterator[Any]:
        def delete_item(*, Key: Row) -> None:
            self._store.rows.pop((Key["identity"], Key["sequence"]), None)

        yield SimpleNamespace(delete_item=delete_item)
