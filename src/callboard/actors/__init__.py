"""The actor model: systems, references, mailboxes, supervision, death watch, stash, timers.

This package imports nothing about arrays or devices.

::

    class Add(Msg["Counter"]):
        amount: int


    class Read(Request["Counter", int]): ...


    class Counter(Actor):
        def __init__(self) -> None:
            self.total = 0

        @Add.handles
        def add(self, m: Add) -> None:
            self.total += m.amount

        @Read.handles
        def read(self, m: Read) -> int:
            return self.total


    async with ActorSystem("demo") as system:
        counter = system.actor_of(Props(Counter), "counter")
        counter.tell(Add(amount=2))
        assert await counter.ask(Read()) == 2
"""

from callboard.actors.actor import Actor
from callboard.actors.clock import Clock, LoopClock, ManualClock
from callboard.actors.deadletters import DeadLetter, DeadLetters, DeadLetterSuppression
from callboard.actors.errors import (
    AccelError,
    ActorInitError,
    ActorKilled,
    ActorStopped,
    AskTimeout,
    DeathPact,
    HandlerCancelled,
    MailboxFull,
    NameInUse,
    ReplyError,
    SelfAsk,
    ShutdownError,
    StashError,
    StashOverflow,
    UnhandledMessage,
    WatchConflict,
    WrongThread,
)
from callboard.actors.loops.dispatcher import CallerLoop, Dispatcher, LoopLag, Pinned
from callboard.actors.mailbox import Mailbox
from callboard.actors.messages import Message, Msg, Request
from callboard.actors.props import Props
from callboard.actors.refs import ActorRef
from callboard.actors.shutdown import CoordinatedShutdown, Phase
from callboard.actors.supervision import AllForOne, Backoff, Directive, OneForOne, Strategy
from callboard.actors.system import ActorSystem
from callboard.actors.timers import NotInfluenceReceiveTimeout, ReceiveTimeout
from callboard.actors.watch import Terminated

__all__ = [
    "AccelError",
    "Actor",
    "ActorInitError",
    "ActorKilled",
    "ActorRef",
    "ActorStopped",
    "ActorSystem",
    "AllForOne",
    "AskTimeout",
    "Backoff",
    "CallerLoop",
    "Clock",
    "CoordinatedShutdown",
    "DeadLetter",
    "DeadLetterSuppression",
    "DeadLetters",
    "DeathPact",
    "Directive",
    "Dispatcher",
    "HandlerCancelled",
    "LoopClock",
    "LoopLag",
    "Mailbox",
    "MailboxFull",
    "ManualClock",
    "Message",
    "Msg",
    "NameInUse",
    "NotInfluenceReceiveTimeout",
    "OneForOne",
    "Phase",
    "Pinned",
    "Props",
    "ReceiveTimeout",
    "ReplyError",
    "Request",
    "SelfAsk",
    "ShutdownError",
    "StashError",
    "StashOverflow",
    "Strategy",
    "Terminated",
    "UnhandledMessage",
    "WatchConflict",
    "WrongThread",
]
