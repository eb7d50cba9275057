"""A program whose op is ended by two signals, or by one with ``cancelled_after``, the argument.

Run by ``test_sync_interrupted.py``.
"""

import signal
import sys
import threading

import numpy as np

import callboard as cb
from callboard.core.reply import Reply

WAIT = Reply.result.__code__
AFTER = float(sys.argv[1]) if sys.argv[1:] else None
looks = threading.Event()


def tell() -> None:
    """Print ``waits`` each time that the main thread has begun to wait for a reply, once :data:`looks` is set."""
    main, pause = threading.main_thread().ident, threading.Event()
    assert main is not None
    while True:
        looks.wait()
        frame, names = sys._current_frames().get(main), []
        while frame is not None:
            names.append(frame.f_code)
            frame = frame.f_back
        if WAIT in names and names[0].co_filename.endswith(("bell.py", "blocking.py")):
            looks.clear()
            print("waits", flush=True)
        pause.wait(0.01)


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=tell, daemon=True).start()
    with cb.sync.device("cpu", isolation="process", standby=None, cancelled_after=AFTER) as gpu:
        kept = gpu.put(np.ones((2, 2)))
        assert kept.get().sum() == 4
        values = gpu.solver.svd(gpu.put(np.random.default_rng(1).random((4000, 4000))))[1]
        later = gpu.copy(values)
        for _ in range(2 if AFTER is None else 1):
            try:
                looks.set()
                values.result()
            except KeyboardInterrupt:
                print("left", flush=True)
        try:
            (values if AFTER is None else later).result()  # a wait for the op itself would let it run on
        except cb.ContextPoisoned as e:
            print(e, flush=True)
        try:
            kept.get()
        except cb.GpuRefStale:
            print("stale", flush=True)
        x = gpu.put(np.ones((2, 2)))
        print("next", gpu.blas.gemm(x, x).get().sum(), flush=True)
        print("losses", gpu.health().restarts, flush=True)


if __name__ == "__main__":
    main()
