"""Who may do what: rights by key and by a hook, the route of each right, and apps that need a rule."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from serve_lab import client_of, small_app

from callboard.cli import main
from callboard.serve import RIGHTS, App, HttpError, listening
from callboard.serve.bundled.appfile import app_of
from callboard.serve.bundled.demo import rights_of
from callboard.serve.routes import GETS, POSTS

KEYS: Any = {"asks": {"infer"}, "runs": ["control"], "looks": ("read",), "all": RIGHTS}

ROUTES = {
    "infer": [("POST", "/v2/models/double/infer"), ("POST", "/v1/embeddings"), ("POST", "/v1/chat/completions")],
    "control": [
        ("POST", "/v2/repository/models/double/load"),
        ("POST", "/v2/repository/models/double/unload"),
        ("POST", "/v2/trace/setting"),
        ("POST", "/v2/models/double/trace/setting"),
        ("POST", "/v2/systemsharedmemory/unregister"),
        ("POST", "/v2/systemsharedmemory/region/a/register"),
        ("POST", "/v2/quarantine/pardon"),
    ],
    "read": [
        *(("GET", path) for path in ("/v2/models/stats", "/v2/models/double/stats", "/v2/quarantine")),
        *(("GET", path) for path in ("/metrics", "/docs", "/openapi.json", "/v2/trace/setting")),
        *(("GET", path) for path in ("/v2/models/double/trace/setting", "/v2/systemsharedmemory/status")),
    ],
    "infer or read": [
        *(("GET", path) for path in ("/v2", "/v2/models/double", "/v2/models/double/versions/1", "/v1/models")),
        *(("GET", path) for path in ("/v2/models/double/ready", "/v2/models/double/config", "/v1/models/double")),
        ("POST", "/v2/repository/index"),
    ],
}


def controlled(tmp_path: Path, **options: Any) -> App:
    more: Any = {"model_control": True, "shared_memory": "callboard-rights-", "trace_file": tmp_path / "traces"}
    return small_app(**{**more, **options})


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_each_route_needs_its_right(tmp_path: Path) -> None:
    async with client_of(controlled(tmp_path, rights=KEYS)) as http:
        for right, routes in ROUTES.items():
            for method, path in routes:
                body = b"{}" if method == "POST" else None
                for key, given in KEYS.items():
                    found = await http.request(method, path, content=body, headers=bearer(key))
                    refused = found.status_code == 403 and "needs the right" in found.text
                    assert refused == (not {*right.split(" or ")} & {*given}), (key, path, found.text)
                for headers in ({}, bearer("none"), bearer(""), {"Authorization": "Basic all"}):
                    found = await http.request(method, path, content=body, headers=headers)
                    assert (found.status_code, found.headers["www-authenticate"]) == (401, "Bearer")
        for path in ("/v2/health/live", "/v2/health/ready"):
            assert (await http.get(path)).status_code == 200


def test_each_route_is_in_the_list() -> None:
    listed = {
        path.replace("/double", "/{model}").replace("/a/", "/{region}/") for all_ in ROUTES.values() for _, path in all_
    }
    for path in [*GETS, *POSTS]:
        known = path.replace("/versions/{version}", "") in listed or path == "/v1/models/{model}"
        assert known or path.endswith(
            ("/stats", "status", "/generate", "/generate_stream", "/completions", "register", "/config", "/ready")
        )


async def test_a_hook_decides_by_the_headers() -> None:
    def rights(headers: Any) -> set[Any]:
        if "x-key" not in headers:
            raise HttpError("give your key in X-Key", 401)
        return {"read"} if headers["x-key"] == "a" else set()

    async with client_of(small_app(rights=rights)) as http:
        found = [await http.get("/metrics", headers=headers) for headers in ({}, {"X-Key": "a"}, {"X-Key": "b"})]
    assert [each.status_code for each in found] == [401, 200, 403]
    assert found[2].json()["error"] == "this request needs the right 'read', which its key does not have"


async def test_a_token_alone_has_all_rights(tmp_path: Path) -> None:
    app = controlled(tmp_path, token="secret")
    async with client_of(app, headers=bearer("secret")) as http:
        for method, path in (each for routes in ROUTES.values() for each in routes):
            assert (await http.request(method, path, content=b"{}" if method == "POST" else None)).status_code not in (
                401,
                403,
            )


async def test_a_token_beside_other_keys_has_all_rights() -> None:
    async with client_of(small_app(token="secret", rights=KEYS)) as http:
        for key, status in (("secret", 200), ("looks", 200), ("asks", 403), ("none", 401)):
            assert (await http.get("/metrics", headers=bearer(key))).status_code == status


@pytest.mark.parametrize("option", ["model_control", "shared_memory", "trace_file"])
async def test_control_without_a_rule_is_refused_at_the_start(option: str, tmp_path: Path) -> None:
    value: Any = {"model_control": True, "shared_memory": "callboard-", "trace_file": tmp_path / "traces"}[option]
    entered = False

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        nonlocal entered
        entered = True
        yield

    def app(**more: Any) -> App:
        return App("lab", lifespan=lifespan, **{option: value}, **more)

    with pytest.raises(
        ValueError, match=f"lab has {option}, and nothing says which clients may use it: give token, or"
    ):
        async with app().running():
            pass
    with pytest.raises(ValueError, match="nothing says which clients"):
        async with listening(app(), port=0):
            pass
    assert not entered
    for rule in ({"token": "a"}, {"rights": KEYS}, {"rights": lambda headers: RIGHTS}):
        async with app(**rule).running():
            pass


@pytest.mark.parametrize(
    "options, error, says",
    [
        ({"rights": {}}, ValueError, "rights has no keys"),
        ({"rights": {"ü": {"read"}}}, ValueError, "a key of rights must be visible ASCII"),
        ({"rights": {"a": set()}}, ValueError, "a key of rights has no right"),
        ({"rights": {"a": {"write"}}}, TypeError, "it must return a set of rights, which are 'infer' or 'control' or"),
        ({"rights": {"a": "infer"}}, TypeError, "a set of rights"),
        ({"rights": {"infer"}}, TypeError, "a function of the headers, or sets of rights by key"),
    ],
)
def test_rules_that_do_not_fit(options: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says) as e:
        App(**options)
    assert "ü" not in str(e.value)


async def test_the_command_refuses_it_and_a_token_file_is_a_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.toml").write_text("model_control = true\n")
    assert main(["serve", str(tmp_path / "a.toml"), "--port", "0"]) == 2
    assert "has model_control, and nothing says which clients may use it" in capsys.readouterr().err


# -- TOML --------------------------------------------------------------------------------------------------------------


async def test_keys_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "ops.key").write_text("of-ops\n")
    text = """
