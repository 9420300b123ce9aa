"""Several clients and servers, a clock, trees of caches, and evictions of recorded clients: the same
figures as the program's."""

import json
import random
import struct
import zlib

import pytest

import undercroft as uc
from test_simulate import without_times

TREE = """
disk_ms = 10
clients = ["a", "b"]
[[cache]]
name = "a"
size = "20blk"
ms = 0.2
below = "s"
[[cache]]
name = "b"
size = "30blk"
ms = 0.2
below = "s"
[[cache]]
name = "s"
size = "60blk"
ms = 2
"""


@pytest.fixture
def traces(tmp_path):
    """Three traces of 2,000 requests, the last one with two units."""
    numbers = random.Random(7)
    block = lambda: int(150 * numbers.random() ** 2)  # noqa: E731
    for name in "ab":
        (tmp_path / f"{name}.trc").write_text("".join(f"{block()}\n" for _ in range(2000)))
    spc = (f"{numbers.randrange(2)},{8 * block()},4096,{numbers.choice('RW')},{at}" for at in range(2000))
    (tmp_path / "units.spc").write_text("\n".join(spc))
    (tmp_path / "tree.toml").write_text(TREE)
    return tmp_path


def asked(options):
    """Options as the program takes them."""
    for name, value in options.items():
        if value is True:
            yield f"--{name.replace('_', '-')}"
        else:
            values = value if isinstance(value, list) and name in ("l1", "lower") else [value]
            for value in values:
                value = ",".join(value) if isinstance(value, list) else value
                yield f"--{name.replace('_', '-')}={value}"


@pytest.mark.parametrize(
    "name, options",
    [
        ("a.trc", {"l1": "20blk:lru", "l2": "40blk:mq", "clients": ["b.trc"], "warmup": "10%"}),
        ("a.trc", {"l1": ["20blk:lru", "9blk:arc"], "l2": "40blk:mq", "clients": ["b.trc"], "placement": "eviction"}),
        (
            "a.trc",
            {
                "l1": "20blk:lru",
                "l2": "40blk:mq",
                "clients": ["b.trc"],
                "data": "shared",
                "peer_fetch": True,
                "servers": 2,
            },
        ),
        ("units.spc", {"l1": "20blk:lru", "l2": "40blk:arc", "clients": "spaces", "partition": "benefit"}),
        ("a.trc", {"l1": "20blk:lru", "l2": "40blk:lru", "servers": 3}),
        ("a.trc", {"l1": "20blk:lru", "l2": "40blk:mq", "timed": True, "outstanding": 4, "think_us": 50}),
        (
            "units.spc",
            {
                "l1": "20blk:lru",
                "l2": "40blk:mq",
                "clients": "spaces",
                "placement": "eviction",
                "timed": True,
                "link": "40MiB",
                "disks": 2,
                "disk_us": 900,
                "reloads": "demand",
            },
        ),
        ("a.trc", {"topology": "tree.toml", "clients": ["b.trc"], "placement": "demote", "samples": 3}),
        (
            "a.trc",
            {"l1": "10blk:lru", "ratio": "1:2:4", "placement": "d-hfa", "bounds": True, "hint_distances": True},
        ),
        (
            "a.trc",
            {
                "l1": "9blk:lru",
                "l2": "9blk:mq",
                "l3": "9blk:lru",
                "lower": ["9blk:arc", "20blk:lru"],
                "costs": "0.1,0.5,1,2,3,10",
            },
        ),
        ("a.trc", {"l1": "20blk:lru", "l2": "40blk:mq", "placement": "eviction", "evictions": "estimate"}),
    ],
)
def test_the_object_of_the_program(traces, program, name, options):
    expected = json.loads(program("simulate", name, "--json", *asked(options), cwd=traces))
    options = dict(options)
    if isinstance(options.get("clients"), list):
        options["clients"] = [uc.Trace.open(traces / other) for other in options["clients"]]
    if "topology" in options:
        options["topology"] = traces / options["topology"]
    found = uc.simulate(uc.Trace.open(traces / name), **options)
    assert without_paths(found) == without_paths(expected)


def without_paths(report):
    """A report without times and without paths, which here are relative for the program only."""
    report = without_times(report)
    report["trace"] = {**report["trace"], "path": ""}
    for client in report.get("clients", {}).get("clients", []):
        client["name"] = client["name"].rsplit("/", 1)[-1]
    return report


@pytest.mark.parametrize("evictions", ["told", "cct", "estimate"])
def test_evictions_of_a_recorded_client(recorded, program, evictions, tmp_path):
    options = {"l1": "20blk:mq", "placement": "eviction", "evictions": evictions}
    expected = json.loads(program("simulate", str(recorded), "--json", *asked(options)))
    trace = uc.Trace.open(recorded)
    found = uc.simulate(trace, **options)
    assert without_times(found) == without_times(expected)
    assert found["levels"][0]["known_evictions"] > 0
    # A sweep of the package, and one of the program that goes on from it.
    rows = uc.sweep(trace, l2="20blk,30blk", policy="mq", placement="eviction", evictions=evictions, out=tmp_path)
    assert rows["read_hits"][0] == found["levels"][0]["read_hits"]
    arguments = ["--l2=20blk,30blk", "--policy=mq", "--placement=eviction", f"--evictions={evictions}"]
    again = json.loads(program("sweep", str(recorded), "--json", *arguments, "-o", str(tmp_path)))
    assert again == rows.rows, "the program ran again what was finished"


