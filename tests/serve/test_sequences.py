"""Models with a state over HTTP: Triton's sequence extension in front of a ``SequenceBatchingServer``."""

from typing import Any

import httpx
import pytest
from serve_lab import X, Y, client_of, request_of

import callboard as cb
from callboard.serve import App


def totals(items: list[Any], slots: list[cb.SequenceSlot]) -> list[Any]:
    for item, slot in zip(items, slots, strict=True):
        if item[0] < 0:
            raise ValueError("negative")
        slot.state = item if slot.start else slot.state + item
    return [slot.state for slot in slots]


def app_of_totals() -> App:
    app = App("lab")
    app.add_model("total", cb.SequenceBatchingServer(totals), inputs=X, outputs=Y)
    app.add_model("double", lambda x: 2 * x, inputs=X, outputs=Y)
    return app


async def send(http: httpx.AsyncClient, x: float, model: str = "total", **parameters: Any) -> Any:
    """The value, or status and reason."""
    response = await http.post(f"/v2/models/{model}/infer", json=request_of([x], parameters=parameters))
    if response.status_code != 200:
        return response.status_code, response.json()["error"]
    return response.json()["outputs"][0]["data"][0]


async def test_each_sequence_has_a_state_of_its_own() -> None:
    async with client_of(app_of_totals()) as http:
        assert await send(http, 1, sequence_id=7, sequence_start=True) == 1
        assert await send(http, 10, sequence_id="seven", sequence_start=True) == 10
        assert await send(http, 2, sequence_id=7) == 3
        assert await send(http, 20, sequence_id="seven", sequence_end=True) == 30
        assert await send(http, 3, sequence_id=7, sequence_end=True) == 6
        status, reason = await send(http, 4, sequence_id=7)
        assert (status, "sequence 7" in reason) == (409, True)
        (stats,) = (await http.get("/v2/models/total/stats")).json()["model_stats"]
        assert (stats["inference_count"], stats["inference_stats"]["fail"]["count"]) == (5, 1)
        assert stats["inference_stats"]["compute_infer"]["count"] == stats["execution_count"]
        assert "sequence_batching" in (await http.get("/v2/models/total/config")).json()
        assert "sequence_batching" not in (await http.get("/v2/models/double/config")).json()
        assert "sequence" in (await http.get("/v2")).json()["extensions"]


async def test_a_state_that_a_failure_has_spoilt_is_not_used_again() -> None:
    async with client_of(app_of_totals()) as http:
        assert await send(http, 1, sequence_id=7, sequence_start=True) == 1
        status, reason = await send(http, -1, sequence_id=7)
        assert (status, reason.partition(";")[0]) == (500, "the model failed")
        assert (await send(http, 2, sequence_id=7))[0] == 409
        assert await send(http, 2, sequence_id=7, sequence_start=True) == 2


@pytest.mark.parametrize(
    "parameters, says",
    [
        ({}, "a request to model 'total' belongs to a sequence: give the parameter sequence_id"),
        ({"sequence_id": 0}, "belongs to a sequence"),
        ({"sequence_id": ""}, "belongs to a sequence"),
        ({"sequence_start": True}, "sequence_start and sequence_end need sequence_id"),
        ({"sequence_id": 1.5}, "sequence_id must be an integer or a string, but is 1.5"),
        ({"sequence_id": True}, "sequence_id must be an integer or a string, but is True"),
        ({"sequence_id": 1, "sequence_start": 1}, "sequence_start must be true or false, but is 1"),
    ],
)
async def test_parameters_that_do_not_fit(parameters: dict[str, Any], says: str) -> None:
    async with client_of(app_of_totals()) as http:
        status, reason = await send(http, 1, **parameters)
        assert status == 400
        assert says in reason


async def test_other_models_do_not_look_at_it() -> None:
    async with client_of(app_of_totals()) as http:
        assert await send(http, 3, model="double", sequence_id=7, sequence_start=True) == 6


def test_tenants_do_not_share_sequences() -> None:
    with pytest.raises(ValueError, match=r"model 'total' has sequences, .*: tenants cannot share it"):
        App().add_model("total", cb.SequenceBatchingServer(totals), inputs=X, outputs=Y, tenants={"a": 1})
