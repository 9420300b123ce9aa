"""What whole systems gain: TPDS figures 11 to 13 and 15 and the space of its tables, USENIX 2003 from figure 6 on, and
the cost of the poster's caches. Runs with a clock are made here. What needs a database below load, or callgrind, was
measured by other tools; its figures are read from the documents that these tools or their users wrote.
"""

import json
import pathlib
import re
import subprocess
import tempfile
import time

from findings import Findings, Panel, judge, span

DATABASES = "measurements/databases.md"
NUMBER = re.compile(r"[+-]?\d[\d,]*(\.\d+)?")


def measured(document, part, label, number=0):
    """The first figure of each cell of the first row of that label (or a later one), in a part of a document: what is
    between marks of that name, or below that heading. What is in brackets alone is left out."""
    text = (pathlib.Path("docs") / document).read_text()
    begin, end = (f"<!-- {part} -->", "<!-- end ") if f"<!-- {part} -->" in text else (f"\n## {part}\n", "\n## ")
    section = text.split(begin)[1].split(end)[0]
    row = [line for line in section.splitlines() if line.startswith(f"| {label} |")][number]
    found = [NUMBER.match(cell.strip(" *")) for cell in row.removeprefix(f"| {label} |").strip(" |").split("|")]
    return [float(number[0].replace(",", "")) for number in found if number]


def more(ours, base):
    """In per cent."""
    return 100 * (ours / base - 1)


def figure11(program, traces):
    """Hit ratios and transactions of a real system (figures 11 and 12)."""
    sizes = ["16 MiB", "32 MiB", "64 MiB"]
    labels = ["hit ratio, LRU, %", "hit ratio, MQ, %", "transactions a minute, LRU", "transactions a minute, MQ"]
    lru, mq, done_lru, done_mq = (measured(DATABASES, "By size of the cache", label) for label in labels)
    whole = ["hit ratio of the whole run, %", "the same, simulated, %"]
    server, simulated = (measured(DATABASES, "tpcc-postgresql", label) for label in whole)
    arms = ["access, LRU", "access, MQ", "access, auto", "auto, MQ", "auto, auto"]
    databases = ["PostgreSQL", "MariaDB"]
    points, faster = (
        {f"{name}, ten rounds": measured(DATABASES, f"tpcc-{name.lower()}", label, 1)[0] for name in databases}
        for label in ("hit ratio, %", "transactions a minute")
    )
    claims = [
        judge("MQ above LRU",
              "MQ hits 12.65 % more often than LRU at 4 times the client; here, at a half to twice: by 6 points",
              lambda points: points >= 6, {size: b - a for size, a, b in zip(sizes, lru, mq)} | points, "{:+.1f}",
              {"512 MB": 12.65}),
        judge("LRU needs twice the cache", "MQ hits as often as LRU with twice the cache (a point less allowed)",
              lambda points: points >= -1, {size: a - b for size, a, b in zip(sizes, mq, lru[1:])}, "{:+.1f}"),
        judge("simulation agrees", "simulation and implementation are less than 10 % apart",
              lambda share: abs(share) < 10, {arm: more(b, a) for arm, a, b in zip(arms, server, simulated)},
              "{:+.1f} %"),
        judge("MQ does more transactions",
              "8, 12 and 10 % more transactions with MQ at 1, 2 and 4 times the client; here: at least 5 %",
              lambda gain: gain >= 5, {size: more(b, a) for size, a, b in zip(sizes, done_lru, done_mq)} | faster,
              "{:+.1f} %", {"128 MB": 8, "256 MB": 12, "512 MB": 10}),
    ]  # fmt: skip
    return Findings(claims)


DISKS = ("--timed", "--disks", 4, "--outstanding", 4)
WAYS = {
    "access": ("access",),
    "RAW": ("eviction,on-hit=move", "--reloads", "demand"),
    "OPT": ("eviction,on-hit=move,threshold=2",),
}
# Of a real system, in per cent: more transactions than without.
SPEED = {("RAW", "lru"): 7, ("RAW", "mq"): 0, ("OPT", "lru"): 21, ("OPT", "mq"): 13}


def clocked(program, trace, policy, placement, *options):
    """Simulates with a clock, with a second level as large as the client's cache."""
    levels = ("--l1", f"{trace.client}blk:lru", "--l2", f"{trace.client}blk:{policy}", "--placement", placement)
    return program.simulate(trace, *levels, *DISKS, *options)


