"""A cuRAND generator: the only module that uses ``nvmath.bindings.curand``.

cuRAND's sequences in its default order do not depend on how they are cut into calls: checked on its host generators,
which need no GPU, and on an H200. Setting a seed or an offset makes the next call set up all states again (0.8 ms for
MRG32k3a), so a generator stays where its last fill ended.
"""

from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.vendor import Vendor, load_binding
from callboard.core.errors import LibraryError
from callboard.kernel.rng.streams import KINDS, check_discard

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["CODES", "Curand", "load_curand"]

CODES = {"mrg32k3a": 121, "mtgp32": 141, "mt19937": 142}
"""``curandRngType_t`` of the kinds that cuRAND serves here."""
LEGACY = 103
"""``curandOrdering_t``: the one order of these kinds beside the default one."""
ALLOCATION_FAILED = 102
"""``curandStatus_t``."""
DISCARDED_AT_ONCE = 1 << 22
"""Words."""


def load_curand() -> Any:
    """NVIDIA's binding of cuRAND.

    Raises:
        BackendUnavailable: It is not installed.
    """
    return load_binding("curand", "cuRAND")


class Curand(Vendor):
    """One generator of one kind and order, with its states on the device.

    Args:
        device: The device; its context is current.
        stream: The stream it enqueues on.
        kind: Key of :data:`CODES`.
        ordering: ``"default"`` or ``"legacy"``.
        library: Stands in for NVIDIA's binding.

    Raises:
        BackendUnavailable: The package or libcurand is missing.
        OutOfMemory: No room for the states.
        LibraryError: cuRAND refuses.
    """

    name = "curand"
    no_room = (ALLOCATION_FAILED,)

    def __init__(
        self, device: "CudaDevice", stream: "CudaStream", kind: str, ordering: str = "default", library: Any = None
    ) -> None:
        if library is None:
            library = load_curand()
        super().__init__(library, library.cuRANDError)
        self._device = device
        self._kind = kind
        self._ordering = ordering
        self._stream = stream
        self._handle = 0
        self._seed, self._position = 0, -1
        self._discarded = None if KINDS[kind].skips else device.allocate(4 * DISCARDED_AT_ONCE)
        try:
            if KINDS[kind].skips:
                self._begin(0)
        except BaseException:  # Ctrl-C, too: nothing else returns handle and memory
            self.close()
            raise

    def reach(self, seed: int, position: int) -> None:
        """See to it that the words of this place can be enqueued; not in a launch.

        A generator that cannot skip is created again for another seed and to go back, after its stream has passed the
        earlier fills. Setting the seed again would leave the states of these two unchanged (measured: MTGP32 in any
        way, MT19937 for the seed that it has).

        Raises:
            UnsupportedOp: It would have to discard too many words to get there.
            LibraryError: cuRAND refuses.
        """
        again = seed != self._seed or not 0 <= self._position <= position
        check_discard(self._kind, position, 0 if again else self._position)
        if again:
            self._begin(seed)

    def words(self, stream: "CudaStream", out: int, seed: int, position: int, count: int) -> None:
        """Enqueue: ``count`` words of 32 bits to address ``out``.

        Not to be captured: a new place sets up states, which cuRAND refuses to do in a capture (LAUNCH_FAILURE).

        Raises:
            LibraryError: cuRAND refuses, or a generator that cannot skip has not :meth:`reached <reach>` the place.
        """
        self.checked("curandGenerate", self._generate, stream, out, seed, position, count)

    def _generate(self, stream: "CudaStream", out: int, seed: int, position: int, count: int) -> None:
        if stream is not self._stream:
            self._stream = stream
            if self._handle:
                self.library.set_stream(self._handle, stream.native)
        if KINDS[self._kind].skips:
            if seed != self._seed:
                self.library.set_pseudo_random_generator_seed(self._handle, seed)
            if (seed, position) != (self._seed, self._position):
                self.library.set_generator_offset(self._handle, position)
        else:
            self._walk(seed, position)
        self._seed, self._position = seed, -1  # unknown, should the call fail
        self.library.generate(self._handle, out, count)
        self._position = position + count

    def _begin(self, seed: int) -> None:
        """Make the generator, at its beginning and with its states; a former one goes, when its work is done."""
        self._destroy()
        self._seed, self._position = seed, -1
        self.make_handle("curandCreateGenerator", self._set_up)
        self._position = 0

    def _set_up(self) -> int:
        self._handle = int(self.library.create_generator(CODES[self._kind]))
        self.library.set_stream(self._handle, self._stream.native)
        if self._ordering != "default":
            self.library.set_generator_ordering(self._handle, LEGACY)
        self.library.set_pseudo_random_generator_seed(self._handle, self._seed)
        self.library.generate_seeds(self._handle)  # which the first fill would do, and allocate for
        return self._handle

    def _walk(self, seed: int, position: int) -> None:
        """Discard the numbers before a position."""
        if self._discarded is None or seed != self._seed or not 0 <= self._position <= position:
            raise LibraryError(f"{self._kind} was not brought to position {position} of seed {seed}", "curand")
        while self._position < position:
            count = min(position - self._position, DISCARDED_AT_ONCE)
            self.library.generate(self._handle, self._discarded.address, count)
            self._position += count

    def close(self) -> None:
        """Destroy the generator; all its work is done."""
        try:
            self._destroy()
        finally:
            if self._discarded is not None:
                discarded, self._discarded = self._discarded, None
                self._device.release(discarded)

    def _destroy(self) -> None:
        if self._handle:
            handle, self._handle = self._handle, 0
            self._stream.synchronize()
            self.checked("curandDestroyGenerator", self.library.destroy_generator, handle)
