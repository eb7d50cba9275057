"""What child processes and threads of the tests serve instead of a context."""

from callboard.device.hosts.channel import Channel
from callboard.device.protocol import Answer, Ask, Calls, Close, Closed, Verdicts


def echo(channel: Channel) -> int:
    """Every call succeeds at once; every request is answered with its argument."""
    while True:
        channel.beat()
        for message in channel.receive(None):
            match message:
                case Calls(calls=calls):
                    channel.send(Verdicts([call.id for call in calls], [], []))
                case Ask(id=id, argument=argument):
                    channel.send(Answer(id, argument))
                case Close():
                    channel.send(Closed())
                    return 0
