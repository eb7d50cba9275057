"""``callboard doctor``."""

import argparse
import asyncio
import sys
from collections.abc import Iterator

import msgspec

from callboard.cli.doctor.devices import backend_findings
from callboard.cli.doctor.findings import Finding, Findings
from callboard.cli.doctor.machine import driver, limits, packages, system
from callboard.cli.doctor.reporting import write_report
from callboard.device.configure import unknown_variables

__all__ = ["add_doctor", "examine", "report"]


def add_doctor(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "doctor",
        help="check which devices and libraries can be used on this machine",
        description="Check which devices and libraries can be used here, and report why each of the others cannot. "
        "Every device is opened in a context host; libcuda is never loaded into this process.",
    )
    parser.add_argument("--require", metavar="BACKEND", help="exit with 1 unless a device of this backend works")
    parser.add_argument(
        "--isolation", choices=("process", "thread"), help="isolation of the devices; default: that of each backend"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="also write a file for a bug report: versions, settings, findings, and the last losses of observed "
        "applications that run; without secrets and without names and folders of the user",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Examine and report; the exit code."""
    found = examine(arguments.isolation)
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        print("\n".join(report(found)))
    if arguments.report:
        try:
            write_report(arguments.report, found)
        except OSError as e:
            print(f"the report cannot be written to {arguments.report}: {e.strerror or e}", file=sys.stderr)
            return 1
        print(f"the report is in {arguments.report}; read it before you send it", file=sys.stderr)
    if arguments.require and not found.usable(arguments.require):
        print(f"required and not usable: {arguments.require}")
        return 1
    return 0


def examine(isolation: str | None = None) -> Findings:
    """Examine the machine; takes seconds, since every device is opened."""
    return Findings(
        platform=system(),
        packages=packages(),
        driver=driver(),
        backends=asyncio.run(backend_findings(isolation)),
        limits=limits(),
        environment=[Finding(name=name, error=why) for name, why in unknown_variables().items()],
    )


def report(found: Findings) -> Iterator[str]:
    """The findings as lines of text."""
    place = found.platform
    yield f"{place['system']} {place['machine']}, Python {place['python']} ({place['executable']})"
    there = [f"{name} {version}" for name, version in found.packages.items() if version]
    yield "packages: " + ", ".join(there)
    yield _line(found.driver)
    for backend in found.backends:
        if backend.error is not None:
            yield _line(backend)
        for device in backend.devices:
            yield _line(device)
            yield from (f"    {_line(library)}" for library in device.libraries)
    yield from map(_line, found.limits)
    yield from map(_line, found.environment)


def _line(finding: Finding) -> str:
    if finding.error is not None:
        detail = f" ({finding.detail})" if finding.detail and finding.detail not in finding.error else ""
        return f"{'NO' if finding.needed else '--'}  {finding.name}{detail}: {finding.error}"
    return f"ok  {finding.name}" + (f": {finding.detail}" if finding.detail else "")
