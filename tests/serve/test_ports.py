"""Where an app listens: Unix sockets, and behind a proxy that takes a path off."""

import socket
from pathlib import Path

import httpx
import pytest
from serve_lab import request_of, small_app

from callboard.serve import listening
from callboard.serve.errors import CannotListen

INFER = "/v2/models/double/infer"


async def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "app.sock"
    with socket.socket(socket.AF_UNIX) as killed:  # its file stays
        killed.bind(str(path))
    async with listening(small_app(), uds=path) as url:
        assert url == f"unix:{path}"
        transport = httpx.AsyncHTTPTransport(uds=str(path))
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as http:
            assert (await http.post(INFER, json=request_of([2]))).json()["outputs"][0]["data"] == [4.0]
        with pytest.raises(CannotListen, match=f"cannot listen on {path}: Address already in use"):
            async with listening(small_app(), uds=path):
                raise AssertionError
    assert not path.exists()


async def test_a_file_is_no_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("kept")
    with pytest.raises(CannotListen, match=r"cannot listen on .*file: Address already in use"):
        async with listening(small_app(), uds=path):
            raise AssertionError
    assert path.read_text() == "kept"


async def test_behind_a_proxy_that_takes_a_path_off() -> None:
    async with (
        listening(small_app(), port=0, root_path="/models") as url,
        httpx.AsyncClient(base_url=url) as http,
    ):
        for _ in range(2):
            assert (await http.post(INFER, json=request_of([2]))).status_code == 200
        assert (await http.get("/v2/nothing")).json()["error"].startswith("GET /v2/nothing: ")
        for response in (await http.get("/v1/models/none"), await http.post("/v1/embeddings", json={})):
            assert set(response.json()["error"]) == {"message", "type", "param", "code"}
        assert (await http.get("/openapi.json")).json()["servers"] == [{"url": "/models"}]


@pytest.mark.parametrize("path", ["models", "/models/", "/mödels"])
async def test_a_root_path_that_is_none(path: str) -> None:
    with pytest.raises(ValueError, match="root_path must be empty, or ASCII such as /models"):
        async with listening(small_app(), port=0, root_path=path):
            raise AssertionError
