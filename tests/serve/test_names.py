"""Names of models with slashes, such as ``org/model``; and of their servers."""

from typing import Any

import pytest
from serve_lab import X, Y, client_of, request_of, tensor

import callboard as cb
from callboard.serve import App

NAME = "org/model"


async def test_a_name_with_a_slash_under_both_protocols() -> None:
    app = App()
    app.add_embeddings(NAME, lambda texts: [[float(len(text))] for text in texts], version="2")
    body = {"inputs": [tensor("text", "BYTES", [1], ["see"])]}
    async with client_of(app) as http:
        found = await http.post("/v1/embeddings", json={"model": NAME, "input": "see"})
        assert found.json()["data"][0]["embedding"] == [3.0]
        assert (await http.get("/v1/models/org/model")).json()["id"] == NAME
        assert (await http.get("/v1/models/org%2Fmodel")).json()["id"] == NAME
        for name in ("org%2Fmodel", "org/model"):
            for version in ("", "/versions/2"):
                url = f"/v2/models/{name}{version}"
                assert (await http.get(url)).json()["name"] == NAME
                for _ in range(2):  # the second comes from the table of routes
                    answer = (await http.post(f"{url}/infer", json=body)).json()
                    assert (answer["model_name"], answer["outputs"][0]["data"]) == (NAME, [3.0])
                for end in ("ready", "stats", "config"):
                    assert (await http.get(f"{url}/{end}")).status_code == 200
                assert (await http.get(f"{url}/infer")).status_code == 405
            assert (await http.get(f"/v2/models/{name}/nothing")).status_code == 404
        assert f'model="{NAME}"' in (await http.get("/metrics")).text


@pytest.mark.parametrize(
    "name, says",
    [
        ("", "parts of URLs"),
        ("/a", "parts of URLs"),
        ("a/", "parts of URLs"),
        ("a//b", "parts of URLs"),
        ("a/infer", "'infer' follows a model's name in URLs"),
        ("a/versions/b", "'versions' follows a model's name in URLs"),
        ("a/../b", "clients remove them"),
        ("..", "clients remove them"),
    ],
)
def test_names_that_no_url_can_have(name: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        App().add_embeddings(name, lambda texts: texts)


def test_tensors_are_asked_by_names_without_a_slash() -> None:
    with pytest.raises(ValueError, match="'org/model': under /v2 names are parts of URLs, so give one without '/'"):
        App().add_model(NAME, lambda x: x, inputs=X, outputs=Y)


async def test_a_name_that_begins_as_what_follows_one() -> None:
    app = App()
    for name in ("infer", "versions", "informed"):
        app.add_model(name, lambda x: x, inputs=X, outputs=Y)
    async with client_of(app) as http:
        for name in app.models:
            assert (await http.post(f"/v2/models/{name}/infer", json=request_of([1]))).status_code == 200


async def test_servers_without_a_name_are_called_as_their_model() -> None:
    class Own(cb.DynamicBatchingServer[Any, Any]):
        def __init__(self) -> None:
            super().__init__(lambda items: items)

    app = App("lab")
    app.add_embeddings("letters", cb.DynamicBatchingServer(lambda items: items))
    app.add_embeddings("own", Own())
    app.add_embeddings("kept", cb.DynamicBatchingServer(lambda items: items, name="mine"))
    app.add_embeddings("shared", cb.DynamicBatchingServer(lambda items: items), tenants={"a": 1.0})
    loaded = cb.ModelVersion("1", lambda: cb.DynamicBatchingServer(lambda items: items))
    app.add_embeddings("loaded", loaded)
    async with app.running():
        names = {name: [server.name for server in model.chain.servers] for name, model in app.models.items()}
        await app.models["loaded"].chain.load()
        again = [server.name for server in app.models["loaded"].chain.servers]
    assert names == {
        "letters": ["letters"],
        "own": ["own"],
        "kept": ["mine"],
        "shared": ["shared"] * 2,
        "loaded": ["loaded"] * 2,
    }
    assert again == ["loaded"] * 2