model_control = true
[keys.shop]
env = "SHOP_KEY"
rights = ["infer"]
[keys.ops]
file = "ops.key"
rights = ["control", "read"]
"""
    (tmp_path / "a.toml").write_text(text)
    async with client_of(app_of(tmp_path / "a.toml", {"SHOP_KEY": "of-shop"})) as http:
        for key, status in (("of-shop", 403), ("of-ops", 200), ("ops", 401)):
            assert (await http.get("/metrics", headers=bearer(key))).status_code == status


@pytest.mark.parametrize(
    "text, says",
    [
        ('rights = ["read"]', "keys.a: give one of env and file"),
        ('env = "A"\nfile = "a"\nrights = ["read"]', "keys.a: give one of env and file"),
        ('env = "NONE"\nrights = ["read"]', "keys.a: the variable NONE is not set"),
        ('env = "A"\nrights = []', "keys.a: rights is empty"),
        ('env = "A"\nrights = ["write"]', r"Invalid enum value 'write' - at `keys\.a\.rights\[0\]`"),
        (
            'env = "A"\nrights = ["read"]\n[keys.b]\nenv = "A"\nrights = ["read"]',
            "keys.b: the key is that of keys.a, too",
        ),
        ('env = "U"\nrights = ["read"]', "keys.a must be visible ASCII"),
        ('env = "A"\nrights = ["read"]\n[limits]\n', None),
    ],
)
def test_keys_that_do_not_fit(text: str, says: str | None, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(f"[keys.a]\n{text}\n")
    environ = {"A": "key-of-a", "U": "ü"}
    if says is None:
        app_of(tmp_path / "a.toml", environ)
        return
    with pytest.raises(ValueError, match=says) as e:
        app_of(tmp_path / "a.toml", environ)
    assert "key-of-a" not in str(e.value)


def test_the_demo_lets_only_paid_control() -> None:
    assert rights_of({"authorization": "Bearer paid"}) == RIGHTS
    assert rights_of({}) == rights_of({"authorization": "Bearer other"}) == {"infer", "read"}
