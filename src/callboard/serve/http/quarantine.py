"""The quarantines of an app's models: who is in them, pardons, and their figures."""

import msgspec

from callboard.patterns.quarantine.guard import Quarantine
from callboard.serve.app import App
from callboard.serve.edge import Body, decode_json
from callboard.serve.errors import HttpError, plain_key
from callboard.serve.http.request import Request
from callboard.serve.models import Model

__all__ = ["PardonRequest", "pardon", "quarantine"]


class PardonRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of ``/v2/quarantine/pardon``: the key that the 422 named, and the model, if not all are meant."""

    key: str
    model: str | None = None


async def quarantine(app: App, request: Request, body: memoryview) -> Body:
    """Requests that are refused because they have lost contexts."""
    held = [
        {"model": model.name, "key": plain_key(key), "seconds": round(seconds, 3)}
        for model in app.served
        for each in _quarantines(model)
        for key, seconds in each.stats().held.items()
    ]
    return Body({"held": held})


async def pardon(app: App, request: Request, body: memoryview) -> Body:
    """Let the requests of a key run again."""
    asked: PardonRequest = await decode_json(body, PardonRequest)
    models = [each for each in app.served if asked.model in (None, each.name)]
    pardoned = [model.name for model in models if sum(_pardon(each, asked.key) for each in _quarantines(model))]
    if not pardoned:
        who = "no model refuses" if asked.model is None else f"model {asked.model!r} does not refuse"
        raise HttpError(f"{who} requests of the key {asked.key!r}", 404)
    return Body({"pardoned": pardoned})


def _quarantines(model: Model) -> list[Quarantine[object]]:
    """Those of the servers that the model's requests pass, of the active version."""
    return [each for server in model.chain.servers if (each := server.quarantine) is not None]


def _pardon(found: Quarantine[object], key: str) -> int:
    """Pardon a key as clients see it, or in full; the number of records."""
    keys = [each for each in found.stats().held if key in (each, plain_key(each))]
    return sum(found.pardon(each) for each in keys)
