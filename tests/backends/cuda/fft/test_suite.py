"""The conformance suite on the stand-ins: layouts of both sides, copies, scaling, caching."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from test_fft import *  # noqa: F403 - its tests, with this folder's session
from test_fft_many import *  # noqa: F403 - likewise
