"""What the tests share."""

import os
import random
import subprocess
from pathlib import Path

import pytest

import undercroft as uc

ROOT = Path(__file__).resolve().parents[2]
RECORDING = ROOT / "examples" / "postgres-tpcc.uct.zst"


@pytest.fixture(scope="session")
def recording():
    return uc.Trace.open(RECORDING)


@pytest.fixture(scope="session")
def program():
    """Runs the program, if it has been built."""
    target = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
    default = [target / kind / "undercroft" for kind in ("debug", "release")]
    given = os.environ.get("UNDERCROFT")
    found = next((path for path in ([Path(given)] if given else default) if path.exists()), None)
    if found is None:
        pytest.skip("the program has not been built; UNDERCROFT=PROGRAM names it")

    def run(*arguments, cwd=None):
        return subprocess.run([found, *arguments], check=True, capture_output=True, text=True, cwd=cwd).stdout

    return run


@pytest.fixture
def small(tmp_path):
    """A trace of 3,000 reads in a file."""
    numbers = random.Random(1)
    path = tmp_path / "small.trc"
    path.write_text("".join(f"{int(200 * numbers.random() ** 2)}\n" for _ in range(3000)))
    return uc.Trace.open(path)
