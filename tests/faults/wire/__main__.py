"""``python -m tests.faults.wire``: a million changed messages, half of them of hosts, half of the application.

Fails if the application hangs, runs code, is surprised, stops or answers wrongly, or grows; if a host hangs, ends
without a reason, or answers what it was not asked. It prints the seed and the messages.
"""

import argparse
import concurrent.futures
import os
import subprocess
import sys
import time
from pathlib import Path

CHUNK = 20_000
"""Changed messages to one process."""
BATCH = 2_000
"""Changed messages to one device."""
GROWTH = 64 << 20
"""Bytes by which an application may grow after its first batches. A host that cannot read a message ends, and with its
process its memory: where it lives in this one, some stays."""
CHUNK_TIME = 3600.0


def main() -> int:
    """Run chunks in processes of their own, a few at once."""
    parser = argparse.ArgumentParser("fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000, help="how many are changed (1,000,000)")
    parser.add_argument("--seed", default="1", help='of all choices ("1")')
    parser.add_argument("--direction", choices=["answers", "calls", "both"], default="both", help="whose messages")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--chunk", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.chunk:
        return _chunk(given.direction, given.seed, given.messages)
    directions = ["answers", "calls"] if given.direction == "both" else [given.direction]
    left = given.messages
    chunks = []
    while left > 0:
        direction = directions[len(chunks) % len(directions)]
        chunks.append((direction, f"{given.seed}.{len(chunks)}", min(CHUNK, left)))
        left -= CHUNK
    began, done, failed = time.monotonic(), 0, 0
    with concurrent.futures.ThreadPoolExecutor(given.workers) as pool:
        for chunk, code in pool.map(_run, chunks):
            done += chunk[2]
            failed += code != 0
            print(f"{done:,} messages, {time.monotonic() - began:.0f} s, {failed} of {len(chunks)} chunks failed")
            if code:
                print(f"FAILED with exit code {code}: --direction {chunk[0]} --seed {chunk[1]} --chunk", flush=True)
    return 1 if failed else 0


def _run(chunk: tuple[str, str, int]) -> tuple[tuple[str, str, int], int]:
    direction, seed, messages = chunk
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.faults.wire", "--chunk"]
    command += ["--direction", direction, "--seed", seed, "--messages", str(messages)]
    return chunk, subprocess.run(command, check=False, timeout=CHUNK_TIME).returncode


def _chunk(direction: str, seed: str, messages: int) -> int:
    from tests.faults.wire.admitting import fuzz_calls
    from tests.faults.wire.answering import Violation, fuzz_answers

    done = 0
    settled = 0  # bytes of this process when it had done everything once
    variants = [
        {"residents": False},
        {"residents": True},
        {"residents": False},
        {"standby": "warm"},
        {"standby": "hot"},
    ]
    try:
        for number in range(-(-messages // BATCH)):
            one = f"{seed}.{number}"
            if direction == "calls":
                done += fuzz_calls(one, min(BATCH, messages - done))
            else:
                done += fuzz_answers(one, min(BATCH, messages - done), **variants[number % len(variants)])
            if number == len(variants) - 1 and direction == "answers":
                settled = _resident_bytes()
        grown = _resident_bytes() - settled if settled else 0
        if grown > GROWTH:
            raise Violation(f"seed {seed}: it has grown by {grown >> 20} MiB over {done} messages")
    except Violation as e:
        print(e, flush=True)
        return 1
    return 0


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main())
