"""``evaluate`` and the validation of a run: means over samples, patience, the best checkpoint, lost devices."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.train.training_lab import dropping, mlp

import callboard as cb

torch = pytest.importorskip("torch")
nn = torch.nn

ROWS = 27
X = np.random.default_rng(0).standard_normal((ROWS, 6)).astype("f4")
Y = np.random.default_rng(1).integers(0, 3, ROWS)
CROSS = cb.LossKind.CrossEntropy()
ADAM = cb.OptimizerKind.AdamW(lr=0.01)


def accuracy(outputs: Any, targets: Any) -> Any:
    return (outputs.argmax(1) == targets).double().mean()


class MacroF1:
    """Mean of the classes' F1, which is no mean over the samples; its methods are those of torchmetrics."""

    def reset(self) -> None:
        self.pairs: list[Any] = []

    def update(self, outputs: Any, targets: Any) -> None:
        assert outputs.device.type == targets.device.type == "cpu"
        self.pairs.append((outputs.argmax(1), targets))

    def compute(self) -> Any:
        found, wanted = (torch.cat(some) for some in zip(*self.pairs, strict=True))
        right = [((found == one) & (wanted == one)).sum() for one in range(3)]
        total = [(found == one).sum() + (wanted == one).sum() for one in range(3)]
        return torch.stack([2 * a / b for a, b in zip(right, total, strict=True)]).mean()


async def awaited(found: Any) -> float:
    return 1.0


@pytest.fixture
async def pair(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[cb.Device]]:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    async with cb.System() as system:
        yield [await system.device(f"cpu:{index}", isolation="thread") for index in range(2)]


def trainer(devices: Any, model: Any = mlp, **settings: Any) -> cb.DataParallelTrainer:
    return cb.DataParallelTrainer(model, devices=devices, **{"loss": CROSS, "optimizer": ADAM, **settings})


def expected(model: Any) -> tuple[float, float, float]:
    """In one process, all at once."""
    with torch.no_grad():
        outputs = model.eval()(torch.as_tensor(X))
        loss = nn.functional.cross_entropy(outputs, torch.as_tensor(Y))
    whole = MacroF1()
    whole.reset()
    whole.update(outputs, torch.as_tensor(Y))
    return float(loss), float(accuracy(outputs, torch.as_tensor(Y))), float(whole.compute())


