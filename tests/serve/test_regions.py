"""Tensors in system shared memory that clients register."""

import mmap
import os
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serve_lab import client_of, request_of, small_app, tensor

from callboard.serve import App, BadRequest
from callboard.serve.encoding.regions import FOLDER, Place, Regions

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="shared memory by name is Linux only")

PREFIX = "callboard-test-"


class SharedMemory:
    """64 bytes under a name, as a client makes them; Python's own class starts a process that outlives the test."""

    def __init__(self) -> None:
        self.name = f"{PREFIX}{uuid.uuid4().hex}"
        file = os.open(f"{FOLDER}/{self.name}", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.truncate(file, 64)
        self.buf = mmap.mmap(file, 64)
        os.close(file)

    def unlink(self) -> None:
        self.buf.close()
        os.unlink(f"{FOLDER}/{self.name}")


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    """8 numbers of FP32 at the start, and room."""
    found = SharedMemory()
    found.buf[:32] = np.arange(8, dtype="f4").tobytes()
    yield found
    found.unlink()


def shared(offset: int, size: int, region: str = "r") -> dict[str, Any]:
    return {"shared_memory_region": region, "shared_memory_byte_size": size, "shared_memory_offset": offset}


def infer(place_in: Any, place_out: Any = None, n: int = 2) -> dict[str, Any]:
    given_ = {"name": "x", "datatype": "FP32", "shape": [n], "parameters": place_in}
    return {"inputs": [given_], "outputs": [{"name": "y", "parameters": place_out or {}}]}


async def test_inputs_and_outputs_by_region(memory: SharedMemory) -> None:
    async with client_of(small_app(shared_memory=PREFIX)) as http:
        assert "system_shared_memory" in (await http.get("/v2")).json()["extensions"]
        url = "/v2/systemsharedmemory/region/r"
        found = await http.post(f"{url}/register", json={"key": f"/{memory.name}", "offset": 4, "byte_size": 60})
        assert (found.status_code, found.json()) == (200, {})
        told = [{"name": "r", "key": f"/{memory.name}", "offset": 4, "byte_size": 60}]
        assert (
            (await http.get(f"{url}/status")).json() == (await http.get("/v2/systemsharedmemory/status")).json() == told
        )
        found = await http.post("/v2/models/double/infer", json=infer(shared(4, 8), shared(40, 8)))
        assert found.json()["outputs"] == [
            {"name": "y", "datatype": "FP32", "shape": [2], "parameters": shared(40, 8)},
        ]
        assert np.frombuffer(bytes(memory.buf[44:52]), "f4").tolist() == [4, 6]  # twice the numbers 2 and 3
        assert np.frombuffer(bytes(memory.buf[:32]), "f4").tolist() == list(range(8))
        found = await http.post("/v2/models/double/infer", json=infer(shared(4, 8)))
        assert found.json()["outputs"][0]["data"] == [4, 6]
        assert (await http.post(f"{url}/unregister")).status_code == 200
        assert (await http.post("/v2/systemsharedmemory/unregister")).status_code == 200
        assert (await http.get("/v2/systemsharedmemory/status")).json() == []
        assert (await http.get(f"{url}/status")).status_code == 404


@pytest.mark.parametrize(
    "body, says",
    [
        (infer(shared(0, 8, "none")), "there is no shared memory region 'none'"),
        (infer(shared(0, 12)), "has 12 bytes, but FP32 of shape [2] has 8"),
        (infer(shared(60, 8)), "region 'r' has 64 bytes: 8 from 60 on are too many"),
        (infer({**shared(0, 8), "shared_memory_byte_size": -1}), "integers of at least 0"),
        (infer({**shared(0, 8), "shared_memory_offset": "0"}), "integers of at least 0"),
        (infer({**shared(0, 8), "shared_memory_region": 7}), "must be a name"),
        (infer({**shared(0, 8), "binary_data_size": 8}), "has data as well"),
        (infer(shared(0, 8), shared(0, 4)), "8 bytes do not fit into 4 bytes"),
        (infer(shared(0, 8), shared(64, 8)), "are too many"),
    ],
)
async def test_places_that_are_refused(memory: SharedMemory, body: dict[str, Any], says: str) -> None:
    app = small_app(shared_memory=PREFIX)
    async with client_of(app) as http:
        assert app.regions is not None
        app.regions.register("r", memory.name, 0, 64)
        found = await http.post("/v2/models/double/infer", json=body)
        assert found.status_code == 400
        assert says in found.json()["error"]
        assert memory.buf[:32] == np.arange(8, dtype="f4").tobytes()


async def test_without_leave_there_is_none(memory: SharedMemory) -> None:
    async with client_of(small_app()) as http:
        assert "system_shared_memory" not in (await http.get("/v2")).json()["extensions"]
        url = "/v2/systemsharedmemory"
        body = {"key": memory.name, "byte_size": 64}
        for found in (
            await http.get(f"{url}/status"),
            await http.post(f"{url}/region/r/register", json=body),
            await http.post(f"{url}/unregister"),
        ):
            assert found.status_code == 403
        found = await http.post("/v2/models/double/infer", json=infer(shared(0, 8)))
        assert found.status_code == 400
        assert "the app has no shared_memory" in found.json()["error"]
        assert (await http.post("/v2/models/double/infer", json=request_of([1.0]))).status_code == 200


@pytest.mark.parametrize(
    "key, offset, size, says",
    [
        ("other", 0, 8, "begin with 'callboard-test-'"),
        (f"{PREFIX}none", 0, 8, "cannot be opened"),
        (f"{PREFIX}../{PREFIX}x", 0, 8, "no key of shared memory"),
        (f"../{PREFIX}", 0, 8, "no key of shared memory"),
        ("", 0, 8, "no key of shared memory"),
        (f"{PREFIX}\0", 0, 8, "no key of shared memory"),
        (PREFIX + "x" * 255, 0, 8, "no key of shared memory"),
        (None, 60, 8, "has no 8 bytes from 60 on"),
        (None, 0, 0, "integers from 0 and 1 on"),
        (None, -1, 8, "integers from 0 and 1 on"),
        (None, 1 << 63, 8, "integers from 0 and 1 on"),
    ],
)
def test_regions_that_are_refused(memory: SharedMemory, key: Any, offset: int, size: int, says: str) -> None:
    regions = Regions(PREFIX)
    with pytest.raises(BadRequest, match=says):
        regions.register("r", memory.name if key is None else key, offset, size)
    assert regions.status() == []


def test_links_and_folders_are_not_followed(memory: SharedMemory) -> None:
    regions = Regions(PREFIX)
    name = f"{PREFIX}{uuid.uuid4().hex}"
    path = f"{FOLDER}/{name}"
    for make, remove in (
        (lambda: os.symlink("/etc/hostname", path), os.unlink),
        (lambda: os.mkdir(path), os.rmdir),
        (lambda: os.mkfifo(path), os.unlink),
    ):
        make()
        try:
            with pytest.raises(BadRequest, match=r"cannot be opened|has no"):
                regions.register("r", name, 0, 1)
        finally:
            remove(path)


def test_a_name_is_taken_once_and_there_is_a_bound(memory: SharedMemory) -> None:
    regions = Regions(PREFIX)
    for n in range(256):
        regions.register(f"r{n}", memory.name, 0, 8)
    with pytest.raises(BadRequest, match="registered already"):
        regions.register("r0", memory.name, 0, 8)
    with pytest.raises(BadRequest, match="256 shared memory regions"):
        regions.register("one more", memory.name, 0, 8)
    regions.unregister("r0")
    regions.unregister("never there")
    regions.register("one more", memory.name, 0, 8)
    regions.unregister()
    assert regions.status() == []


def test_memory_that_its_client_has_shortened_ends_no_process(memory: SharedMemory) -> None:
    regions = Regions(PREFIX)
    regions.register("r", memory.name, 0, 64)
    os.truncate(f"{FOLDER}/{memory.name}", 16)
    with pytest.raises(BadRequest, match="is shorter than it was"):
        regions.read(Place("r", 0, 64))
    assert bytes(regions.read(Place("r", 0, 16))) == np.arange(4, dtype="f4").tobytes()
    os.truncate(f"{FOLDER}/{memory.name}", 64)  # it is mapped here, too
    regions.unregister()


@settings(max_examples=60)
@given(data=st.data(), base=st.integers(0, 32))
def test_what_is_written_is_read_and_nothing_beside_it(data: st.DataObject, base: int) -> None:
    memory = SharedMemory()
    try:
        regions = Regions(PREFIX)
        regions.register("r", memory.name, base, 64 - base)
        expected = bytearray(64)
        for _ in range(4):
            offset = data.draw(st.integers(0, 64 - base))
            content = data.draw(st.binary(max_size=64 - base - offset))
            regions.write(Place("r", offset, len(content)), content)
            expected[base + offset : base + offset + len(content)] = content
            assert bytes(regions.read(Place("r", offset, len(content)))) == content
        assert bytes(memory.buf[:64]) == bytes(expected)
        regions.unregister()
    finally:
        memory.unlink()


@pytest.mark.parametrize("prefix", ["", "/", "a/b", ".hidden", "x" * 256])
def test_a_prefix_is_the_beginning_of_a_key(prefix: str) -> None:
    with pytest.raises(ValueError, match="no key of shared memory"):
        App(shared_memory=prefix)


async def test_texts_come_by_region_as_well(memory: SharedMemory) -> None:
    app = small_app(shared_memory=PREFIX)
    raw = b"\x02\0\0\0hi\x00\0\0\0"
    memory.buf[32 : 32 + len(raw)] = raw
    async with client_of(app) as http:
        assert app.regions is not None
        app.regions.register("r", memory.name, 0, 64)
        item = {**tensor("x", "BYTES", [2], None), "parameters": shared(32, len(raw))}
        found = await http.post("/v2/models/echo/infer", json={"inputs": [item]})
        assert found.json()["outputs"][0]["data"] == ["hi", ""]
    assert app.regions.status() == []  # at the app's end
