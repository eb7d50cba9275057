"""``Rehearsals``: the ``warm_up`` of resident actors in a hot standby, before it takes over.

Each runs on a thread and a stream of its own, with an instance that is dropped afterwards. The actor's own instance
waits beside it, prepared and not set up, so that a takeover neither waits for a rehearsal nor sees its effects.
"""

import asyncio
import contextlib
import gc
import inspect
import logging
import sys
import threading
from typing import TYPE_CHECKING, Any

from callboard.device.host.context.timelines import Timeline
from callboard.device.host.residents.item import Site
from callboard.device.host.residents.lending import Lendings
from callboard.device.host.residents.thread.services import ContextServices
from callboard.device.protocol.messages import ActorEvent
from callboard.device.protocol.residents.actor import HostContext, ResidentActor

if TYPE_CHECKING:
    from callboard.device.host.context.actor import ContextActor
    from callboard.device.host.residents.actors import HostActors
    from callboard.device.host.residents.thread.thread import ActorThread

__all__ = ["Rehearsals"]

log = logging.getLogger("callboard.resident")

FREE = 0.1
"""Share of the device's memory that must be free for a rehearsal; the context that serves needs memory, too."""


class Rehearsals:
    """Starts the rehearsals of one host, and tells when its actors could take over. For the admitting thread.

    Args:
        host: The actors of the host.
    """

    def __init__(self, host: "HostActors") -> None:
        self._host = host
        self._known = False  # whether the host is a hot standby
        self._context: ContextActor | None = None  # of a hot standby, until it takes over
        self._waiting: list[ActorThread] = []
        self._running: dict[ActorThread, Timeline] = {}

    def begin(self, context: "ContextActor | None") -> None:
        """The host is a hot standby with this context; None: it is another host, in which nothing is rehearsed."""
        self._known, self._context = True, context
        waiting, self._waiting = self._waiting, []
        for actor in waiting:
            self.prepared(actor)

    def prepared(self, actor: "ActorThread") -> None:
        """The actor has its instance, or could not make one."""
        if not self._known:
            self._waiting.append(actor)
        elif self._context is None or not self._start(self._context, actor):
            self._tell(actor)

    @property
    def ended(self) -> bool:
        """True if none is running."""
        return not self._running

    def _start(self, context: "ContextActor", actor: "ActorThread") -> bool:
        if not actor.rehearses or actor.stopping:
            return False
        context.device.use()
        free, total = context.device.memory_info()
        if free < FREE * total:
            log.info(
                "resident actor %s: no warm_up in the standby, as %d MiB of the device are free", actor.name, free >> 20
            )
            return False
        timeline = None
        try:
            timeline = context.streams.acquire(actor.name)
            site = self._host.site(context, timeline)
            thread = threading.Thread(
                target=self._run, args=(actor, site, context), name=f"callboard-warm-up-{actor.name}", daemon=True
            )
            thread.start()
        except Exception as e:  # no thread or no stream is left: the standby is used without
            log.warning("resident actor %s: warm_up cannot run in the standby: %s", actor.name, e)
            if timeline is not None:
                context.streams.release(timeline)
            return False
        self._running[actor] = timeline
        return True

    def _end(self, actor: "ActorThread", release: Any) -> None:
        release(self._running.pop(actor))
        self._tell(actor)

    def _tell(self, actor: "ActorThread") -> None:
        self._host.channel.send(ActorEvent(actor.id, "prepared"))

    # -- the thread of a rehearsal -------------------------------------------------------------------------------------

    def _run(self, actor: "ActorThread", site: Site, context: "ContextActor") -> None:
        services = ContextServices(site, Lendings(lambda _: None))
        self._host.channel.busy(f"warm_up of {actor.name}")
        try:
            site.device.use()
            _rehearse(actor, site, services)
            site.timeline.stream.synchronize()
        except BaseException as e:  # any error from a user's code: the standby is used without
            log.warning(
                "resident actor %s: warm_up failed in the standby, which is used all the same: %s: %s",
                actor.name,
                type(e).__name__,
                e,
            )
            dead = site.device.probe()
            if dead is not None:
                self._host.post_lost(dead)
        finally:
            services.close_device()
            if self._context is not None:  # else it has taken over, and what is collected now would delay calls
                with contextlib.suppress(Exception):  # the context is dead, or a package is just being imported
                    _free_caches()
            self._host.channel.busy(None)
            self._host.post(lambda: self._end(actor, context.streams.release))


def _rehearse(actor: "ActorThread", site: Site, services: ContextServices) -> None:
    instance = actor.another()
    if not isinstance(instance, ResidentActor):
        return
    instance.prepare()
    context = HostContext(services, site.device.info, actor.name, site.timeline.stream, site.ordinal, 0)
    services.make_current()
    result: Any = instance.warm_up(context)  # type: ignore[func-returns-value]
    if inspect.isawaitable(result):
        asyncio.run(_awaited(result))


async def _awaited(result: Any) -> None:
    await result


def _free_caches() -> None:
    """Give the device back what packages keep of the memory that was used."""
    gc.collect()
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    cupy: Any = sys.modules.get("cupy")
    if cupy is not None and hasattr(cupy, "get_default_memory_pool"):
        cupy.get_default_memory_pool().free_all_blocks()
