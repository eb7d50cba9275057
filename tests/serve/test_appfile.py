"""Apps as TOML files."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from serve_lab import client_of, request_of, tensor

from callboard.cli.serving.apps import find_app
from callboard.serve.bundled.appfile import app_of
from callboard.serve.errors import BadAppFile

MODULE = """
def double(x):
    return 2 * x

def triple(items):
    return [3 * item for item in items]

def lengths(texts):
    return [[float(len(text))] for text in texts]
"""
X = """
inputs = [{name = "x", datatype = "FP32", shape = [-1]}]
outputs = [{name = "y", datatype = "FP32", shape = [-1]}]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "toml_models.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("toml_models", None)


def written(folder: Path, text: str) -> Path:
    path = folder / "app.toml"
    path.write_text(text)
    return path


async def test_functions_batches_embeddings_tenants_limits_and_a_token(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "secret")
    path = written(
        folder,
        f"""
name = "shop"
shared_memory = "shop-"
token_env = "SHOP_TOKEN"
tenant_header = "x-tenant"
[limits]
max_body = 1000
[models.double]
call = "toml_models:double"
version = "3"
{X}
[models.triple]
call = "toml_models:triple"
max_batch = 8
tenants = {{a = 1, b = 3}}
{X}
[models.letters]
embeddings = "toml_models:lengths"
vocabulary = 9
""",
    )
    app = find_app(str(path))
    assert (app.name, app.limits.max_body, app.regions and app.regions.prefix) == ("shop", 1000, "shop-")
    async with client_of(app, headers={"Authorization": "Bearer secret", "X-Tenant": "b"}) as http:
        for name, factor in (("double/versions/3", 2.0), ("triple", 3.0)):
            found = await http.post(f"/v2/models/{name}/infer", json=request_of([1, 2]))
            assert found.json()["outputs"][0]["data"] == [factor, 2 * factor]
        found = await http.post("/v1/embeddings", json={"model": "letters", "input": ["a", "bcd"]})
        assert [each["embedding"] for each in found.json()["data"]] == [[1.0], [3.0]]
        for tokens, status in (([1, 8], 200), ([9], 400)):
            assert (await http.post("/v1/embeddings", json={"model": "letters", "input": tokens})).status_code == status
        assert (await http.get("/v1/models", headers={"Authorization": ""})).status_code == 401
        stats: Any = app.models["triple"].server
        assert stats.stats().tenants["b"].served == 1


async def test_versions_and_settings_of_tenants(folder: Path) -> None:
    path = written(
        folder,
        f"""
tenant_header = "x-tenant"
[models.scale]
version = "v2"
{X}
[models.scale.call]
v1 = "toml_models:double"
v2 = "toml_models:double"
[models.triple]
call = {{ one = "toml_models:triple" }}
max_batch = 8
{X}
[models.triple.tenants]
a = 1
b = {{ weight = 3, max_queue = 5, rate = 1000, hard = true }}
""",
    )
    app = app_of(path)
    async with client_of(app, headers={"X-Tenant": "b"}) as http:
        found = [
            (await http.post(f"/v2/models/{model}/infer", json=request_of([1]))).json()
            for model in ("scale", "scale/versions/v1", "triple")
        ]
        assert [(each["model_version"], each["outputs"][0]["data"]) for each in found] == [
            *(("v2", [2.0]), ("v1", [2.0]), ("one", [3.0])),
        ]
        stats: Any = app.models["triple"].server
        assert stats.stats().tenants["b"].weight == 3


async def test_an_onnx_file_beside_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "secret")
    datasets = pytest.importorskip("onnxruntime.datasets", reason="for the extra onnx")
    shutil.copy(datasets.get_example("mul_1.onnx"), folder / "mul.onnx")
    settings = 'device = "cpu"\ntoken_env = "SHOP_TOKEN"\nmodel_control = true\n'
    monkeypatch.setenv("CALLBOARD_ISOLATION", "thread")
    app = app_of(written(folder, f'{settings}[models.mul]\nonnx = "mul.onnx"\nreplicas = 2\n'))
    async with client_of(app, headers={"Authorization": "Bearer secret"}) as http:
        x = tensor("X", "FP32", [3, 2], [1.0] * 6)
        found = await http.post("/v2/models/mul/infer", json={"inputs": [x]})
        assert found.json()["outputs"][0]["data"] == [1, 2, 3, 4, 5, 6]
        pool: Any = app.models["mul"].chain.last
        assert [each.name for each in pool.stats().replicas] == ["replica-0", "replica-1"]
        assert (await http.post("/v2/repository/models/mul/load")).status_code == 200
        assert (await http.post("/v2/models/mul/infer", json={"inputs": [x]})).status_code == 200
        assert app.models["mul"].chain.last is not pool


@pytest.mark.slow
async def test_an_onnx_file_that_cannot_be_loaded_is_named_with_its_model(folder: Path) -> None:
    datasets = pytest.importorskip("onnxruntime.datasets", reason="for the extra onnx")
    shutil.copy(datasets.get_example("mul_1.onnx"), folder / "mul.onnx")
    (folder / "junk.onnx").write_text("junk")
    for model, says in (
        ('onnx = "mul.onnx"\nmax_batch = 8', r"app.toml: models.m: .*mul.onnx: the first extent of each tensor must"),
        ('onnx = "junk.onnx"', r"app.toml: models.m: .*junk.onnx: this is no ONNX model"),
    ):
        with pytest.raises(BadAppFile, match=says):
            async with client_of(app_of(written(folder, f'device = "cpu"\n[models.m]\n{model}\n'))):
                raise AssertionError


