"""The three rights of clients, who has which, and which one a route needs."""

import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, get_args

from callboard.actors.errors import returned
from callboard.serve.encoding.regions import Regions
from callboard.serve.errors import HttpError
from callboard.serve.http.tokens import checked_key
from callboard.serve.http.tracing import Tracer

__all__ = ["RIGHTS", "Keys", "Right", "Rights", "Ruled", "check_right", "checked_rights", "right_of"]

Right = Literal["infer", "control", "read"]
"""``"infer"``: ask models, list them, read their metadata. ``"control"``: load and unload them, register shared memory,
change trace settings, pardon requests. ``"read"``: the list and the metadata too, metrics, statistics, documents."""

RIGHTS: frozenset[Right] = frozenset(get_args(Right))
"""All of them."""

Rights = Callable[[Mapping[str, str]], Collection[Right]]
"""Returns the rights of a request with these headers, or raises :class:`HttpError`."""

GENERATING = ("infer", "generate", "generate_stream")
DESCRIBING = re.compile(
    r"/v2|/v2/repository/index|/v2/models/{model}(/versions/{version})?(/ready|/config)?|/v1/models(/{model})?"
)
"""Routes that clients ask before they ask a model."""


class Keys:
    """The rights of clients that send a key as ``Authorization: Bearer <key>``. Keys are kept as hashes.

    Args:
        keys: Rights by key.

    Raises:
        ValueError: There is no key, one is not visible ASCII, or one has no rights or unknown ones.
        TypeError: The rights of a key are not a set.
    """

    def __init__(self, keys: Mapping[str, Collection[Right]]) -> None:
        if not keys:
            raise ValueError("rights has no keys, so that no request would be allowed; give it at least one")
        self._rights = {
            _hash(checked_key("a key of rights", key)): checked_rights("rights", given) for key, given in keys.items()
        }
        if not all(self._rights.values()):
            raise ValueError(f"a key of rights has no right; give it one of {_listed(RIGHTS)}, or leave it out")

    def __call__(self, headers: Mapping[str, str]) -> frozenset[Right]:
        """The rights of a request.

        Raises:
            HttpError: There is no such key: status 401.
        """
        found = self._rights.get(_hash(_bearer(headers)))
        if found is None:
            raise _unknown()
        return found


class Ruled:
    """The part of an app that knows who may do what.

    Attributes:
        name, token, rights, model_control, regions, tracer, dashboard: See :class:`App`.
        dashboard_token: What viewers of the dashboard must know, in place of a token and rights.
    """

    name: str
    token: str | None
    rights: Rights | None
    model_control: bool
    regions: Regions | None
    tracer: Tracer | None
    dashboard: bool
    dashboard_token: str | None = None

    @property
    def has_rules(self) -> bool:
        """True if not every request has all rights."""
        return self.token is not None or self.rights is not None

    @property
    def powers(self) -> list[str]:
        """Names of the given options with which clients can do more than ask models."""
        options = {"model_control": self.model_control, "shared_memory": self.regions, "trace_file": self.tracer}
        return [name for name, value in (options | {"dashboard": self.dashboard}).items() if value]

    def check_right(self, needed: frozenset[Right], headers: Mapping[str, str]) -> None:
        """Raise unless a request has one of these rights: :func:`check_right`."""
        check_right(self.token, self.rights, needed, headers)

    def check_rules(self) -> None:
        """Raise if clients can do more than ask models, and nothing says which of them may.

        Raises:
            ValueError: They can; names the option, and what to give with it.
        """
        ruled = {"dashboard"} if self.dashboard_token is not None else set()
        given = " and ".join(name for name in self.powers if name not in ruled)
        if given and not self.has_rules:
            raise ValueError(
                f"{self.name} has {given}, and nothing says which clients may use it: give token, or rights such as "
                'App(rights={key: {"infer", "control", "read"}})'
            )


def check_right(token: str | None, rights: Rights | None, needed: frozenset[Right], headers: Mapping[str, str]) -> None:
    """Raise unless a request with these headers has one of the needed rights.

    Args:
        token: The bearer token that has all rights; None: there is none.
        rights: See :data:`Rights`; it decides about other requests. None: they have no rights if there is a token, else
            all.
        needed: One of these is enough.
        headers: Headers of the request.

    Raises:
        HttpError: The token is missing or wrong (401), or the right is (403).
        TypeError: ``rights`` returned something else.
        Exception: Raised by ``rights``.
    """
    if token is not None:
        if hmac.compare_digest(_bearer(headers).encode(), token.encode()):
            return
        if rights is None:
            raise _unknown()
    if rights is not None and not (needed & checked_rights("rights", rights(headers))):
        raise HttpError(f"this request needs the right {_listed(needed)}, which its key does not have", 403)


def checked_rights(hook: str, given: Any) -> frozenset[Right]:
    """A set of rights that a hook returned, or that stands in its place.

    Raises:
        TypeError: It is no set, or has something else in it.
    """
    if isinstance(given, frozenset | set | list | tuple):
        unknown = [each for each in given if each not in get_args(Right)]
        if not unknown:
            return frozenset(given)
    raise returned(hook, given, f"a set of rights, which are {_listed(RIGHTS)}")


def right_of(method: str, route: str) -> frozenset[Right]:
    """The rights that a route needs, one of which is enough. Routes that are not known need ``"control"``."""
    if DESCRIBING.fullmatch(route):
        return frozenset({"infer", "read"})
    if method == "GET":
        return frozenset({"read"})
    asks = route.startswith("/v1/") or route.rpartition("/")[2] in GENERATING
    return frozenset({"infer"}) if asks else frozenset({"control"})


def _bearer(headers: Mapping[str, str]) -> str:
    """The bearer token of a request; empty if it has none."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given if scheme.lower() == "bearer" else ""


def _unknown() -> HttpError:
    return HttpError("a bearer token is needed, and this is not the one", 401)


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _listed(rights: Collection[Right]) -> str:
    return " or ".join(repr(right) for right in get_args(Right) if right in rights)
