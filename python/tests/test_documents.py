"""The examples of the documents run as printed, and pictures have what they promise."""

import json
import re

import pytest

import undercroft as uc
from conftest import ROOT

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

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


def test_the_notebook_runs(tmp_path, monkeypatch):
    notebook = json.loads((ROOT / "examples" / "study.ipynb").read_text())
    monkeypatch.chdir(ROOT / "examples")
    namespace = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 5
    for cell in cells:
        exec(compile("".join(cell["source"]), "study.ipynb", "exec"), namespace)
    matplotlib.pyplot.close("all")


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
    uc.characterize(small).temporal_distance.plot()
    two = uc.sweep([small, uc.Trace.from_arrays([1, 2, 1])], l2="2blk", policy="lru")
    with pytest.raises(ValueError, match="choose one"):
        uc.plot.hit_ratio(two)
    with pytest.raises(ValueError, match="referenced twice"):
        uc.characterize(uc.Trace.from_arrays([1, 2])).reuse_distance.plot()
    matplotlib.pyplot.close("all")
