"""The OpenAPI document and the page."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from serve_lab import client_of, request_of, small_app

from callboard.serve import App

METHODS = {"get", "post"}


async def document(app: App, **options: Any) -> Any:
    async with client_of(app, **options) as http:
        found = await http.get("/openapi.json")
    assert found.status_code == 200
    return found.json()


async def test_each_url_that_it_names_is_there() -> None:
    async with client_of(small_app()) as http:
        paths = (await http.get("/openapi.json")).json()["paths"]
        for path, methods in paths.items():
            url = path.replace("{model}", "double").replace("{version}", "1")
            for method, operation in methods.items():
                assert method in METHODS
                assert operation["summary"].endswith("."), path
                found = await http.request(method, url, content=b"[]" if method == "post" else None)
                assert found.status_code != 405
                if found.status_code == 404:  # of another kind of model, not of a URL that is not there
                    assert "Not Found" not in found.text
    assert {"/v2/models/{model}/infer", "/v1/embeddings", "/v1/chat/completions", "/metrics"} <= set(paths)


async def test_references_lead_somewhere_and_models_are_named() -> None:
    found = await document(small_app())

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            return [each for key, item in value.items() for each in ([item] if key == "$ref" else references(item))]
        return [each for item in value for each in references(item)] if isinstance(value, list) else []

    schemas = found["components"]["schemas"]
    assert {name.removeprefix("#/components/schemas/") for name in references(found)} <= set(schemas)
    infer = found["paths"]["/v2/models/{model}/infer"]["post"]
    assert infer["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/InferBody")
    (parameter,) = infer["parameters"]
    assert {"double", "sum"} <= set(parameter["schema"]["enum"])
    assert schemas["InferBody"]["required"] == ["inputs"]
    for path, methods in found["paths"].items():
        named = [each["name"] for operation in methods.values() for each in operation["parameters"]]
        assert set(named) == set(re.findall(r"{(\w+)}", path))


async def test_a_token_is_asked_for_and_said() -> None:
    app = small_app(token="secret")
    found = await document(app, headers={"Authorization": "Bearer secret"})
    assert found["security"] == [{"token": []}]
    assert found["paths"]["/v2/health/live"]["get"]["security"] == []
    assert "security" not in await document(small_app())
    async with client_of(small_app(token="secret")) as http:
        assert [(await http.get(path)).status_code for path in ("/openapi.json", "/docs")] == [401, 401]


async def test_the_page() -> None:
    app = small_app()
    app.name = "<b>lab</b>"
    async with client_of(app) as http:
        found = await http.get("/docs")
        await http.post("/v2/models/double/infer", json=request_of([1]))
    assert found.headers["content-type"] == "text/html; charset=utf-8"

    class Text(HTMLParser):
        text = ""

        def handle_data(self, data: str) -> None:
            self.text += data + "\n"

    parser = Text()
    parser.feed(found.text)
    assert "<b>" not in found.text
    for line in ("<b>lab</b>", "double", "x FP32 [-1] to y FP32 [-1]", "ready", "POST /v2/models/{model}/infer"):
        assert line in parser.text


@pytest.mark.parametrize("path", ["/openapi.json", "/docs"])
async def test_an_app_without_models(path: str) -> None:
    async with client_of(App()) as http:
        assert (await http.get(path)).status_code == 200
