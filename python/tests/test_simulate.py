"""Simulations, characterisations and curves: the same figures as the program's."""

import json
import pickle
import threading
import time

import numpy as np
import pytest

import undercroft as uc
from conftest import RECORDING

TIMES = {"elapsed_s", "cpu_s", "requests_per_s"}


def without_times(report):
    return {name: value for name, value in report.items() if name not in TIMES}


@pytest.mark.parametrize(
    "options",
    [
        {"l1": "64MiB:mq"},
        {"l1": "32MiB:lru", "l2": "64MiB:arc", "warmup": "10%"},
        {"l1": "32MiB:lru", "l2": "64MiB:mq", "placement": "eviction,on-hit=keep", "warmup": 1000},
        {"l1": "16MiB:lru", "l2": "32MiB:lru", "l3": "10%:lru", "placement": "d-hfa,k=4", "seed": 7},
        {"l1": "16MiB:lru", "l2": "32MiB:2q", "write_mode": "no-allocate", "costs": "0.1,1,8"},
        {"l1": "16MiB:lru", "flash": "64MiB,rate=100,budget=1GiB/day"},
        {"l1": "16MiB:lru", "l2": "32MiB:lru", "stream_cutoff": "256KiB", "write_back": "age=9999,percent=25"},
    ],
)
def test_the_object_of_the_program(recording, program, options):
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    expected = json.loads(program("simulate", str(RECORDING), "--json", *arguments))
    assert without_times(uc.simulate(recording, **options)) == without_times(expected)


def test_characterize_is_the_program_s(recording, program):
    expected = json.loads(program("characterize", str(RECORDING), "--json", "--cache", "64MiB"))
    del expected["command"]
    found = uc.characterize(recording, caches=["64MiB"])
    assert found == expected
    assert found.reuse_distance["requests"].sum() + found["blocks"]["cold_requests"] == len(recording)
    assert "599905" in repr(found)


@pytest.mark.parametrize("policy, rate, sizes", [("lru", 1.0, "1MiB..64MiB"), ("opt", 1.0, "50%"), ("mq", 0.1, "64MiB")])
def test_curves_are_the_program_s(recording, program, policy, rate, sizes):
    arguments = ["--policy", policy, "--rate", str(rate), "--sizes", sizes]
    expected = json.loads(program("curve", str(RECORDING), "--json", *arguments))
    found = uc.miss_ratio_curve(recording, policy=policy, rate=rate, sizes=sizes)
    assert found.capacity_blocks.tolist() == [p["capacity_blocks"] for p in expected["points"]]
    assert found.read_hit_ratio.tolist() == [p["read_hit_ratio"] for p in expected["points"]]


def test_an_exact_curve_is_single_simulations(small):
    curve = uc.miss_ratio_curve(small)
    assert len(curve) == small.info["unique_blocks"]
    for size in (1, 17, 90):
        report = uc.simulate(small, l1=f"{size}blk:lru")
        assert curve.read_hit_ratio[size - 1] == report["aggregate"]["read_hit_ratio"]


def test_frames_share_the_memory_of_large_arrays(small):
    curve = uc.miss_ratio_curve(small)
    assert curve.capacity_blocks.base is not None  # It belongs to the engine's vector.
    for frame in (curve.to_pandas(), curve.to_polars()):
        assert list(frame.columns) == ["capacity_blocks", "read_hit_ratio"]
        assert np.shares_memory(frame["read_hit_ratio"].to_numpy(), curve.read_hit_ratio)


