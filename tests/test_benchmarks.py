"""The benchmarks run and store what they found; their arithmetic is right. The figures prove nothing here."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
BOUND = 600.0
"""Seconds for a program that takes some on an idle machine; it waits for other processes at each step."""

pytestmark = pytest.mark.timeout(BOUND + 60)


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    spec = importlib.util.spec_from_file_location("_harness", BENCHMARKS / "_harness.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(tmp_path: Path, name: str, *arguments: str) -> dict[str, Any]:
    out = tmp_path / "out.json"
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--device", "cpu", "--quick", "--rounds", "1"]
    done = subprocess.run(
        [*command, "--json", str(out), *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record: dict[str, Any] = json.loads(out.read_text("utf-8"))
    assert record["benchmark"] == name
    assert record["environment"]["packages"]["numpy"]
    return record


@pytest.mark.slow
def test_ops(tmp_path: Path) -> None:
    for figures in run(tmp_path, "ops", "--large", "96")["results"].values():
        assert set(figures) == {"process", "thread", "loop", "inside", "scipy", "numpy"}
        assert all(0 < one["median"] < 1 for one in figures.values())
        assert figures["process"]["ratio"]["median"] == pytest.approx(
            figures["process"]["median"] / figures["scipy"]["median"]
        )


@pytest.mark.slow
def test_moe(tmp_path: Path) -> None:
    results = run(tmp_path, "moe", "--tokens", "32", "--width", "16")["results"]
    figures = results["32 tokens, 8 experts, top 2, width 16"]
    assert {"NumPy", "router", "router, on the loop", "router, by message", "message per token"} <= set(figures)
    assert all(0 < one["median"] < 10 for one in figures.values())
    assert set(results["difference"]) == set(figures)
    assert max(results["difference"].values()) <= 1e-5


@pytest.mark.slow
def test_graphs(tmp_path: Path) -> None:
    results = run(tmp_path, "graphs")["results"]
    chain = results["20 x (product 256 + ReLU), us per op"]
    assert {"process, called", "process, replayed", "thread, fused, replayed", "NumPy, called"} <= set(chain)
    assert {"auto, called", "auto, fused, called", "process, in a loop", "thread, in a loop"} <= set(chain)
    assert all(0 < one["median"] < 1 for one in chain.values())
    assert set(results["a call of replay, us"]) == {"process", "thread"}


@pytest.mark.slow
def test_copies(tmp_path: Path) -> None:
    results = run(tmp_path, "copies", "--gib", "0.01")["results"]
    assert {"leased", "NumPy", "memcpy"} <= set(results["put"])
    assert {"leased", "NumPy", "NumPy, new", "memcpy"} <= set(results["get"])


@pytest.mark.slow
def test_p2p(tmp_path: Path) -> None:
    results = run(tmp_path, "p2p", "--mib", "1")["results"]
    assert {"processes", "threads", "memcpy"} == set(results["pipelined"]) == set(results["ask"])


@pytest.mark.slow
def test_journal(tmp_path: Path) -> None:
    results = run(tmp_path, "journal", "--records", "4000", "--seconds", "0.2")["results"]
    assert {"file", "SQLite", "memory", "file, by hand"} == set(results["durable"])
    assert 0 < results["caller"]["put"]["median"] < results["caller"]["message"]["median"]
    assert set(results["service"]) == {"alone", "recorded"}


@pytest.mark.slow
def test_pipeline(tmp_path: Path) -> None:
    results = run(tmp_path, "pipeline", "--items", "10")["results"]
    assert {"H2D", "compute", "D2H", "pipeline", "by hand"} == set(results["items"])
    assert 0 < results["engines"]["engines"]["median"] <= 1


@pytest.mark.slow
def test_training(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="for the extra train")
    steps, losses = run(tmp_path, "train_peers")["results"].values()
    assert (set(steps), set(losses)) == ({"ddp", "processes", "threads"}, {"torchrun", "callboard"})
    (steps,) = run(tmp_path, "pipeline_train")["results"].values()
    assert set(steps) == {"torch", "processes", "threads", "eager-1f1b", "zero-bubble"}


@pytest.mark.slow
def test_placement(tmp_path: Path) -> None:
    results = run(tmp_path, "placement")["results"]
    assert set(results["pick"]) == {"round_robin", "least_loaded", "pack", "spread"}
    assert results["PlacementActor.pick"]["pick"]["median"] > 0


@pytest.mark.slow
def test_vector_index(tmp_path: Path) -> None:
    results = run(tmp_path, "vector_index")["results"]
    assert {"NumPy", "f32", "f16", "i8"} <= set(results["batch 1"]) & set(results["batch 32"])
    assert results["recall"]["f32"] > 0.99 < results["recall"]["f16"]
    assert results["cache"]["hit"]["median"] > 0
    assert set(run(tmp_path, "vector_index", "--by-device")["results"]["recall"].values()) == {1.0}


@pytest.mark.slow
def test_realtime(tmp_path: Path) -> None:
    results = run(tmp_path, "realtime")["results"]
    assert [part["callboard"]["median"] > 0 for part in results.values()] == [True] * 9


@pytest.mark.slow
def test_rag(tmp_path: Path) -> None:
    results = run(tmp_path, "rag")["results"]
    assert 0 < results["query"]["callboard"]["median"] < results["query"]["new question"]["median"]


@pytest.mark.slow
def test_two_devices(tmp_path: Path) -> None:
    record = run(tmp_path, "two_devices", "--seconds", "500")
    assert {name: part["exit"] for name, part in record["results"].items()} == {"p2p": 0, "collectives": 0}
    assert [bar["held"] for bar in record["bars"] if "killed rank" in bar["what"]] != [None]


@pytest.mark.slow
def test_losses(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    record = run(tmp_path, "losses", "--standbys", "2")
    assert [record["results"]["2 standbys"][f"loss {k}"]["standby"] for k in (1, 2)] == [["hot"], ["hot"]]


@pytest.mark.slow
def test_poisoned(tmp_path: Path) -> None:
    found = run(tmp_path, "poisoned", "--peers")["results"]["callboard, round 1"]
    assert (found["answered"] > 0, found["failed"], set(found["killing"])) == (True, 0, {"422"})


@pytest.mark.slow
def test_recovery(tmp_path: Path) -> None:
    record = run(tmp_path, "recovery", "--standby", "hot")
    fault, report = record["results"].values()
    assert 0 < report["hot, kill"]["median"] < fault["hot, kill"]["median"]
    assert [bar["held"] for bar in record["bars"] if "hot" in bar["what"]] != [None]


@pytest.mark.slow
def test_idle(tmp_path: Path) -> None:
    results = run(tmp_path, "idle", "--seconds", "0.5")["results"]
    assert set(results["idle"]) == {"application", "host", "standby"}
    assert results["buffers_left"] == 0


@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
    results = run(tmp_path, "demo", "--standby", "warm")["results"]
    assert 0 < results["callboard, takeover"]["median"] < results["callboard"]["median"]
    assert results["difference"] < 1e-4
    assert results["generations"] == [2]


@pytest.mark.slow
def test_fft(tmp_path: Path) -> None:
    results = run(tmp_path, "fft")["results"]
    assert results["plans"]["process"]["misses"] == results["plans"]["process"]["entries"]
    assert results["plans"]["process"]["hits"] > 20
    for title, figures in results.items():
        if title != "plans":
            assert set(figures) == {"process", "thread", "direct"}


@pytest.mark.slow
def test_cub(tmp_path: Path) -> None:
    results = run(tmp_path, "cub")["results"]
    assert results["plans"]["process"]["misses"] == results["plans"]["process"]["entries"] == 16
    for title, figures in results.items():
        if title != "plans":
            assert set(figures) == {"process", "thread", "direct"}
            assert figures["process"]["speed"]["median"] > 0


@pytest.mark.slow
def test_rng(tmp_path: Path) -> None:
    results = run(tmp_path, "rng")["results"]
    assert results["plans"]["process"]["hits"] > 10
    for title, figures in results.items():
        if title != "plans":
            assert set(figures) == {"process", "thread", "direct"}
            assert figures["process"]["speed"]["median"] > 0


@pytest.mark.slow
def test_solver(tmp_path: Path) -> None:
    results = run(tmp_path, "solver")["results"]
    assert results["plans"]["process"]["misses"] == results["plans"]["process"]["entries"] == 5
    for title, figures in results.items():
        if title != "plans":
            assert set(figures) == {"process", "thread", "direct"}


@pytest.mark.slow
def test_sparse(tmp_path: Path) -> None:
    results = run(tmp_path, "sparse")["results"]
    assert results["plans"]["process"]["misses"] == results["plans"]["process"]["entries"] == 2
    for title, figures in results.items():
        if title != "plans":
            assert set(figures) == {"process", "thread", "direct"}


@pytest.mark.slow
def test_elementwise(tmp_path: Path) -> None:
    results = run(tmp_path, "elementwise")["results"]
    for title, figures in results.items():
        if title != "plans":
            assert set(figures) == {"process", "thread", "direct"}
    assert {"axpy, 1000 f32", "sum of rows, 1000x1000 f32"} <= set(results)


@pytest.mark.slow
def test_arrays(tmp_path: Path) -> None:
    results = run(tmp_path, "arrays")["results"]
    assert {"softmax, 1000x1000 f32", "add, 1000 f32"} <= set(results)
    assert all(
        set(figures) == {"process", "thread", "direct"} for title, figures in results.items() if title != "plans"
    )


@pytest.mark.slow
def test_tensor(tmp_path: Path) -> None:
    results = run(tmp_path, "tensor")["results"]
    assert results["plans"]["process"]["misses"] == results["plans"]["process"]["entries"] == 8
    for title, figures in results.items():
        if title != "plans":
            assert set(figures) == {"process", "thread", "direct"}


@pytest.mark.slow
def test_resident(tmp_path: Path) -> None:
    record = run(tmp_path, "resident", "--model", "numpy")
    calls = {title: found for title, found in record["results"].items() if title.startswith(("empty", "batch", "echo"))}
    assert len(calls) == 9
    for figures in calls.values():
        assert set(figures) == {"plain", "pipe", "spinning", "process", "thread", "own"}
        assert all(0 < one["median"] < 10 for one in figures.values())
    beside = record["results"]["ask of a 64x64 product beside an actor, p99"]
    assert {"process, idle", "process, python", "thread, numpy", "own, python"} <= set(beside)
    assert {bar["held"] for bar in record["bars"]} == {None}  # they are for CUDA


@pytest.mark.slow
def test_serving(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="for the extra serve")
    record = run(tmp_path, "serving")
    for title in ("echo of JSON, 1 clients", "echo of JSON, 32 clients"):
        assert set(record["results"][title]) == {"callboard", "bare ASGI"}
        assert all(one["median"] > 0 for one in record["results"][title].values())
    assert set(record["results"]["1 MB as raw bytes"]) == {"callboard", "bare ASGI", "copy"}
    assert all(bar["held"] is not None for bar in record["bars"])


@pytest.mark.slow
def test_batching(tmp_path: Path) -> None:
    record = run(tmp_path, "batching")
    for title, figures in record["results"].items():
        assert set(figures) == {"callboard", "idle dispatch", "Cork"} or title == "taking an item"
    held = {bar["what"]: bar["held"] for bar in record["bars"]}
    assert held["30 requests in 150 ms, s"] is not None
    thirty = record["results"]["30 requests in 150 ms"]["callboard"]["median"]
    assert 0.25 < thirty < 1.0  # three batches of 100 ms; formed ahead of the executor, they are thirty


@pytest.mark.slow
def test_replicas(tmp_path: Path) -> None:
    record = run(tmp_path, "replicas")
    for size in (4, 16, 64):
        figures = record["results"][f"routing among {size}"]
        assert set(figures) == {"round_robin", "least_outstanding", "p2c", "consistent_hash"}
        assert all(0 < one["median"] < 1e-3 for one in figures.values())
    tails = record["results"]["p99"]
    assert tails["in turn, one slow"]["median"] > tails["pool, one slow"]["median"]
    assert {bar["held"] for bar in record["bars"] if bar["what"].startswith("p99")} == {None}  # too few requests


@pytest.mark.slow
def test_fair_share(tmp_path: Path) -> None:
    assert set((record := run(tmp_path, "fair_share"))["results"]["throughput"]) == {"callboard", "queue"}
    assert 0.6 < record["results"]["share of time"]["weight 3"]["median"] < 0.9
    assert {bar["held"] for bar in record["bars"]} <= {True, False}


@pytest.mark.slow
def test_agent_graphs(tmp_path: Path) -> None:
    found = run(tmp_path, "agent_graphs")["results"]
    assert {"NodeGraph", "StateGraph"} <= set(found["chain, a node"])
    assert found["makespan, to the longest path"]["NodeGraph"]["median"] >= 1
    assert 0 < found["lease"]["lease"]["median"] < 1


@pytest.mark.slow
def test_cascade(tmp_path: Path) -> None:
    found = run(tmp_path, "cascade")["results"]["throughput"]
    assert found["ideal"]["median"] == pytest.approx(1000)
    assert found["large model alone"]["median"] < found["cascade"]["median"] < 1.05 * found["ideal"]["median"]


@pytest.mark.slow
def test_speculative(tmp_path: Path) -> None:
    results = run(tmp_path, "speculative")["results"]
    gave, runs = results["runs that gave the tokens of the loop"]
    assert gave == runs > 0
    assert {"loop", "none", "good draft", "useless draft"} <= set(results["one text at a time"])


@pytest.mark.slow
def test_assisted(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is what it is compared with")
    results = run(tmp_path, "assisted")["results"]
    gave, subjects = results["subjects that gave the tokens of greedy"]
    assert gave == subjects == len(results["tokens per second"])


@pytest.mark.slow
def test_continuous(tmp_path: Path) -> None:
    found = run(tmp_path, "continuous")["results"]["parts per second"]
    assert {"loop", "continuous", "streamed", "whole"} == set(found)
    assert all(figures["median"] > 0 for figures in found.values())


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="ray is installed: it takes a minute")
def test_cluster_without_ray(tmp_path: Path) -> None:
    record = run(tmp_path, "cluster")
    assert [bar["held"] for bar in record["bars"]] == [None]


def test_rounds_take_turns_in_both_directions(harness: ModuleType) -> None:
    order: list[str] = []

    def subject(name: str) -> Any:
        return lambda: order.append(name) or float(len(order))

    found = harness.interleave({"a": subject("a"), "b": subject("b")}, 3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert found == {"a": [1.0, 4.0, 5.0], "b": [2.0, 3.0, 6.0]}


def test_ratios_are_of_the_same_round(harness: ModuleType) -> None:
    found = {"a": [1.0, 8.0, 3.0], "b": [2.0, 4.0, 3.0]}
    assert harness.ratios(found, "a", "b") == {"min": 0.5, "median": 1.0, "max": 2.0}
    assert harness.ratios(found, "a", "c") is None


CUT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # the shell has it ignored by what it runs in the background
folder, number = sys.argv.pop(1), sys.argv.pop(1)
sys.path.insert(0, folder)
from _harness import arguments, interleave, table
from _record import Record
given = arguments("cut short", rounds=9)
record = Record("cut", given)
record["first"] = 1
measured = []
def one():
    measured.append(1.0)
    if len(measured) == 6:  # once a round
        os.kill(os.getpid(), int(number))
        signal.pause()
    return 1.0
record["second"] = table("second", interleave({"a": one, "b": lambda: 2.0}, 9), str, "a")
record["third"] = 3
"""


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, -signal.SIGINT)])
def test_one_that_is_cut_short_has_stored_the_complete_rounds(tmp_path: Path, number: int, code: int) -> None:
    out = tmp_path / "out.json"
    done = subprocess.run(
        [sys.executable, "-c", CUT, str(BENCHMARKS), str(int(number)), "--device", "cpu", "--json", str(out)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert done.returncode == code, done.stderr
    record = json.loads(out.read_text("utf-8"))
    assert record["partial"] is True
    assert set(record["results"]) == {"first", "second"}
    assert len(record["results"]["second"]["a"]["values"]) == 5


@pytest.mark.parametrize("value, at_least, held", [(2.0, True, True), (0.5, True, False), (0.5, False, True)])
def test_bars(harness: ModuleType, value: float, at_least: bool, held: bool) -> None:
    assert harness.Bar("x", value, 1.0, at_least).held is held
    assert harness.Bar("x", None, 1.0, at_least).held is None


@pytest.mark.slow
def test_minilm(tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="for the extra demo")
    results = run(tmp_path, "minilm", "--texts", "40")["results"]
    assert set(results["closed loop of 64, mixed lengths"]) >= {"by length", "by arrival", "no batching"}
    assert results["swaps"]["failed"] == results["killed host"]["failed"] == 0
    assert results["killed host"]["requests"] > 0


@pytest.mark.slow
def test_minilm_engines(tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="for the extra demo")
    (figures,) = (found for title, found in run(tmp_path, "minilm_engines")["results"].items() if title != "model")
    assert "ops" in figures
    assert all(figures[name]["min"] > 0 for name in figures)


@pytest.mark.slow
def test_overload(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="for the extra serve")
    results = run(tmp_path, "overload")["results"]
    assert set(results["ends of the last overload"]) <= {"200", "429", "504"}
    assert results["ends of the last overload"]["200"] > 0


@pytest.mark.slow
def test_dnn(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is what it is compared with")
    results = {title: found for title, found in run(tmp_path, "dnn")["results"].items() if " f32, " in title}
    assert sum(title.startswith("convolutions") for title in results) == 3
    assert all(set(figures) == {"process", "thread", "direct"} for figures in results.values())


@pytest.mark.slow
def test_attention(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is what it is compared with")
    results = run(tmp_path, "attention")["results"]
    figures = [found for title, found in results.items() if title != "plans"]
    assert [set(each) for each in figures] == 3 * [{"process", "thread", "direct"}]


@pytest.mark.slow
def test_encoder(tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="for the extra demo")
    pytest.importorskip("torch", reason="PyTorch is what it is compared with")
    (figures,) = (found for title, found in run(tmp_path, "encoder")["results"].items() if title != "plans")
    assert set(figures) == {"process", "thread", "direct"}


@pytest.mark.slow
def test_rnn(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is what it is compared with")
    (figures,) = (found for title, found in run(tmp_path, "rnn")["results"].items() if title.startswith("LSTM"))
    assert set(figures) == {"process", "thread", "direct"}


@pytest.mark.slow
def test_dashboard(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="for the extra serve")
    found = run(tmp_path, "dashboard")["results"]["1,000 actors"]
    assert 0 < found["share"] < 1
    assert found["frames per second"] > 0
    assert 10_000 < found["bytes"] < 40_000


@pytest.mark.slow
def test_telemetry(tmp_path: Path) -> None:
    results = run(tmp_path, "telemetry")["results"]
    assert set(results["event"]) >= {"off", "on", "drained", "in a trace file"}
    assert all(0 <= seconds < 1 for seconds in results["event"].values())
    for isolation in ("thread", "process"):
        figures = results[f"products of 64 x 64, {isolation}, per second"]
        assert figures["on"]["ratio"]["median"] == pytest.approx(figures["on"]["median"] / figures["off"]["median"])
    assert set(results["closed-128 batching, requests per second"]) >= {"off", "on"}