@pytest.fixture
def recorded(tmp_path):
    """A recording of a client of 16 frames, with its buffer addresses and what it told of evictions."""
    numbers, frames, records = random.Random(3), {}, []
    for at in range(3000):
        block, frame = int(100 * numbers.random() ** 2), numbers.randrange(16)
        if block in frames.values():
            continue
        if frame in frames:
            records.append((10_000 * at, EVICTION, frames[frame], 0))
        frames[frame] = block
        records.append((10_000 * at + 1000, BUFFER, block, 4096 * (frame + 1)))
    path = tmp_path / "recorded.uct"
    path.write_bytes(uct(records))
    return path


BUFFER, EVICTION = 2, 4


def uct(records):
    """A trace in our binary format (docs/developer/file-formats.md) of a client's requests for blocks of
    4 KiB: time in ns, marks, block, buffer address."""
    checked = lambda body: struct.pack("<I", zlib.crc32(body)) + body  # noqa: E731
    column = lambda values: struct.pack("<QB", 0, 4) + struct.pack(f"<{len(values)}I", *values)  # noqa: E731
    head = struct.pack("<HBBII", 2, 1, 2 | 4, 4096, 0)
    magic = b"\x93UCT\r\n\x1a\n"
    file = magic + head + struct.pack("<I", zlib.crc32(magic + head))
    for start in range(0, len(records), 1000):
        part = records[start : start + 1000]
        times, marks, blocks, buffers = zip(*part)
        names = struct.pack("<H", 1) + b"v" if start == 0 else b""
        body = struct.pack("<BII", 1, len(part), int(start == 0)) + names
        same = lambda value: [value] * len(part)  # noqa: E731
        addresses = [4096 * block for block in blocks]
        for values in (times, marks, same(0), addresses, same(4095), buffers, same(1)):
            body += column(values)
        file += struct.pack("<I", len(body)) + checked(body)
    end = struct.pack("<BQ", 0, len(records))
    return file + struct.pack("<I", len(end)) + checked(end)


@pytest.mark.parametrize(
    "options, told",
    [
        ({"l1": ["9blk:lru", "9blk:lru"]}, "one client"),
        ({"l1": "9blk:lru", "servers": 2}, "two levels"),
        ({"l1": "9blk:lru", "data": "shared"}, "give clients"),
        ({"l1": "9blk:lru", "disks": 2}, "disks: only with a clock"),
        ({"l1": "9blk:lru", "l2": "9blk:lru", "clients": "other"}, "spaces"),
        ({"l1": "9blk:lru", "clients": "spaces", "l2": "9blk:lru"}, "one space only"),
        ({"l1": "9blk:lru", "l2": "9blk:lru", "servers": 2, "costs": "1,2,3"}, "not with several"),
        ({"l1": "9blk:lru", "evictions": "told"}, "nobody asks"),
        ({"l1": "9blk:lru", "evictions": "cct", "placement": "eviction"}, "without buffer addresses"),
        ({"l1": "9blk:lru", "evictions": "guess"}, "exact, cct, told, estimate"),
        ({"l1": "9blk:lru", "samples": 2}, "choose a scheme"),
        ({"l1": "9blk:lru", "l2": "9blk:lru", "placement": "demote", "timed": True}, "not under a scheme"),
        ({"topology": "missing.toml", "placement": "demote"}, "topology missing.toml: No such file"),
        ({"l1": "9blk:lru", "topology": "missing.toml", "placement": "demote"}, "leave them out"),
        ({"l2": "9blk:lru", "topology": "missing.toml", "placement": "demote"}, "it has the levels"),
        ({"topology": "my--tree-x.toml", "placement": "demote"}, "^topology my--tree-x.toml: No such file"),
        ({"l1": "9blk:lru", "clients": "spaces", "servers": 2, "placement": "demote"}, "topology FILE|partition, peer_fetch"),
        ({"l1": "9blk:lru", "l2": "9blk:lru", "ratio": "1:2"}, "leave those out"),
        ({"l1": "9blk:lru", "l2": "9blk:lru", "timed": True, "link": "fast"}, "link 'fast'"),
        ({}, "a level is missing"),
    ],
)
def test_what_does_not_go_together_is_refused_with_a_reason(small, options, told):
    with pytest.raises(ValueError, match=told):
        uc.simulate(small, **options)


def test_clients_of_arrays_and_a_policy_of_ones_own(small):
    from policies import Lru

    both = uc.Trace.from_arrays([1, 2, 3, 1, 2, 3] * 20), uc.Trace.from_arrays([5, 6, 5, 7] * 30)
    options = {"clients": [both[1]], "l2": "4blk:lru"}
    own, ours = (uc.simulate(both[0], l1=("2blk", which), **options) for which in (Lru, "lru"))
    assert own["levels"][1]["read_hits"] == ours["levels"][1]["read_hits"] > 0
    assert [client["reads"] for client in own["clients"]["clients"]] == [120, 120]