def figure13(program, traces):
    """Reloads in turn with demand (RAW) and by choice (OPT), above disks that are busy and that are not."""
    plan = [(t, think, p, way) for t in traces for think in (0, 10_000) for p in ("lru", "mq") for way in WAYS]
    reports = program.many(lambda t, think, p, way: clocked(program, t, p, *WAYS[way], "--think-us", think), plan)
    found = dict(zip(plan, reports))
    hits, speed, rows = {}, {key: {} for key in SPEED}, []
    for (trace, think, policy, way), report in found.items():
        base = found[trace, think, policy, "access"]
        ratio, without = (100 * one["levels"][1]["read_hit_ratio"] for one in (report, base))
        time_, before = (one["timed"]["response_ms"] for one in (report, base))
        busy = f"{100 * (base['timed']['disk_reads_busy'] + base['timed']['disk_writes_busy']):.0f} %"
        rows.append([trace.name, busy, policy, way, f"{ratio:.1f}", f"{time_:.2f}", f"{more(before, time_):+.0f}"])
        if way == "RAW":
            hits[f"{trace.name} {policy}, {busy} busy"] = ratio / without
        if way != "access":
            speed[way, policy][f"{trace.name}, {busy} busy"] = more(before, time_)
    said = "RAW-GL-LRU hits 1.49 times as often as LRU, RAW-GL-MQ 1.32 times as MQ; here: at least 1.2 times"
    text = f"{span(hits.values())} times"
    claims = [judge("RAW hits more", said, lambda times: times >= 1.2, hits, text, {"lru": 1.49, "mq": 1.32})]
    for (way, policy), said in SPEED.items():
        name = f"{way}-GL-{policy.upper()}"
        text = f"{name} does {said} % more transactions; here: reads are answered faster by half of that at least"
        claims.append(judge(f"{name} is faster", text, lambda gain, said=said: gain >= said / 2, speed[way, policy],
                            "{:+.0f} %", {"SQL Server": said}))  # fmt: skip
    names = [trace.name.replace("-", "-\n") for trace in traces]
    bars = [f"{name}\n{pause}" for name in names for pause in ("busy", "idle")] + ["SQL\nServer,\npublished"]
    panels = []
    for way in ("RAW", "OPT"):
        gains = {p: [*speed[way, p].values(), SPEED[way, p]] for p in ("lru", "mq")}
        panels.append(Panel(way, gains, "", "reads answered faster, %", bars, False, bottom=-40, top=40))
    heading = ["trace", "disks busy", "policy", "way", "hit ratio, %", "mean time of a read, ms", "faster, %"]
    caption = "Four disks of 8 ms, four requests in flight, pauses of 0 and of 10 ms:"
    return Findings(claims, panels, [(caption, heading, rows)])


LINKS = [1, 2, 4, 10, 40, 113]


def figure15(program, traces):
    """Reloads against demotions, by what the link carries."""
    ways = {"reload": "eviction,on-hit=move", "demote": "eviction,on-hit=move,down=demote"}
    plan = [(trace, link, way) for trace in traces for link in LINKS for way in ways]

    def run(trace, link, way):
        report = clocked(program, trace, "mq", ways[way], "--think-us", 10_000, "--link", f"{link}MiB")
        return report["timed"]["response_ms"]

    times, ahead, rows = dict(zip(plan, program.many(run, plan))), {}, []
    for trace in traces:
        ahead[trace.name] = [more(times[trace, link, "demote"], times[trace, link, "reload"]) for link in LINKS]
        for way in ways:
            rows.append([trace.name, way] + [f"{times[trace, link, way]:.2f}" for link in LINKS])
    said = {"SQL Server": [20, 0]}
    claims = [
        judge("equal on a fast link", "reloads and demotions are equal at 113 MB/s; here: within 5 %",
              lambda gain: abs(gain) <= 5, ahead, "{:+.0f} %", said, lambda gains: gains[-1]),
        judge("reloads ahead on a slow one", "reloads are 20 % ahead at 40 MB/s; here: at least 10 %, at 1 MiB/s",
              lambda gain: gain >= 10, ahead, "{:+.0f} %", said, lambda gains: gains[0]),
    ]  # fmt: skip
    lines = {name: (LINKS, gains) for name, gains in ahead.items()}
    panel = Panel("MQ, pauses of 10 ms", lines, "link, MiB/s", "reloads faster than demotions, %", bottom=-20,
                  points={"published: SQL Server": ([40, 113], [20, 0])})  # fmt: skip
    heading = ["trace", "way"] + [f"{link} MiB/s" for link in LINKS]
    return Findings(claims, [panel], [("Mean time of a read in ms:", heading, rows)])


