"""``BlasFace``: what stands behind ``dev.blas``.

One method per message, named after it, with the message's fields as parameters; the message's docstring says what
they mean. A method makes the message and submits it, nothing else: it is on the path of every small product.
Everything raises at the call ``TypeError`` (not a ref, not a number), ``ShapeError``, ``DeviceMismatch``,
``GpuRefStale`` and ``MailboxFull``, and sends nothing then.
"""

from callboard.core.mode import Mode
from callboard.kernel.blas.faces.batched import BatchedFace
from callboard.kernel.blas.faces.level1 import Level1Face
from callboard.kernel.blas.faces.level2 import Level2Face
from callboard.kernel.blas.faces.level3 import Level3Face

__all__ = ["BlasFace"]


class BlasFace(Level1Face[Mode], Level2Face[Mode], Level3Face[Mode], BatchedFace[Mode]):
    """BLAS on a device."""

    __slots__ = ()
