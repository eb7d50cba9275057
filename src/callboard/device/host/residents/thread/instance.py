"""``Instance``: the object of a resident actor's class, made, set up in a context, and replaced after failures."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.actors import Props
from callboard.actors._runtime.table import bind
from callboard.actors.errors import returned
from callboard.device.host.residents.item import Site
from callboard.device.host.residents.thread.coroutines import Coroutines, has_coroutines, set_up
from callboard.device.host.residents.thread.services import ContextServices
from callboard.device.host.residents.thread.supervising import Restarts
from callboard.device.protocol.messages import FailureMessage, StartActor
from callboard.device.protocol.residents.actor import HostContext, ResidentActor
from callboard.device.protocol.residents.code import loads
from callboard.device.protocol.residents.exceptions import described, is_out_of_memory, trace_of

if TYPE_CHECKING:
    from callboard.device.host.residents.actors import HostActors
    from callboard.device.host.residents.thread.thread import ActorThread

__all__ = ["Instance"]

log = logging.getLogger("callboard.resident")


class Instance:
    """The present instance of a resident actor. Used on the actor's thread.

    Args:
        thread: The actor's thread.
        start: The message that starts the actor.
        host: The actors of the host.

    Attributes:
        present: The instance; None while there is none.
        table: Its handlers, by the class of the message.
        coroutines: The actor's event loop; None for a class without async methods.
    """

    def __init__(self, thread: "ActorThread", start: StartActor, host: "HostActors") -> None:
        self._thread = thread
        self._host = host
        self._recipe = start.recipe
        self._props: Props[Any] | None = None
        self._site: Site | None = None
        self._services: ContextServices | None = None
        self._context: HostContext | None = None
        self._restarts = Restarts()
        self.present: ResidentActor | None = None
        self.table: dict[type, Callable[[Any], Any]] = {}
        self.coroutines: Coroutines | None = None

    def make(self) -> None:
        """Make and prepare a new instance, unless there is one."""
        if self.present is not None:
            return
        self._host.channel.busy(f"prepare of {self._thread.name}")
        try:
            props = self._props
            if props is None:
                recipe = self._recipe
                props = self._props = recipe if isinstance(recipe, Props) else loads(recipe)
            instance: Any = props.make()
            if not isinstance(instance, ResidentActor):
                raise returned(f"{props!r}", instance, "a new cb.ResidentActor")
            if self.coroutines is None and has_coroutines(type(instance)):
                self.coroutines = self._thread._streams.coroutines = Coroutines(self._thread, type(instance))
            instance.prepare()
            self.table = bind(instance)
            self.present = instance
        finally:
            self._host.channel.busy(None)

    def another(self) -> object:
        """One more object made from the same recipe. Any thread, once there is an instance."""
        assert self._props is not None
        return self._props.make()

    def enter(self, site: Site, services: ContextServices) -> None:
        """The context is there: instances are set up in it from now on."""
        device = site.device
        self._site, self._services = site, services
        self._context = HostContext(
            services, device.info, self._thread.name, site.timeline.stream, site.ordinal, device.generation
        )

    def set_up(self, event: str) -> FailureMessage | None:
        """Set an instance up, retrying within the restart budget.

        Args:
            event: What the application is told when that is done.

        Returns:
            Why it failed; None on success, or where the actor is to end.
        """
        at_once = event == "ready"  # before a call, which may end the process
        while True:
            try:
                self.make()
                assert self.present is not None
                assert self._context is not None
                assert self._services is not None
                self._services.make_current()
                self._host.channel.busy(f"setup of {self._thread.name}")
                try:
                    set_up(self.present, self._context, self.coroutines)
                finally:
                    self._host.channel.busy(None)
            except BaseException as e:  # any error from a user's setup: the actor's strategy decides
                if self.is_lost(e):
                    return described(0, e)
                log.error("resident actor %s could not be set up: %s: %s", self._thread.name, type(e).__name__, e)
                if is_out_of_memory(e):
                    self._host.post_trim()
                cause = self.drop_after(e)
                if cause is not None or self._thread.stopping:
                    return cause
                at_once = False  # behind what was posted of the restart
            else:
                self._host.post_event(self._thread, event, at_once=at_once)
                return None

    def is_lost(self, error: BaseException) -> bool:
        """True if the context is dead; the admitting thread is then notified."""
        dead = None if self._site is None else self._site.device.probe()
        if dead is None:
            return False
        dead.add_note(f"found when resident actor {self._thread.name} raised:\n{trace_of(error).rstrip()}")
        if dead is not error:
            dead.__cause__ = error
        self._host.post_lost(dead)
        return True

    def resumes(self, error: BaseException) -> bool:
        """True if the instance goes on after this exception."""
        return self._restarts.resumes(self._class, error)

    def drop_after(self, error: BaseException) -> FailureMessage | None:
        """Drop the instance and wait for the delay of a restart; returns why the actor stops instead, if it does."""
        delay = self._restarts.delay(self._class, error)
        if delay is None:
            return described(0, error)
        self._drop()
        self._host.post_event(self._thread, "restarting", described(0, error))
        self._thread.ending.wait(delay)
        return None

    def end(self) -> None:
        """The actor ends."""
        self._drop()
        self._context = None

    def _drop(self) -> None:
        self.present = None
        if self._services is not None:
            self._services.close_device()

    @property
    def _class(self) -> Any:
        """Of the instance; while there is none, what makes it."""
        return type(self.present) if self.present is not None else getattr(self._props, "_factory", None)
