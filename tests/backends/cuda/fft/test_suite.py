"""The conformance suite on the stand-ins: which side lies where, what is copied, what is scaled, what is kept."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from test_fft import *  # noqa: F403 - its tests, with this folder's session
from test_fft_many import *  # noqa: F403 - likewise
