"""The recipes of examples/journals pass the conformance suite: against clients in memory, and real ones if found."""

import importlib.util
import shutil
import socket
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_clients
import pytest

from callboard.testing.journals import JournalTests

ROOT = Path(__file__).parents[3]
RECIPES = {"mongo": "MongoJournal", "cassandra": "CassandraJournal", "dynamo": "DynamoJournal"}
CLIENTS = {"mongo": fake_clients.Collection, "cassandra": fake_clients.Session, "dynamo": fake_clients.Table}


def recipe(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(
        f"recipe_{name}", ROOT / "examples" / "journals" / f"{name}_journal.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, RECIPES[name])


@pytest.fixture
def rows() -> fake_clients.Rows:
    return fake_clients.Rows()


class InMemory(JournalTests):
    name = ""
    flips = 40

    @pytest.fixture
    def make(self, rows: fake_clients.Rows) -> Callable[[], Any]:
        journal, client = recipe(self.name), CLIENTS[self.name](rows)
        return lambda: journal(client)

    @pytest.fixture
    def store(self, rows: fake_clients.Rows) -> fake_clients.Rows:
        return rows

    def test_a_group_that_a_killed_writer_did_not_note_is_there(
        self, make: Callable[[], Any], rows: fake_clients.Rows
    ) -> None:
        journal = self.opened(make)
        journal.append(1, [b"a"])
        noted = dict(rows.rows["one", 0])
        journal.append(2, [b"b", b"c"])
        rows.rows["one", 0] = noted
        again = self.opened(make)
        assert again.last() == 3
        again.append(4, [b"d"])
        assert again.read(1, 9) == [(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d")]


class TestMongo(InMemory):
    name = "mongo"


class TestCassandra(InMemory):
    name = "cassandra"


class TestDynamo(InMemory):
    name = "dynamo"


del InMemory


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pymongo = pytest.importorskip("pymongo", reason="pymongo is not installed")
    server = shutil.which("mongod")
    if server is None:
        pytest.skip("no MongoDB server (mongod) here")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("mongo")
    process = subprocess.Popen([server, "--dbpath", folder, "--port", str(port)], stdout=subprocess.DEVNULL)
    try:
        database = pymongo.MongoClient("127.0.0.1", port, serverSelectionTimeoutMS=30_000)["tests"]
        yield database.get_collection("journal", write_concern=pymongo.WriteConcern("majority"))
    finally:
        process.kill()
        process.wait()


class TestMongoServer(JournalTests):
    @pytest.fixture
    def make(self, collection: Any) -> Callable[[], Any]:
        collection.drop()
        return lambda: recipe("mongo")(collection)


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    cluster = pytest.importorskip("cassandra.cluster", reason="cassandra-driver is not installed")
    try:
        socket.create_connection(("127.0.0.1", 9042), 1.0).close()
    except OSError:
        pytest.skip("no Cassandra at 127.0.0.1:9042")
    opened = cluster.Cluster(["127.0.0.1"])
    session = opened.connect()
    how = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    session.execute(f"CREATE KEYSPACE IF NOT EXISTS callboard_tests WITH replication = {how}")
    session.set_keyspace("callboard_tests")
    yield session
    session.execute("DROP KEYSPACE callboard_tests")
    opened.shutdown()


class TestCassandraServer(JournalTests):
    @pytest.fixture
    def make(self, session: Any) -> Callable[[], Any]:
        for table in ("journal_records", "journal_ends"):
            session.execute(f"DROP TABLE IF EXISTS {table}")
        return lambda: recipe("cassandra")(session)


@pytest.fixture(scope="module")
def resource() -> Iterator[Any]:
    boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")
    moto = pytest.importorskip("moto", reason="moto, which stands for DynamoDB, is not installed")
    with moto.mock_aws():
        keys = {"aws_access_key_id": "tests", "aws_secret_access_key": "tests"}
        yield boto3.resource("dynamodb", region_name="eu-central-1", **keys)


class TestDynamoServer(JournalTests):
    """boto3 itself, against the server that moto is."""

    @pytest.fixture
    def make(self, resource: Any) -> Callable[[], Any]:
        key = [("identity", "HASH", "S"), ("sequence", "RANGE", "N")]
        table = resource.create_table(
            TableName=f"journal-{uuid.uuid4()}",
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind, _ in key],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": of} for name, _, of in key],
            BillingMode="PAY_PER_REQUEST",
        )
        return lambda: recipe("dynamo")(table)

    @pytest.mark.skip(reason="moto copies the whole table for each transaction: minutes")
    def test_a_thousand_records_in_one_group(self, make: Callable[[], Any]) -> None: ...
