"""The examples of the documents run as printed, and pictures have what they promise."""

import json
import os
import re
import subprocess
import sys

import pytest

import undercroft as uc
from conftest import ROOT

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
pytest.importorskip("matplotlib.pyplot")

PAGES = ["README.md", "python/README.md", "docs/user/python.md"]


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page, tmp_path, monkeypatch):
    """The blocks of Python, in order, in one namespace: on the page of the package all but commands and
    those within lists, elsewhere those that begin with an import."""
    text = (ROOT / page).read_text()
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.M)
    code = [re.sub(r"^    ", "", block, flags=re.M) for block in blocks]
    not_python = r" |make " if page == "docs/user/python.md" else r"(?!import )"
    examples = [block.lstrip("\n") for block in code]
    examples = [block for block in examples if not re.match(not_python, block)]
    assert examples, f"{page} has no example"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    namespace = {"__name__": "example"}
    for example in examples:
        exec(compile(example, page, "exec"), namespace)


# Runs cells as a notebook does, which shows the figures of each behind it, and prints how many it showed.
KERNEL = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

shell, shown = InteractiveShell.instance(), []
for source in json.load(sys.stdin):
    with capture_output() as output:
        result = shell.run_cell(source)
    result.raise_error()
    shown.append(sum("image/png" in (out.data or {}) for out in output.outputs))
print(json.dumps(shown))
"""


def test_the_notebook_shows_its_pictures():
    pytest.importorskip("IPython")
    notebook = json.loads((ROOT / "examples" / "study.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    draws = [int("plot" in cell) for cell in cells]
    assert sum(draws) == 4
    environment = os.environ | {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "IPYTHONDIR": os.devnull}
    done = subprocess.run(
        [sys.executable, "-c", KERNEL], input=json.dumps(cells), cwd=ROOT / "examples", env=environment,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == draws


def test_doctest():
    import doctest

    assert doctest.testmod(uc).attempted > 0 and doctest.testmod(uc).failed == 0


def test_pictures(small, tmp_path):
    rows = uc.sweep(small, l1="20blk:lru", l2="30blk,60blk", policy=["lru", "mq"], placement=["access", "eviction"])
    _, given = matplotlib.pyplot.subplots()
    for frame in (rows, rows.to_pandas(), rows.to_polars()):
        ax = uc.plot.hit_ratio(frame)
        assert [line.get_label() for line in ax.lines] == [
            "lru, access", "lru, eviction", "mq, access", "mq, eviction",
        ]  # fmt: skip
        first = rows.rows[0]
        assert ax.lines[0].get_xydata()[0].tolist() == [30 * 4096, first["read_hit_ratio"]]
        assert "20blk:lru" in ax.get_xlabel() and "%" in ax.get_ylabel()
    assert uc.plot.hit_ratio(rows, ax=given, value="response_time_ms") is given
    curves = [uc.miss_ratio_curve(small), uc.miss_ratio_curve(small, policy="opt")]
    assert len(uc.plot.miss_ratio_curve(curves).lines) == 2
    ax = uc.characterize(small).reuse_distance.plot()
    assert ax.lines[0].get_ydata()[-1] == pytest.approx(1 - small.info["unique_blocks"] / 3000)
    ax.figure.savefig(tmp_path / "hill.pdf")
    # The page of the package promises a picture of each of these.
    promise = re.search(r"`\.plot\(\)`:\n(.*?)\.\n", (ROOT / "docs/user/python.md").read_text(), re.S)[1]
    names = re.findall(r"`(\w+)`", promise)
    assert len(names) == 5
    figures = len(matplotlib.pyplot.get_fignums())
    for count, name in enumerate(names, start=1):
        ax = getattr(uc.characterize(small), name).plot()
        assert ax.lines and ax.get_xlabel() and ax.get_ylabel(), name
        assert len(matplotlib.pyplot.get_fignums()) == figures + count
    least = uc.characterize(uc.Trace.from_arrays([1]))
    for draw in (least.frequency.plot, least.concentration.plot, least.working_set.plot):
        assert draw().lines
    two = uc.sweep([small, uc.Trace.from_arrays([1, 2, 1])], l2="2blk", policy="lru")
    with pytest.raises(ValueError, match="choose one"):
        uc.plot.hit_ratio(two)
    with pytest.raises(ValueError, match="referenced twice"):
        uc.characterize(uc.Trace.from_arrays([1, 2])).reuse_distance.plot()
    matplotlib.pyplot.close("all")