DOUBLE = "[models.m]\ncall = 'toml_models:double'\n"


@pytest.mark.parametrize(
    "text, says",
    [
        ("name = ", "app.toml: Invalid value"),
        ("nam = 'a'", "unknown field `nam`"),
        ("[models.m]\ncal = 'a:b'", r"app.toml: .*unknown field `cal` - at `models\.m`"),
        (
            "[models.a]\nonnx = 'a'\n[models.'b/c'.tenants]\na = 1\nd.wait = 2",
            r"unknown field `wait` - at `models\.b/c\.tenants\.d`",
        ),
        ("[models.a.inputs]", r"Expected `array`, got `object` - at `models\.a\.inputs`"),
        ("[models.a]\ncall.b = 1", r"Expected `str`, got `int` - at `models\.a\.call\.b`"),
        ("[keys.a]\nrights = ['infer']\n[keys.b]\nrights = ['all']", r"'all' - at `keys\.b\.rights\[0\]`"),
        ("[limits]\nmax_body = 'x'", r"Expected `float`, got `str` - at `limits\.max_body`"),
        ("[models.m]\ncall = 'toml_models:double'\nreplicas = 2\n" + X, "replicas and devices are for onnx only"),
        ("[models.m]\ncall = 'toml_models:double'\nvocabulary = 2\n" + X, "vocabulary is for embeddings only"),
        ("[models.m]\nonnx = 'a.onnx'\nreplicas = 0", "models.m: replicas must be at least 1, but is 0"),
        ("[models.m]\nonnx = 'a.onnx'\nreplicas = 3\ndevices = ['cpu', 'cpu']", "replicas is 3, but devices names 2"),
        ("[models.m]\n", "models.m: give one of onnx, call and embeddings, not 0"),
        ("[models.m]\nonnx = 'a'\ncall = 'a:b'\n", "not 2 of them"),
        ("[models.m]\ncall = 'toml_models'\n" + X, "does not name a function"),
        ("[models.m]\ncall = 'toml_models:none'\n" + X, "module 'toml_models' has no 'none'"),
        ("[models.m]\ncall = 'no_such_module:none'\n" + X, "there is no module 'no_such_module'"),
        ("[models.m]\ncall = 'toml_models:double'\n", "inputs must be tensors"),
        ("[models.m]\ncall = 'toml_models:double'\n" + X.replace("FP32", "F32"), "datatype is 'F32'"),
        ("[models.m]\nonnx = 'a.onnx'\n" + X, "declares its own"),
        ("[models.m]\ncall = 'toml_models:double'\ntenants.a.wait = 1\n" + X, "unknown field `wait`"),
        (
            "[models.m]\ncall = 'toml_models:double'\ntenants.a.burst = 1\n" + X,
            "models.m: burst is 1.0, but there is no",
        ),
        ("[models.m]\ncall = {a = 'toml_models:none'}\n" + X, "module 'toml_models' has no 'none'"),
        ("[models.m]\nversion = 'b'\ncall = {a = 'toml_models:double'}\n" + X, "models.m: "),
        ("[models.m]\nonnx = 'a.onnx'\n", r"models.m: there is no file .*/a.onnx, which onnx names"),
        ("[limits]\nmax_bod = 1", "max_bod"),
        ('shared_memory = ""', "no key of shared memory"),
        ("[limits]\nmax_body = 0", "max_body must be positive"),
        ("[limits]\nmax_body = inf", r"limits\.max_body must be a whole number of bytes, but is inf"),
        ("[limits]\nmax_bodies = 1.5", r"limits\.max_bodies must be a whole number of bytes, but is 1.5"),
        ("[limits]\nbody_timeout = nan", "body_timeout must be positive, but is nan"),
        ("tenant_header = 'a b'", "tenant_header is 'a b', which is no name of a header"),
        ("tenant_header = ''", "tenant_header is '', which is no name of a header"),
        ("device = 'nope'", "device: no device is called 'nope'"),
        ("device = 'cpu:99'", "device: there is no device 'cpu:99'"),
        ("[models.m]\nonnx = 'a.onnx'\ndevices = ['nope']", "models.m: devices: no device is called 'nope'"),
        (DOUBLE + "max_batch = 0\n" + X, "models.m: max_batch must be at least 1, but is 0"),
        (DOUBLE + "max_batch = -5\n" + X, "models.m: max_batch must be at least 1, but is -5"),
        (DOUBLE + "max_batch = 2\nmax_queue = -1\n" + X, "models.m: max_queue must be at least 1, but is -1"),
        ("[models.m]\nonnx = 'a.onnx'\nthreads = -1", "models.m: threads must be at least 0, but is -1"),
        (DOUBLE + "threads = 2\n" + X, "models.m: threads is for onnx only"),
        (
            DOUBLE.replace("models.m", r'models."\u0000"') + X.replace("models.m", r'models."\u0000"'),
            r"name '\\x00' has",
        ),
        ("[keys.a]\nrights = ['infer']\nfile = '/dev/zero'", r"keys\.a: file: /dev/zero has more than \d+ bytes"),
        ("[keys.a]\nrights = ['infer']\nfile = '.'", r"keys\.a: file: .*directory"),
        ("token_env = 'NOT_SET_HERE'", "variable NOT_SET_HERE, which token_env names, is not set"),
    ],
)
def test_what_does_not_fit_is_named(text: str, says: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=says):
        app_of(written(folder, text))


def test_a_file_that_is_not_there(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.toml"):
        find_app(str(folder / "none.toml"))
