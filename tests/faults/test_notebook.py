"""In a notebook's kernel: a real ipykernel, driven through jupyter_client, cell by cell."""

import sys
from pathlib import Path

import pytest
from tests.faults.programs import Program, Watched

pytestmark = [
    pytest.mark.fault,
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only"),
]

DRIVER = """
import sys
from jupyter_client.manager import KernelManager

folder, cells, end = sys.argv[1:]
kernel = KernelManager(kernel_name="python3", transport="ipc", ip=f"{folder}/socket")
kernel.start_kernel()
client = kernel.client()
client.start_channels()
client.wait_for_ready(timeout=60)
for cell in open(cells).read().split("# %%"):
    reply = client.execute_interactive(cell, timeout=60)["content"]
    assert reply["status"] == "ok", reply
print("kernel", kernel.provisioner.pid, flush=True)
kernel.shutdown_kernel(now=end == "killed")
client.stop_channels()
print("ended", flush=True)
"""

CELLS = """
import os, signal
import numpy as np
import callboard as cb
system = await cb.System("notebook").start()
dev = await system.device("cpu", isolation="process", standby="warm")
a = dev.put(np.full((4, 4), 2, np.float32))
# %%
print("value", (await dev.blas.gemm(a, a).get())[0, 0], flush=True)
# %%
class Scale(cb.ResidentActor):
    def setup(self, ctx):
        self.factor = 3

    def times(self, n: int) -> int:
        return self.factor * n

scale = dev.actor_of(cb.Props(Scale), name="scale")
print("scaled", await scale.call(Scale.times, 14), flush=True)
# %%
os.kill(dev.health().host_pid, signal.SIGKILL)
while True:
    try:
        b = dev.put(np.full((4, 4), 3, np.float32))
        print("next", (await dev.blas.gemm(b, b).get())[0, 0], flush=True)
        break
    except cb.ContextLost:
        pass
# %%
assert a.is_stale and not b.is_stale
print("again", await scale.call(Scale.times, 5), flush=True)
# %%
await dev.standby_ready()
print("hosts", dev.health().host_pid, dev._actor._standby.host.pid, flush=True)
"""


@pytest.mark.parametrize("end", ["asked", "killed"])
def test_cells_lose_a_context_and_go_on_and_the_kernel_leaves_no_host(tmp_path: Path, end: str) -> None:
    """Awaits at top level, a class that only a cell has, a host killed, a kernel shut down without closing anything."""
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    pytest.importorskip("jupyter_client", reason="jupyter-client is not installed")
    cells, driver = tmp_path / "cells.py", tmp_path / "driver.py"
    cells.write_text(CELLS)
    driver.write_text(DRIVER)
    with Program(str(driver), str(tmp_path), str(cells), end) as program:
        assert program.line("value") == "16.0"
        assert program.line("scaled") == "42"
        assert program.line("next") == "36.0"
        assert program.line("again") == "15"
        hosts = [Watched(int(pid)) for pid in program.line("hosts").split()]
        kernel = Watched(int(program.line("kernel")))
        program.line("ended")
        for watched in (kernel, *hosts):
            assert watched.gone()
            watched.close()
        assert program.end() == 0