def usenix6(program, traces):
    """Transactions with placement at eviction, and the link."""
    contents, done = "Contents against reloads", "transactions a minute"
    # Paired: a row leaves out the arm with which it compares, LRU or MQ, so the third figure is of "auto, MQ" in both.
    over_lru, over_mq = ({"PostgreSQL": measured(DATABASES, "tpcc-postgresql", done, row)[2]} for row in (1, 2))
    # Below MariaDB the placement was not measured with MQ. With the policy auto on both sides there are medians.
    *_, plain, placed = measured(DATABASES, "tpcc-mariadb", done)
    over_mq["MariaDB (policy auto)"] = more(placed, plain)
    old_lru, old_mq, with_contents, reloads = measured(DATABASES, contents, done)
    over_lru["PostgreSQL, contents always"] = more(with_contents, old_lru)
    over_mq |= {"PostgreSQL, contents always": more(with_contents, old_mq), "reloads alone": more(reloads, old_mq)}
    plain, better = measured(DATABASES, contents, done, 1)
    over_mq["MariaDB, contents always"] = more(better, plain)
    slow = measured(DATABASES, "By link, in simulation", "2 MiB/s")
    ahead = {"2 MiB/s": more(slow[1], slow[2])}
    claims = [
        judge("more transactions than LRU", "21 % more transactions than LRU at the access; here: at least 10 %",
              lambda gain: gain >= 10, over_lru, "{:+.0f} %", {"SQL Server": 21}),
        judge("more than the same policy", "13 % more than MQ at the access; here: at least 6 % more than the same policy",
              lambda gain: gain >= 6, over_mq, "{:+.0f} %", {"SQL Server": 13}),
        judge("ahead of DEMOTE on a slow link", "20 % ahead of DEMOTE where the network limits; here: at least 10 %",
              lambda gain: gain >= 10, ahead, "{:+.0f} %", {"the paper": 20}),
    ]  # fmt: skip
    return Findings(claims)


def overhead(program, traces):
    """What content-aware caches cost, in instructions."""
    alone = ("measurements/content-aware.md", "Overhead")
    module = {}
    for plain, aware in [("lru", "lru-ca"), ("2q", "2q,ca"), ("arc", "arc,ca"), ("mq", "mq,ca")]:
        module[aware] = more(measured(*alone, f"{aware} | exact")[0], measured(*alone, f"{plain} | without")[0])
    where, ways = ("user/content-aware.md", "What it costs the server"), ("exact", "bloom", "emulation")
    below, itself = ({way: measured(*where, f"{side}, {way}")[1] for way in ways} for side in
                     ("lru-ca above lru", "lru above lru-ca"))  # fmt: skip
    claims = [
        judge(name, f"less than 5 % more; here: instructions of {what}", lambda share: share < 5, found, "{:+.1f} %")
        for name, what, found in [
            ("module alone", "the two policies alone", module),
            ("below a content-aware client", "the server a request", below),
            ("a content-aware server", "the server a request, itself aware", itself),
        ]
    ]
    return Findings(claims)


CACHE = 64 << 20
BLOCK = 4096


def memory(program, policy):
    """Bytes of a server's own memory once its cache and all that it remembers have filled up. Blocks are read once each,
    one at a time, so that every run asks for the same. The adviser is off: its miniatures are not of the policy."""
    blocks = 8 * CACHE // BLOCK
    with tempfile.TemporaryDirectory() as folder:
        file, socket, trace = (pathlib.Path(folder) / name for name in ("volume", "socket", "once.uct"))
        with open(file, "wb") as volume:
            volume.truncate(blocks * BLOCK)
        generate = [program.path, "trace", "generate", f"scan,blocks={blocks}", "-o", trace]
        subprocess.run(generate, stderr=subprocess.DEVNULL, check=True)
        volume = ("--volume", f"d=file:{file},block={BLOCK},adviser=no", "--cache", f"{CACHE >> 20}MiB")
        serve = [program.path, "serve", "--listen", f"unix:{socket}", *volume, "--policy", policy]
        server = subprocess.Popen(serve, stdout=subprocess.DEVNULL)
        try:
            while not socket.exists() and server.poll() is None:
                time.sleep(0.05)
            replay = [program.path, "replay", trace, "--to", f"nbd+unix:///d?socket={socket}"]
            subprocess.run(replay, stdout=subprocess.DEVNULL, check=True)
            status = pathlib.Path(f"/proc/{server.pid}/status").read_text()
        finally:
            server.kill()
            server.wait()
    return 1024 * int(re.search(r"RssAnon:\s+(\d+) kB", status)[1])


def space(program, traces):
    """What MQ's memory of evicted blocks takes in a running server."""
    # Threads may take some pages more than in another run, never fewer.
    with_it, without = (min(memory(program, f"mq,qout={times}") for _ in range(3)) for times in (4, 0))
    entry = (with_it - without) / (4 * CACHE / BLOCK)
    claims = [
        judge("an entry below 32 bytes", "an entry of Q_out takes less than 32 bytes", lambda size: size < 32,
              {"a server": entry}, "{:.0f} bytes"),
        judge("Q_out below 0.5 %", "Q_out takes less than 0.5 % of the cache (4 entries for each block of 8 KiB)",
              lambda share: share < 0.5, {"a server": entry}, "{:.1f} %", {"entries of 32 bytes": 32},
              lambda size: 100 * 4 * size / 8192),
    ]  # fmt: skip
    return Findings(claims)
