"""Sweeps: the same rows from threads, processes, a cluster and the program; resumed, streamed."""

import concurrent.futures as futures
import json
import multiprocessing

import pytest

import policies
import undercroft as uc

OPTIONS = {
    "l1": "20blk:lru",
    "l2": ["30blk", "60blk..90blk"],
    "policy": ["lru", "mq,m=4", "2q"],
    "placement": ["access", "eviction,on-hit=keep"],
    "warmup": "10%",
}


def counts(rows):
    return [{name: value for name, value in row.items() if name != "elapsed_s"} for row in rows]


@pytest.fixture
def expected(small):
    return counts(uc.sweep(small, executor=None, **OPTIONS))


def test_rows_are_single_simulations(small, expected):
    assert len(expected) == 18
    for row in expected:
        l2 = f"{row['size']}:{row['policy']}"
        report = uc.simulate(small, l1="20blk:lru", l2=l2, placement=row["placement"], warmup="10%")
        assert row["read_hits"] == report["levels"][1]["read_hits"]
        assert row["disk_reloads"] == report["disk"]["reloads"]


def test_processes_give_the_same(small, expected):
    context = multiprocessing.get_context("spawn")
    with futures.ProcessPoolExecutor(2, mp_context=context) as executor:
        assert counts(uc.sweep(small, executor=executor, **OPTIONS)) == expected


def test_dask_gives_the_same(small, expected):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        seen = []
        executor = client.get_executor()
        rows = uc.sweep(small, executor=executor, progress=lambda done, row: seen.append(done), **OPTIONS)
    assert counts(rows) == expected
    assert seen == list(range(1, 19))


def test_a_sweep_goes_on_where_it_was_interrupted(small, expected, tmp_path):
    out = tmp_path / "out"
    rows = uc.iter_sweep(small, out=out, **OPTIONS)
    first = [next(rows) for _ in range(4)]
    rows.close()
    done = len((out / "runs.jsonl").read_text().splitlines())
    assert done == 4 and not (out / "results.csv").exists()

    class Counting(futures.ThreadPoolExecutor):
        runs = 0

        def submit(self, *arguments):
            Counting.runs += 1
            return super().submit(*arguments)

    with Counting(2) as executor:
        rows = uc.sweep(small, out=out, executor=executor, **OPTIONS)
    assert counts(rows) == expected and Counting.runs == 18 - 4
    assert all(row in rows.rows for row in first)
    written = json.loads((out / "results.json").read_text())
    assert written == rows.rows
    assert (out / "results.csv").read_text().count("\n") == 19


def test_program_and_package_share_the_folder(small, program, tmp_path):
    arguments = ["--l1", "20blk:lru", "--l2", "30blk,60blk..90blk", "--policy", "lru,mq,m=4,2q", "--warmup", "10%"]
    placement = "access,eviction,on-hit=keep"
    by_program = json.loads(program("sweep", small.path, *arguments, "--placement", placement, "-o", "out", "--json", cwd=tmp_path))

    def run(*_):
        raise AssertionError("a finished run was done again")

    class Idle(futures.ThreadPoolExecutor):
        submit = run

    rows = uc.sweep(small, out=tmp_path / "out", executor=Idle(1), **OPTIONS)
    assert rows.rows == by_program


def test_classes_are_swept_in_processes(small, tmp_path):
    context = multiprocessing.get_context("spawn")
    with futures.ProcessPoolExecutor(1, mp_context=context) as executor:
        options = {"l2": "30blk", "policy": [policies.Lru, "lru"], "out": tmp_path / "out"}
        rows = uc.sweep(small, executor=executor, **options)
    assert [row["policy"] for row in rows] == ["Lru", "lru"]
    assert rows.rows[0]["read_hits"] == rows.rows[1]["read_hits"] > 0
    class Lru(uc.Policy):  # Another class of the same name is another policy.
        pass

    with pytest.raises(NotImplementedError):
        uc.sweep(small, l2="30blk", policy=Lru, out=tmp_path / "out")


def test_traces_of_arrays_are_kept_by_their_content(tmp_path):
    options = {"l2": "2blk", "policy": "lru", "out": tmp_path / "out"}
    first = uc.sweep(uc.Trace.from_arrays([1, 2, 3, 1, 2, 3]), **options)
    other = uc.sweep(uc.Trace.from_arrays([1, 2, 1, 2]), **options)
    again = uc.sweep(uc.Trace.from_arrays([1, 2, 3, 1, 2, 3]), **options)
    assert first.rows == again.rows and other.rows != first.rows
    assert "arrays" in repr(first)


def test_what_cannot_be_run_is_said_before_anything_is(small, tmp_path):
    for options, told in [
        ({"l2": "30blk", "policy": "opt", "l1": "10blk:lru", "placement": "eviction"}, "opt"),
        ({"l2": "30", "policy": "lru,zz"}, "no policy 'zz'"),
        ({"l2": "30blk", "policy": "mq", "placement": "demote"}, "lru"),
        ({"l2": "30blk", "policy": "lru", "demotions": "free"}, "none of the placements"),
        ({"l2": "30blk", "policy": "lru", "l1": "10blk:lru", "ratio": "1:2"}, "give one"),
    ]:
        with pytest.raises(ValueError, match=told):
            uc.sweep(small, out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_sizes_by_default_are_shares_of_the_blocks(small):
    rows = uc.sweep(small, policy="lru")
    assert rows["size"].tolist() == ["1%", "2%", "5%", "10%", "20%", "50%", "100%"]


def test_frames(small, expected):
    rows = uc.sweep(small, **OPTIONS)
    for frame in (rows.to_pandas(), rows.to_polars()):
        assert frame["read_hits"].to_list() == [row["read_hits"] for row in expected]
        assert set(frame["policy"]) == {"lru", "mq,m=4", "2q"}
