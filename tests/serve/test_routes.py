"""Routes of one's own: JSON of the application's types to any kind of model."""

import dataclasses
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypedDict

import httpx
import msgspec
import numpy as np
import pytest
from serve_lab import client_of

import callboard as cb
from callboard.serve import App, BadRequest

pydantic = pytest.importorskip("pydantic")


class Review(msgspec.Struct):
    text: str
    stars: int = 5


class Label(msgspec.Struct):
    name: str
    scores: list[float] = []


@dataclasses.dataclass
class Point:
    x: float
    y: float


class Named(TypedDict):
    name: str


class Item(pydantic.BaseModel):  # type: ignore[misc, name-defined, unused-ignore]
    price: float = pydantic.Field(gt=0)


class Order(pydantic.BaseModel):  # type: ignore[misc, name-defined, unused-ignore]
    items: list[Item]


class Basket(msgspec.Struct):
    orders: list[Order]


def classify(review: Review) -> Label:
    if not review.text:
        raise BadRequest("text is empty")
    return Label(review.text.upper(), [float(review.stars)])


def classify_all(reviews: list[Review]) -> list[Label | Exception]:
    return [ValueError("bad") if each.text == "bad" else classify(each) for each in reviews]


def total(order: Order) -> float:
    return sum(each.price for each in order.items)


class Classifier(cb.ResidentActor):
    def classify(self, review: Review) -> Label:
        return classify(review)

    def classify_all(self, reviews: list[Review]) -> list[Label]:
        return [classify(each) for each in reviews]

    def discounted(self, order: Order) -> Order:
        return Order(items=[Item(price=each.price / 2) for each in order.items])


async def letters(review: Review) -> AsyncIterator[Label]:
    for each in review.text:
        if each == "!":
            raise BadRequest("no !")
        yield Label(each)


@asynccontextmanager
async def lifespan(app: App) -> AsyncIterator[None]:
    async with cb.device("cpu", isolation="process") as device:
        actor = device.actor_of(cb.Props(Classifier))
        app.add_route("/actor", functools.partial(actor.call, Classifier.classify))
        batches = cb.DynamicBatchingServer(functools.partial(actor.call, Classifier.classify_all), max_batch=4)
        app.add_route("/actor/batches", batches, tenants={None: 1})
        app.add_route("/discounted", functools.partial(actor.call, Classifier.discounted))
        yield


def the_app(**options: Any) -> App:
    app = App(**options)
    app.add_route("/function", classify)
    app.add_route("/batches", cb.DynamicBatchingServer(classify_all, max_batch=4))
    app.add_route("/version", cb.ModelVersion("7", lambda: classify), request=Review, response=Label)
    app.add_route("/total", total)
    app.add_route(
        "/baskets", lambda basket: [total(each) for each in basket.orders], request=Basket, response=list[float]
    )
    app.add_route("/points", lambda points: np.array([[p.x, p.y] for p in points], "f4"), request=list[Point])
    app.add_route("/letters", letters)
    app.add_route("/named", lambda named: {**named, "more": 1}, request=Named, response=Named)
    app.add_route("/wrong", lambda review: {"names": 1}, request=Review, response=Label)
    return app


MODELS = ["/function", "/batches", "/version", "/actor", "/actor/batches"]


async def test_each_kind_of_model_gets_and_gives_the_types() -> None:
    async with client_of(the_app(lifespan=lifespan)) as http:
        for path in MODELS:
            found = await http.post(path, json={"text": "good", "stars": 3})
            assert (found.status_code, found.json()) == (200, {"name": "GOOD", "scores": [3.0]}), path
        order = {"items": [{"price": 2}, {"price": 3}]}
        assert (await http.post("/total", json=order)).json() == 5.0
        assert (await http.post("/discounted", json=order)).json() == {"items": [{"price": 1.0}, {"price": 1.5}]}
        assert (await http.post("/baskets", json={"orders": [order]})).json() == [5.0]
        assert (await http.post("/named", json={"name": "a"})).json() == {"name": "a"}
        assert (await http.post("/points", json=[{"x": 1, "y": 2.5}])).json() == [[1.0, 2.5]]
        for path in MODELS:
            stats = (await http.get(f"/v2/models{path}/stats")).json()["model_stats"][0]
            assert (stats["name"], stats["inference_stats"]["success"]["count"]) == (path[1:], 1)
        assert 'route="/actor/batches",status="200"' in (await http.get("/metrics")).text
        assert (await http.post("/v2/models/function/infer", json={})).json()["error"].endswith("ask it at /function")
        assert (await http.get("/function")).status_code == 405


async def test_a_row_of_a_batch_fails_alone() -> None:
    async with client_of(the_app()) as http:
        assert (await http.post("/batches", json={"text": "bad"})).status_code == 500
        assert (await http.post("/batches", json={"text": "good"})).status_code == 200


