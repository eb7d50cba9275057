"""The findings of the doctor, as plain data."""

import msgspec

__all__ = ["BackendFinding", "DeviceFinding", "Finding", "Findings", "LibraryFinding"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that works or does not.

    Attributes:
        name: Name of the component.
        error: The reason why it does not work, with the cure; None: it works.
        detail: More about it.
        needed: False for a missing component that nothing on this machine needs: ``error`` needs no action then.
    """

    name: str
    error: str | None = None
    detail: str = ""
    needed: bool = True


class LibraryFinding(Finding, frozen=True, kw_only=True):
    """A compute library, tried with one op."""


class DeviceFinding(Finding, frozen=True, kw_only=True):
    """A device, opened in a context host.

    Attributes:
        uuid: UUID of the device.
        libraries: Tried on it.
    """

    uuid: str
    libraries: list[LibraryFinding] = []


class BackendFinding(Finding, frozen=True, kw_only=True):
    """A backend; ``error`` is the reason why it has no device.

    Attributes:
        devices: Devices that the backend lists.
    """

    devices: list[DeviceFinding] = []


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """All of it.

    Attributes:
        platform: System, machine, Python.
        packages: Version by distribution; None: not installed.
        driver: NVIDIA's driver, as NVML reports it.
        backends: And their devices.
        limits: Limits of this process, and features of the kernel.
        environment: Variables with callboard's prefix that mean nothing.
    """

    platform: dict[str, str]
    packages: dict[str, str | None]
    driver: Finding
    backends: list[BackendFinding]
    limits: list[Finding]
    environment: list[Finding] = []

    def usable(self, backend: str) -> bool:
        """True if a device of this backend works with all its libraries."""
        return any(
            device.error is None and all(library.error is None for library in device.libraries)
            for found in self.backends
            if found.name == backend
            for device in found.devices
        )