class Functional(nn.Module):
    """Its dropout is a function, which a recording of its calls has with the mode of that moment."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(6, 32)
        self.middle = nn.Linear(32, 32)
        self.norm = nn.BatchNorm1d(32)
        self.head = nn.Linear(32, 3)

    def forward(self, x: Any) -> Any:
        h = nn.functional.dropout(torch.tanh(self.enter(x)), 0.5, self.training)
        return self.head(self.norm(self.middle(h)) + h)


class Other(Functional):
    def forward(self, x: Any) -> Any:
        h = torch.tanh(self.enter(x))
        return self.head(self.norm(h) if self.training else h)


def cut() -> Any:
    return nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 10), nn.Linear(10, 3))


def normed() -> Any:
    return nn.Sequential(nn.Linear(6, 40), nn.BatchNorm1d(40), nn.Linear(40, 3))


def data_parallel(devices: Any) -> Any:
    return trainer(devices, normed, micro_batch_size=5), normed()


def alone(devices: Any) -> Any:
    return trainer(devices[:1], dropping), dropping()


def sharded(devices: Any) -> Any:
    return trainer(devices, normed, shard="zero1"), normed()


def pipeline(devices: Any) -> Any:
    kinds: Any = {"loss": CROSS, "optimizer": ADAM, "micro_batch_size": 5}
    count = 1 if devices[0].isolation == "thread" else 2  # those of one process share their random numbers
    return cb.PipelineParallelTrainer(Functional, split=["middle"], devices=devices[:count], **kinds), Functional()


def tensor_parallel(devices: Any) -> Any:
    plan = {"0": "column", "2": "row", "3": "vocabulary"}
    return cb.TensorParallelTrainer(cut, plan=plan, devices=devices, loss=CROSS, optimizer=ADAM), cut()


@pytest.mark.few(5)
@pytest.mark.parametrize("kind", [data_parallel, alone, sharded, pipeline, tensor_parallel])
async def test_means_are_those_of_one_process_and_training_is_as_without(pair: list[cb.Device], kind: Any) -> None:
    opened, plain = kind(pair)
    async with opened as training:
        calm = [(await training.step((X, Y))).loss for _ in range(3)]
    opened, plain = kind(pair)
    async with opened as training:
        losses = [(await training.step((X, Y))).loss for _ in range(2)]
        plain.load_state_dict(await training.state_dict())
        loss, share, f1 = expected(plain)
        for size in (10, None):  # the last batch has 7
            metrics = {"accuracy": accuracy, "f1": MacroF1()}
            found = await training.evaluate((X, Y), batch_size=size, metrics=metrics)
            assert (found.step, found.samples) == (2, ROWS)
            assert found.loss == pytest.approx(loss, abs=1e-6)
            assert found.metrics == {"accuracy": pytest.approx(share, abs=1e-9), "f1": pytest.approx(f1, abs=1e-6)}
        after = await training.state_dict()
        assert all(torch.equal(after[name], value) for name, value in plain.state_dict().items())
        losses.append((await training.step((X, Y))).loss)
    assert losses == calm


async def test_layers_of_torch_that_pass_over_their_modules_in_evaluation(pair: list[cb.Device]) -> None:
    def model() -> Any:
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        return nn.Sequential(nn.Embedding(5, 8), nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(32, 3))

    ids = np.random.default_rng(0).integers(0, 5, (ROWS, 4))
    plain = model()
    plain.eval()
    async with cb.TensorParallelTrainer(model, plan="auto", devices=pair, loss=CROSS, optimizer=ADAM) as training:
        await training.step((ids, Y))
        plain.load_state_dict(await training.state_dict())
        with torch.no_grad():
            loss = nn.functional.cross_entropy(plain(torch.as_tensor(ids)), torch.as_tensor(Y))
        assert (await training.evaluate((ids, Y))).loss == pytest.approx(float(loss), abs=1e-5)


async def test_a_model_that_makes_other_calls_in_evaluation_is_refused(pair: list[cb.Device]) -> None:
    kinds: Any = {"loss": CROSS, "optimizer": ADAM}
    async with cb.PipelineParallelTrainer(Other, split=["head"], devices=pair, **kinds) as training:
        await training.step((X, Y))
        with pytest.raises(TypeError, match=r"other calls in evaluation than in training.*a list of stages"):
            await training.evaluate((X, Y))
        assert (await training.step((X, Y))).step == 2


async def test_a_model_that_gives_its_loss_and_metrics_of_the_batch(pair: list[cb.Device]) -> None:
    class Telling(nn.Linear):
        def forward(self, x: Any, y: Any) -> Any:
            logits = super().forward(x)
            return {"loss": nn.functional.cross_entropy(logits, y), "logits": logits}

    async with trainer(pair, lambda: Telling(6, 3), loss=None) as training:
        metrics = {"accuracy": lambda outputs, batch: accuracy(outputs["logits"], batch["y"])}
        found = await training.evaluate({"x": X, "y": Y}, metrics=metrics)
        assert 0 <= found.metrics["accuracy"] <= 1


class NoNumber(MacroF1):
    def compute(self) -> Any:
        return "x"


async def test_metrics_of_torchmetrics(pair: list[cb.Device]) -> None:
    torchmetrics = pytest.importorskip("torchmetrics")
    metrics = {
        "f1": torchmetrics.F1Score(task="multiclass", num_classes=3, average="macro"),
        "auc": torchmetrics.AUROC(task="multiclass", num_classes=3),
    }
    plain = mlp()
    async with trainer(pair) as training:
        plain.load_state_dict(await training.state_dict())
        found = await training.evaluate((X, Y), batch_size=10, metrics=metrics)
    with torch.no_grad():
        outputs = plain(torch.as_tensor(X))
    wanted = {name: float(metric(outputs, torch.as_tensor(Y))) for name, metric in metrics.items()}
    assert found.metrics == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"metrics": {"loss": accuracy}}, "metrics has the name 'loss'"),
        ({"metrics": {"a": 3}}, r"metrics\['a'\] is 3"),
        ({"metrics": {"a": NoNumber()}}, r"metrics\['a'\] returned 'x'; it must return one number"),
        ({"metrics": {"a": lambda outputs, targets: "x"}}, r"metrics\['a'\] returned 'x'; it must return one number"),
        ({"metrics": {"a": lambda outputs, targets: outputs}}, r"metrics\['a'\] returned"),
        ({"metrics": {"a": lambda outputs, targets: 10**400}}, r"metrics\['a'\] returned a whole number that is too"),
        ({"metrics": {"a": lambda outputs, targets: outputs.zero_().sum()}}, r"metrics\['a'\] changed its outputs"),
        ({"monitor": lambda found: "x"}, "monitor returned 'x'"),
        ({"monitor": lambda found: 10**400}, "monitor returned a whole number that is too large"),
        ({"monitor": awaited}, "monitor returned <coroutine"),
        ({"validate": None, "patience": 3}, "patience is given, but no data to validate with"),
        ({"patience": 0}, "patience is 0; it is at least 1"),
        ({"validate": iter([])}, "validate is an iterator, which gives its batches once"),
        ({"validate": 3}, "validate is a int"),
        ({"validate": (X[:0], Y[:0])}, "the validate has no samples"),
        ({"loggers": [3]}, "loggers has 3"),
    ],
)
async def test_settings_that_cannot_be(pair: list[cb.Device], settings: Any, message: str) -> None:
    async with trainer(pair) as training:
        with pytest.raises((TypeError, ValueError), match=message):
            await training.fit((X, Y), batch_size=9, **{"validate": (X, Y), **settings})
        assert len((await training.fit((X, Y), batch_size=9, epochs=2)).steps) > 0


async def test_it_validates_after_passes_or_steps_and_at_the_end(pair: list[cb.Device]) -> None:
    for settings, steps in (
        ({"epochs": 2}, [3, 6]),
        ({"epochs": 2, "validate_every": 4}, [4, 6]),
        ({"steps": 4}, [3, 4]),
    ):
        async with trainer(pair) as training:
            history = await training.fit((X, Y), batch_size=9, validate=(X, Y), **settings)
        assert [one.step for one in history.evaluations] == steps
    assert f"validation after step 4: {history.evaluations[-1]}" in str(history)


async def test_patience_ends_a_run_whose_best_checkpoint_stays(pair: list[cb.Device], tmp_path: Path) -> None:
    values = iter([3.0, 2.0, 5.0, float("nan"), 1.0])
    async with trainer(pair) as training:
        history = await training.fit(
            (X, Y),
            batch_size=ROWS,
            epochs=9,
            validate=(X, Y),
            monitor=lambda found: next(values),
            patience=2,
            checkpoints=tmp_path,
        )
        assert len(history.steps) == 4  # two were not below 2.0
        assert await training.resume(tmp_path / "best") == 2
        best = await training.evaluate((X, Y))
        assert best.loss == history.evaluations[1].loss
        assert await training.resume(tmp_path) == 4
        assert not (await training.fit((X, Y), batch_size=ROWS, epochs=9, validate=(X, Y), patience=2)).steps


@pytest.mark.few(5)
async def test_a_metric_is_monitored_by_its_name(
    pair: list[cb.Device], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with trainer(pair[:1]) as training:
        settings: Any = {"batch_size": ROWS, "validate": (X, Y), "metrics": {"val_accuracy": accuracy}, "epochs": 2}
        await training.fit((X, Y), **settings, monitor="val_accuracy", patience=9)
        assert -1 <= training.cursor.best < 0
        settings["metrics"] = {"odd": lambda outputs, targets: float("nan")}
        history = await training.fit((X, Y), **settings | {"epochs": 9}, monitor="odd", mode="max", patience=3)
        assert history.ended == "patience: 3 evaluations in a row were not the best, the last one is NaN"
        assert str(history).endswith(f"; ended by {history.ended}")
        assert [record.message for record in caplog.records if "NaN" in record.message] == [
            "step 3: the monitored value is NaN, which is never the best"
        ]
        wrong: Any
        for wrong, message in (
            ({"monitor": "acc"}, "monitor is 'acc'; there are 'loss', 'odd'"),
            ({"monitor": "odd"}, "pass mode='min' or mode='max'"),
            ({"monitor": "odd", "mode": "high"}, "mode is 'high'"),
            ({"mode": "max"}, "no name of a metric"),
            ({"monitor": 3}, "pass the name of a metric, or a function"),
        ):
            with pytest.raises((TypeError, ValueError), match=message):
                await training.fit((X, Y), **settings, **wrong)


async def test_a_resumed_run_has_the_validation_of_one_that_was_not_interrupted(
    pair: list[cb.Device], tmp_path: Path
) -> None:
    settings: Any = {"batch_size": 9, "validate": (X, Y), "validate_every": 2, "metrics": {"accuracy": accuracy}}
    async with trainer(pair[:1], dropping) as training:
        whole = await training.fit((X, Y), epochs=4, **settings)
        cursor = training.cursor
    async with trainer(pair[:1], dropping) as training:
        await training.fit((X, Y), steps=6, checkpoints=tmp_path, **settings)
    async with trainer(pair[:1], dropping) as training:
        await training.resume(tmp_path)
        rest = await training.fit((X, Y), epochs=4, **settings)
        assert training.cursor == cursor
    assert [(one.loss, one.metrics) for one in rest.evaluations] == [
        (one.loss, one.metrics) for one in whole.evaluations if one.step > 6
    ]


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in (pipeline, tensor_parallel)]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", [data_parallel, *SLOW])
async def test_a_device_that_is_lost_in_validation_changes_no_number(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    here = os.getpid()

    def killing(outputs: Any, targets: Any) -> Any:
        """The sixth call ends the process that makes it."""
        if os.getpid() != here:
            number = len(list(tmp_path.iterdir()))
            (tmp_path / str(number)).touch()
            if number == 5:
                os.kill(os.getpid(), signal.SIGKILL)
        return accuracy(outputs, targets)

    metrics = {"accuracy": killing, "f1": MacroF1()}
    settings: Any = {"batch_size": 9, "epochs": 3, "validate": (X, Y), "metrics": metrics}
    async with cb.System() as system:
        devices = [await system.device(f"cpu:{rank}", isolation="thread") for rank in range(2)]
        opened, _ = kind(devices)
        async with opened as training:
            calm = await training.fit((X, Y), **settings)
    async with cb.System() as system:
        devices = [await system.device(f"cpu:{rank}", isolation="process", standby=None) for rank in range(2)]
        opened, _ = kind(devices)
        async with opened as training:
            disturbed = await training.fit((X, Y), **settings)
            lost = sum(device.generation - 1 for device in training.devices)
    assert lost >= 1
    assert disturbed.losses == calm.losses
    assert [one.metrics for one in disturbed.evaluations] == [one.metrics for one in calm.evaluations]
    assert [one.loss for one in disturbed.evaluations] == [one.loss for one in calm.evaluations]
