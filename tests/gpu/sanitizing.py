"""``python -m tests.gpu.sanitizing memcheck tests/gpu/test_programs.py``: tests under compute-sanitizer.

The tests run in several workers, each watched. First a kernel with a known fault runs the same way:
if the tool does not report that one, silence about the others would mean nothing.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What the faulty kernel of each tool does: writes past its tensor, or reads what another warp writes.
FAULTS = {
    "memcheck": "x[1024 + threadIdx.x] = 1.0f;",
    "racecheck": """
        __shared__ float s[256];
        s[threadIdx.x] = x[threadIdx.x];
        x[threadIdx.x] = s[255 - threadIdx.x];
    """,
}
FAULTY_TEST = """
import torch

def test_faulty():
    kernel = torch.cuda._compile_kernel({source!r}, "faulty")
    kernel((1, 1, 1), (256, 1, 1), (torch.zeros(256, device="cuda"),))
    torch.cuda.synchronize()
"""


# A test that takes longer shows where it stands.
STUCK_SECONDS = 120
TIMED_OUT = 124


def sanitized(tool: str, tests: list[str], workers: int, seconds: float) -> tuple[int, str]:
    """Exit code and log of pytest in ``workers`` processes, each under the tool.

    After ``seconds`` all of them are ended, and the exit code is 124.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "tool.log"
        command = [
            "compute-sanitizer", "--tool", tool, "--target-processes", "all", "--error-exitcode", "9",
            "--print-limit", "20", "--log-file", str(log),
            *(("--racecheck-report", "all") if tool == "racecheck" else ()),
            sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-n", str(workers),
            "-o", f"faulthandler_timeout={STUCK_SECONDS}", "-W", "ignore", *tests,
        ]  # fmt: skip
        # Each allocation its own, so that memcheck sees accesses between tensors.
        environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = TIMED_OUT
        return code, log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool", choices=tuple(FAULTS))
    parser.add_argument("tests", nargs="+", help="files of tests")
    # compute-sanitizer does not come to the tests with 12 workers or more.
    parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=float, default=3600.0, help="time limit of each run")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        faulty = Path(folder) / "test_faulty.py"
        source = f'extern "C" __global__ void faulty(float* x) {{ {FAULTS[chosen.tool]} }}'
        faulty.write_text(FAULTY_TEST.format(source=source), encoding="utf-8")
        code, log = sanitized(chosen.tool, [str(faulty)], 1, chosen.seconds)
        if code == 0 or "faulty" not in log:
            sys.stderr.write(
                f"{chosen.tool} does not see a known fault (exit code {code}):\n{log}\n"
            )
            return 2
    code, log = sanitized(chosen.tool, chosen.tests, chosen.workers, chosen.seconds)
    sys.stdout.write(f"{log}\n{chosen.tool}: exit code {code}, the known fault was reported\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
