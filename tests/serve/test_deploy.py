"""The files of ``examples/deploy``: the app starts, files can be read, and the figures that they name exist."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from callboard.serve import listening
from callboard.serve.bundled.appfile import app_of
from callboard.telemetry.table import TABLE

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "deploy"


async def test_the_app_serves_and_has_all_figures_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    app = app_of(FOLDER / "app.toml", {"CLIENT_KEY": "c", "METRICS_KEY": "m"})
    async with listening(app, port=0) as url, httpx.AsyncClient(base_url=url) as http:
        asked = {"model": "letters", "input": "a cab"}
        found = await http.post("/v1/embeddings", json=asked, headers={"Authorization": "Bearer c"})
        assert found.json()["data"][0]["embedding"][:3] == [2.0, 1.0, 1.0]
        metrics = (await http.get("/metrics", headers={"Authorization": "Bearer m"})).text
        for path in set(re.findall(r"/v2/health/\w+", all_text())):
            assert (await http.get(path)).status_code == 200
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", metrics, re.MULTILINE))
    kinds |= {each.name: each.kind for each in TABLE.values()}  # without a series, a metric is not there
    kinds |= {"callboard_workers": "gauge", "callboard_worker_restarts_total": "counter"}  # test_workers has them
    series = {name for name, kind in kinds.items() if kind != "histogram"}
    series |= {
        f"{name}_{end}" for name, kind in kinds.items() for end in ("bucket", "sum", "count") if kind == "histogram"
    }
    named = set(
        re.findall(r"callboard_\w+", (FOLDER / "rules.yml").read_text() + (FOLDER / "dashboard.json").read_text())
    )
    assert named - series == set()
    assert len(named) > 10
    labels = set(re.findall(r"(\w+)=\"", metrics))
    assert set(re.findall(r"{(\w+)=~", (FOLDER / "rules.yml").read_text())) <= labels


def all_text() -> str:
    return "".join((FOLDER / name).read_text() for name in ("Containerfile", "kubernetes.yaml"))


def test_the_dashboard_is_one() -> None:
    found = json.loads((FOLDER / "dashboard.json").read_text())
    assert len({panel["id"] for panel in found["panels"]}) == len(found["panels"])
    assert all(
        target["expr"].count("(") == target["expr"].count(")") for p in found["panels"] for target in p["targets"]
    )


@pytest.mark.parametrize("name", ["kubernetes.yaml", "prometheus.yml", "rules.yml"])
def test_yaml(name: str) -> None:
    yaml: Any = pytest.importorskip("yaml", reason="for the extra test")
    found = list(yaml.safe_load_all((FOLDER / name).read_text()))
    assert all(isinstance(each, dict) for each in found)
    if name == "rules.yml":
        rules = found[0]["groups"][0]["rules"]
        assert all({"alert", "expr", "annotations"} <= rule.keys() for rule in rules)


def test_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on this machine")
    text = (FOLDER / "callboard.service").read_text()
    unit = tmp_path / "callboard.service"
    unit.write_text(text.replace("/opt/letters/venv/bin/callboard", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    if "Failed to" in done.stderr and "callboard.service" not in done.stderr:
        pytest.skip(f"systemd-analyze cannot verify here: {done.stderr.strip()}")
    assert (done.returncode, done.stderr) == (0, "")