@pytest.mark.parametrize(
    "path, body, says",
    [
        ("/function", b'{"stars": 1}', "missing required field `text`"),
        ("/function", b'{"text": "a", "stars": "x"}', "Expected `int`, got `str` - at `$.stars`"),
        ("/function", b"", "the body does not fit: "),
        ("/function", b"[" * 100_000, "the body does not fit: "),
        ("/function", b'{"text": ""}', "text is empty"),
        (
            "/total",
            b'{"items": [{"price": 1}, {"price": "x"}]}',
            "unable to parse string as a number - at `$.items[1].price`",
        ),
        (
            "/total",
            b'{"items": [{"price": -1}, {}]}',
            "- at `$.items[0].price`; Field required - at `$.items[1].price`",
        ),
        ("/total", b"{", "Invalid JSON"),
        ("/baskets", b'{"orders": [{"items": [{}]}]}', "Field required in `.items[0].price` - at `$.orders[0]`"),
        ("/points", b'[{"x": 1}]', "missing required field `y` - at `$[0]`"),
    ],
)
async def test_a_body_that_does_not_fit_is_refused_by_field(path: str, body: bytes, says: str) -> None:
    async with client_of(the_app()) as http:
        found = await http.post(path, content=body)
    assert found.status_code == 400
    assert says in found.json()["error"]


async def test_a_result_that_does_not_fit_is_the_models_failure(caplog: pytest.LogCaptureFixture) -> None:
    async with client_of(the_app()) as http:
        found = await http.post("/wrong", json={"text": "a"})
    assert (found.status_code, found.json()["error"][:28]) == (500, "the model returned something")
    assert "the response of '/wrong': dict does not fit: Object missing required field `name`" in caplog.text


async def test_a_function_that_yields_answers_in_parts() -> None:
    async with client_of(the_app()) as http:
        found = await http.post("/letters", json={"text": "ab"})
        failed = await http.post("/letters", json={"text": "a!"})
        none = await http.post("/letters", json={"text": "!"})
    assert found.headers["content-type"].startswith("text/event-stream")
    assert found.text == 'data: {"name":"a","scores":[]}\n\ndata: {"name":"b","scores":[]}\n\n'
    assert failed.text.endswith('data: {"error":"no !","code":"BadRequest","status":400}\n\n')
    assert none.status_code == 400


async def test_rights_are_those_of_requests_to_models() -> None:
    keys: Any = {"asks": {"infer"}, "reads": {"read"}, "controls": {"control"}}
    app = App(rights=keys)
    app.add_route("/function", classify)
    async with client_of(app) as http:
        statuses = [
            (await http.post("/function", json={"text": "a"}, headers={"authorization": f"Bearer {key}"})).status_code
            for key in (*keys, "unknown")
        ]
    assert statuses == [200, 403, 403, 401]


async def test_the_document_has_the_types() -> None:
    async with client_of(the_app()) as http:
        found: Any = (await http.get("/openapi.json")).json()
        page = (await http.get("/docs")).text
    schemas = found["components"]["schemas"]

    def resolved(path: str, *more: str) -> Any:
        at = found["paths"][path]["post"]
        for each in more:
            at = at[each]
        (content,) = at["content"].values()
        return schemas[content["schema"]["$ref"].rpartition("/")[2]]

    assert resolved("/function", "requestBody")["required"] == ["text"]
    assert set(resolved("/function", "responses", "200")["properties"]) == {"name", "scores"}
    assert resolved("/total", "requestBody")["properties"]["items"]["items"] == {
        "$ref": "#/components/schemas/Order.Item"
    }
    assert schemas["Order.Item"]["properties"]["price"]["exclusiveMinimum"] == 0
    assert list(found["paths"]["/letters"]["post"]["responses"]["200"]["content"]) == ["text/event-stream"]
    assert "Review to Label" in page


async def test_no_route_is_missing_while_the_app_starts() -> None:
    app = App()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://lab") as http:
        found = await http.post("/function", json={})
    assert (found.status_code, found.headers["retry-after"]) == (503, "1")


def unannotated(review):  # type: ignore[no-untyped-def]
    return review


class Foreign:
    pass


@pytest.mark.parametrize(
    "path, model, options, error, says",
    [
        ("classify", classify, {}, ValueError, "give a path such as '/classify'"),
        ("/a/{b}", classify, {}, ValueError, "without parameters"),
        ("/v2/a", classify, {}, ValueError, "the app itself answers there"),
        ("/metrics", classify, {}, ValueError, "the app itself answers there"),
        ("/taken", classify, {}, ValueError, "there is one already"),
        ("/other", classify, {"name": "taken"}, ValueError, "there is a model 'taken' already"),
        ("/a", unannotated, {}, TypeError, "give request="),
        ("/a", cb.ModelVersion("1", lambda: classify), {}, TypeError, "give request="),
        ("/a", classify, {"request": Foreign}, TypeError, "is no type of msgspec or pydantic"),
        ("/a", lambda: 1, {"request": Review}, TypeError, "cannot take 1 argument"),
    ],
)
def test_what_can_be_no_route(
    path: str, model: Any, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    app = App()
    app.add_route("/taken", classify)
    with pytest.raises(error, match=says):
        app.add_route(path, model, **options)
