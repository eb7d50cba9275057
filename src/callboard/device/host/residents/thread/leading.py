"""``lead``: a resident actor's thread serves the host, and runs the actor's calls in between (:mod:`.helm`)."""

import time
from typing import TYPE_CHECKING

from callboard.device.host.residents.item import EndedCall, Item
from callboard.device.protocol.messages import FailureMessage

if TYPE_CHECKING:
    from callboard.device.host.residents.actors import HostActors
    from callboard.device.host.residents.thread.thread import ActorThread

__all__ = ["lead"]

NOTICED = 100e-6
"""Seconds that ops may wait for a call on the thread that serves."""


def lead(actor: "ActorThread", host: "HostActors", item: Item) -> FailureMessage | None:
    """Run calls that are short, and serve the host, until another thread serves. On the actor's thread, with the helm.

    Args:
        actor: Actor whose thread this is.
        host: The actors of the host.
        item: The first call.

    Returns:
        The failure if the actor ends because of one, None when it continues.
    """
    helm = host.helm
    assert helm is not None
    terms = helm.enter()
    host.channel.serve_here()
    while actor.is_short:
        helm.begin()
        outcome = host.run(actor, item)
        if not helm.end(actor):
            return actor.finish(outcome)
        if outcome.error is not None or outcome.ended is None:
            helm.give_back()
            return actor.finish(outcome)
        try:
            following = _serve(actor, host, outcome.ended, terms)
        except BaseException as e:  # the host's own thread classifies it
            helm.give_back(e)
            return None
        if following is None:
            return None
        item = following
    helm.give_back()
    return actor.call(item)


def _serve(actor: "ActorThread", host: "HostActors", ended: EndedCall, terms: int) -> Item | None:
    """Settle a call and serve until the next one; None when another thread serves, or has served since ``terms``."""
    helm, serving = host.helm, host.serving
    assert helm is not None
    brief = host.shortcut.answer(ended)
    if not brief:
        serving.use()  # user code may have made another context current
        host.end(ended)
        serving.settle()
    spin_until = time.monotonic() + serving.spins
    long = ended.item.seconds > NOTICED
    while helm.holder is actor and helm.terms == terms:
        if actor.stopping or serving.closing:
            helm.give_back()
            return None
        idle = not actor.has_calls
        if idle and (left := spin_until - time.monotonic()) > 0:
            host.channel.spin(left)
        messages = serving.receive(wait=idle)
        following: Item | None = None
        if not idle and not messages and brief:  # nothing is to be settled before the next call that is queued
            following = actor.next()
        elif idle and len(messages) == 1:
            following = host.shortcut.admit(actor, messages[0])
        if following is not None:
            return following
        if brief:
            brief = False
            serving.use()
        ops = serving.act_on(messages)
        if helm.holder is not actor or helm.terms != terms:
            return None
        if long and ops:
            host.crowd()
            helm.give_back()
            return None
        long = False
        if actor.stopping:
            continue
        item = actor.next()
        if item is not None:
            return item
    return None
