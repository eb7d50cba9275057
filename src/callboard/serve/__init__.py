"""Serving over HTTP: models under the Open Inference Protocol v2, and embeddings under OpenAI's API.

Answering requests requires the extra ``serve`` (Starlette and uvicorn); apps can be defined without it.
"""

from callboard.serve.app import App, EdgeLimits
from callboard.serve.errors import BadModelResult, BadRequest, HttpError, NotReady
from callboard.serve.generation.answers import add_answers
from callboard.serve.http.rights import RIGHTS, Right
from callboard.serve.http.starting import Tls, listening, serve
from callboard.serve.tensors import DATATYPES, Tensor

__all__ = [
    "DATATYPES",
    "RIGHTS",
    "App",
    "BadModelResult",
    "BadRequest",
    "EdgeLimits",
    "HttpError",
    "NotReady",
    "Right",
    "Tensor",
    "Tls",
    "add_answers",
    "listening",
    "serve",
]
