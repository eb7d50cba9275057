"""The command ``callboard play``: a simulation live in the browser, or as a GIF or video file."""

import argparse
import asyncio
import secrets
import sys

from callboard.core.errors import AccelError
from callboard.realtime.play.gif import check_fps, write_gif
from callboard.realtime.play.players import PLAYERS
from callboard.system import device

__all__ = ["add_play"]


def add_play(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    play = commands.add_parser(
        "play",
        help="a simulation live in the browser",
        description="Runs a simulation and serves a page that shows it, with its parameters as sliders. "
        + " ".join(f"{name}: {player.about}." for name, player in PLAYERS.items()),
    )
    play.add_argument("name", nargs="?", choices=sorted(PLAYERS), help="the simulation; without it, they are listed")
    play.add_argument("--device", default="auto", help="where it runs (default: auto)")
    play.add_argument("--fps", type=float, default=30.0, help="frames a second at most (default: 30)")
    play.add_argument("--size", default="480x360", help="of the picture (default: 480x360)")
    play.add_argument("--gif", metavar="FILE", help="write frames to a GIF file, and serve nothing")
    play.add_argument("--video", metavar="FILE", help="the same as a video file: .mp4, .mkv, .webm")
    play.add_argument("--frames", type=int, default=90, help="frames of the file (default: 90)")
    play.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    play.add_argument("--port", type=int, default=8091, help="port (default: 8091; 0: any free one)")
    play.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.name is None:
        for name, player in PLAYERS.items():
            print(f"{name:10} {player.about}; sliders: {', '.join(one.name for one in player.sliders)}")
        return 0
    try:
        width, height = (int(part) for part in arguments.size.split("x"))
        if min(width, height) < 16 or max(width, height) > 4096:
            raise ValueError
    except ValueError:
        return _failed(f"--size is {arguments.size!r}; pass WIDTHxHEIGHT, each from 16 to 4096, such as 480x360")
    if not 1 <= arguments.fps <= 240:
        return _failed(f"--fps is {arguments.fps:g}; pass 1 to 240")
    if arguments.gif:
        try:
            check_fps(arguments.fps)
        except ValueError as error:
            return _failed(f"--{error}")
    if arguments.frames < 1:
        return _failed(f"--frames is {arguments.frames}; pass at least 1")
    if arguments.gif and arguments.video:
        return _failed("--gif and --video are two files; pass one of them")
    work = _written if arguments.gif or arguments.video else _served
    try:
        asyncio.run(work(arguments, width, height))
    except (AccelError, ImportError, OSError, ValueError) as error:
        return _failed(str(error))
    return 0


async def _written(arguments: argparse.Namespace, width: int, height: int) -> None:
    from callboard.realtime.video.files import write_video

    player = PLAYERS[arguments.name]
    async with device(arguments.device) as gpu, player.make(gpu) as simulation:
        await simulation.update_config(**player.changes({one.name: one.value for one in player.sliders}))
        pictures = []
        for _ in range(arguments.frames):
            await simulation.step(player.dt, player.steps)
            pictures.append(await simulation.picture(width, height))
            _progress(len(pictures), arguments.frames)
    if arguments.gif:
        await asyncio.to_thread(write_gif, arguments.gif, pictures, arguments.fps)
    else:
        timed = [(n / arguments.fps, picture) for n, picture in enumerate(pictures)]
        await write_video(arguments.video, timed, fps=arguments.fps)
    print(f"{arguments.gif or arguments.video}: {len(pictures)} frames of {width} by {height}")


def _progress(done: int, total: int) -> None:
    """One line on a terminal; elsewhere a line for each tenth."""
    if sys.stderr.isatty():
        print(f"\rframe {done} of {total}", end="\n" if done == total else "", file=sys.stderr, flush=True)
    elif done * 10 // total > (done - 1) * 10 // total:
        print(f"frame {done} of {total}", file=sys.stderr, flush=True)


async def _served(arguments: argparse.Namespace, width: int, height: int) -> None:
    import socket

    from callboard.realtime.play.app import play_app
    from callboard.realtime.play.show import Show

    try:
        import uvicorn
    except ImportError as error:
        raise ImportError('uvicorn is missing: pip install "callboard[serve]"') from error
    host, token = arguments.host, secrets.token_urlsafe(24)
    listening = socket.create_server((host, arguments.port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    async with (
        device(arguments.device) as gpu,
        Show(gpu, PLAYERS[arguments.name], fps=arguments.fps, width=width, height=height) as show,
    ):
        app = play_app(show, arguments.name, token)
        shown = f"[{host}]" if ":" in host else host
        print(f"http://{shown}:{listening.getsockname()[1]}/?token={token}", flush=True)
        settings = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        await uvicorn.Server(settings).serve(sockets=[listening])


def _failed(text: str) -> int:
    print(f"callboard play: {text}", file=sys.stderr)
    return 2