def test_arrays_and_frames_are_traces(small, tmp_path):
    blocks = np.array([int(line) for line in open(small.path)])
    is_write = blocks % 3 == 0
    expected = uc.simulate(small, l1="20blk:arc")["levels"]
    from_arrays = uc.Trace.from_numpy(blocks)
    assert uc.simulate(from_arrays, l1="20blk:arc")["levels"] == expected
    assert len(from_arrays) == 3000
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    for frame in (pandas.DataFrame, polars.DataFrame):
        trace = uc.Trace.from_frame(frame({"lba": blocks, "w": is_write}), blocks="lba", is_write="w")
        assert trace.info["writes"] == is_write.sum()
        with pytest.raises(ValueError, match="no column 'x'; there are 'lba', 'w'"):
            uc.Trace.from_frame(frame({"lba": blocks, "w": is_write}), blocks="x")
    timed = uc.Trace.from_arrays(blocks, time_ns=np.arange(3000) * 1_000_000)
    assert uc.characterize(timed)["requests"]["duration_s"] == pytest.approx(2.999)
    sectors = uc.Trace.from_arrays(blocks, unit=512, block="4KiB")
    assert sectors.info["unique_blocks"] == len(set(blocks // 8))


def test_traces_are_pickled(small):
    again = pickle.loads(pickle.dumps(small))
    assert again.path == small.path and again.info == small.info
    assert pickle.loads(pickle.dumps(small)) is again, "a worker reads a trace once"
    arrays = uc.Trace.from_arrays([1, 2, 1], is_write=[True, False, False], block="8KiB", name="mine")
    again = pickle.loads(pickle.dumps(arrays))
    assert again.info == arrays.info and again.block_bytes == 8192


@pytest.mark.parametrize(
    "call, error, told",
    [
        (lambda t: uc.Trace.open("/no/such.lis"), FileNotFoundError, "/no/such.lis"),
        (lambda t: uc.Trace.open(t.path, format="nope"), ValueError, "there are uct"),
        (lambda t: uc.Trace.open(t.path, block=100), ValueError, "512 to 1GiB"),
        (lambda t: uc.simulate(t, l1="64MiB"), ValueError, "SIZE:POLICY"),
        (lambda t: uc.simulate(t, l1="9blk:zz"), ValueError, "no policy 'zz'"),
        (lambda t: uc.simulate(t, l1=("9blk", int)), TypeError, "subclass of undercroft.Policy"),
        (lambda t: uc.simulate(t, l1="9blk:lru", l3="9blk:lru"), ValueError, "no l2"),
        (lambda t: uc.simulate(t, l1="9blk:lru", warmup="100%"), ValueError, "nothing would be counted"),
        (lambda t: uc.simulate(t, l1="9blk:lru", write_mode="x"), ValueError, "no-allocate"),
        (lambda t: uc.simulate("t.lis", l1="9blk:lru"), TypeError, "Trace.open"),
        (lambda t: uc.simulate(t, l1="9blk:lru", placement="x"), ValueError, "access, eviction"),
        (lambda t: uc.miss_ratio_curve(t, policy="mq"), ValueError, "rate of 0.01"),
        (lambda t: uc.characterize(t, rate=0), ValueError, "above 0"),
        (lambda t: uc.characterize(t, max_blocks=0), ValueError, "expected 1 or more"),
        (lambda t: uc.Trace.from_arrays([0.5]), ValueError, "whole numbers"),
        (lambda t: uc.Trace.from_arrays([3, -1]), ValueError, "-1 is negative"),
        (lambda t: uc.Trace.from_arrays([3], is_write=[True, True]), ValueError, "2 values for 1"),
        (lambda t: len(uc.Trace.from_arrays([])), uc.TraceError, "no requests"),
    ],
)
def test_errors_say_what_and_what_to_do(small, call, error, told):
    with pytest.raises(error, match=told):
        call(small)


def test_damage_is_told_with_its_line(tmp_path):
    path = tmp_path / "damaged.trc"
    path.write_text("1\n2\n" * 100_000 + "x\n")
    with pytest.raises(uc.TraceError, match="line 200001"):
        len(uc.Trace.open(path))


def test_other_threads_run_during_a_simulation(recording):
    len(recording)
    done, seen = threading.Event(), 0

    def work():
        uc.simulate(recording, l1="16MiB:lru", l2="32MiB:mq", placement="eviction")
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        seen += 1
        time.sleep(0.001)
    thread.join()
    assert seen > 5, "the interpreter's lock was held"
