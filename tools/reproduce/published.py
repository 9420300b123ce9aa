"""The published figures, as far as they are known. Their traces are not public, or not here.

TPDS: Zhou, Chen & Li, 2004. USENIX: Chen, Zhou & Li, 2003. HFA: Meng et al., JCST 2017. Titles are in
docs/developer/algorithms.md.
"""

from findings import Row

NOT_PUBLIC = "not public"

# Trace, client's cache in MiB, reads and writes in millions, clients: TPDS table 1. The first four are databases.
TRACES = [
    ("Oracle-128M", 128, 7.3, 4.3, "single"),
    ("Oracle-16M", 16, 3.8, 2.0, "single"),
    ("MS-SQL-Small", 64, 4.52, 2.5, "single"),
    ("MS-SQL-Large", 1024, 5.07, 3.0, "single"),
    ("HP Disk (cello 1992)", 30, 0.2, 0.3, "multiple"),
    ("Auspex server (1993)", 8, 1.8, 0.8, "237"),
]

POLICIES = ["opt", "mq", "2q", "fbr", "lfru", "lru-2", "lru", "lfu", "mru"]

# TPDS table 2: client's cache in MiB, then hit ratios in per cent for each size in MiB, in the order of POLICIES.
TABLE2 = {
    "Oracle-128M": (128, {
        64: [21.6, 14.0, 12.0, 8.4, 10.1, 8.1, 6.1, 5.9, 2.6],
        128: [30.3, 21.7, 20.0, 14.6, 16.3, 14.1, 10.1, 10.8, 3.7],
        256: [41.8, 33.0, 30.0, 24.2, 24.3, 23.5, 17.6, 18.7, 5.8],
        512: [56.1, 47.5, 43.5, 37.8, 39.5, 38.2, 30.9, 31.1, 9.9],
        1024: [70.7, 62.1, 62.1, 55.8, 58.8, 57.2, 53.0, 47.6, 17.9],
        2048: [82.0, 76.3, 76.8, 75.2, 76.8, 75.8, 74.5, 65.1, 33.7],
    }),
    "Oracle-16M": (16, {
        16: [16.5, 10.0, 7.5, 4.4, 5.1, 4.2, 4.1, 3.2, 1.9],
        32: [22.7, 15.2, 12.4, 9.0, 10.0, 7.2, 6.3, 6.0, 2.3],
        64: [30.8, 22.9, 16.2, 15.5, 19.0, 12.6, 11.4, 11.0, 3.1],
        128: [40.8, 32.3, 32.5, 25.2, 26.8, 21.5, 19.9, 19.1, 4.7],
        256: [52.4, 44.1, 43.8, 38.4, 36.0, 34.0, 32.2, 30.3, 7.9],
        512: [63.9, 57.4, 57.8, 53.7, 50.2, 49.5, 47.7, 44.5, 14.3],
        1024: [72.6, 69.2, 69.1, 68.1, 67.0, 66.0, 64.8, 61.1, 26.7],
        2048: [83.8, 80.1, 80.0, 79.7, 80.1, 79.5, 79.2, 76.1, 50.1],
    }),
    "HP Disk": (30, {
        16: [36.5, 22.0, 20.6, 20.5, 20.2, 12.9, 14.5, 20.2, 12.6],
        32: [49.9, 36.4, 36.3, 30.0, 29.6, 24.8, 22.1, 29.6, 16.9],
        64: [65.8, 54.2, 53.8, 47.4, 44.5, 47.6, 41.4, 43.6, 22.7],
        128: [77.2, 68.9, 69.2, 65.1, 65.0, 64.0, 62.5, 57.3, 32.9],
        256: [81.2, 78.5, 78.3, 78.5, 78.0, 76.8, 77.8, 71.5, 51.0],
    }),
    "Auspex": (8, {
        8: [32.4, 21.7, 9.4, 8.4, 8.4, 13.1, 2.0, 6.9, 0.8],
        16: [45.2, 33.0, 31.3, 19.2, 18.7, 26.5, 16.7, 13.8, 1.8],
        32: [57.7, 47.1, 46.9, 38.7, 38.3, 40.3, 36.1, 20.7, 3.5],
        64: [68.7, 59.3, 59.5, 55.5, 55.0, 53.4, 53.3, 25.7, 7.3],
        128: [77.9, 70.5, 70.4, 68.3, 67.3, 64.9, 66.9, 35.4, 13.9],
        256: [86.4, 81.3, 80.8, 80.9, 78.8, 76.3, 78.0, 60.6, 26.3],
    }),
}  # fmt: skip

# TPDS table 3, Oracle-128M at 512 MiB: hits and misses below 64k blocks, hits and misses from there, thousands.
TABLE3 = {
    "mq": [1553, 293, 1919, 2646],
    "2q": [1846, 0, 1330, 3235],
    "fbr": [1611, 234, 1146, 3418],
    "lfru": [1412, 434, 1470, 3094],
    "lru-2": [1606, 239, 1179, 3385],
    "lru": [1846, 0, 407, 4157],
}

# TPDS figure 8, HP Disk at 32 MiB, per cent; of all but LIRS and ARC the values are those of table 2.
FIGURE8 = {"mq": 36.4, "2q": 36.3, "fbr": 30.0, "lfru": 29.6, "lirs": 27.6, "arc": 23.4, "lru": 22.1}

GLOBAL = ["lru", "fbr", "2q", "mq"]
# TPDS figure 10: client's cache in MiB, sizes in MiB, and for each policy the local and the global hit ratios.
FIGURE10 = {
    "MS-SQL-Small": (64, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024], {
        "lru": ([3.7, 15.5, 43.3, 57.3, 62.5, 67, 71.7, 77.5, 82.4, 87.8],
                [16.4, 31.2, 48.4, 57.2, 62.1, 66.5, 71.2, 77, 82.2, 87.6]),
        "fbr": ([8.6, 20.3, 44.6, 60.4, 65.7, 69.4, 73.6, 79.2, 84.5, 88.6],
                [17.2, 32.7, 50.6, 60.7, 65.7, 69.2, 73.5, 78.9, 84.1, 88.5]),
        "2q": ([17.1, 34.4, 54.4, 62.2, 67.2, 71.5, 76.3, 81.3, 86.2, 90.1],
               [27.2, 43.4, 55.5, 61.7, 66.6, 70.8, 75.7, 81, 86.1, 90]),
        "mq": ([22.1, 36.8, 55.5, 63.1, 67.5, 72.1, 76.8, 81.3, 85.8, 89.5],
               [23.4, 37.7, 56, 64.6, 68.1, 73.1, 76.6, 81.8, 86, 89.2]),
    }),
    "Auspex": (8, [0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256], {
        "lru": ([0, 0, 0, 0, 2, 16.7, 36.1, 53.3, 66.9, 78],
                [1.4, 2.8, 5.3, 9.6, 15.8, 25.7, 40, 54.4, 67.2, 78.1]),
        "fbr": ([0, 1.8, 2.9, 5, 8.4, 19.2, 38.6, 55.5, 68.3, 80.9],
                [0, 2.8, 5.3, 9.6, 16.3, 27.3, 41.7, 56.1, 68.7, 81]),
        "2q": ([0, 0.6, 0.9, 1.3, 9.4, 31.3, 48.5, 62.8, 73.9, 84.2],
               [0, 4.3, 8, 14.4, 23.5, 35.6, 50, 63.3, 74.1, 84.2]),
        "mq": ([2.3, 4.5, 8.2, 13.6, 21.7, 33, 49.1, 62.3, 74.5, 84.2],
               [3.1, 5.3, 8.7, 14, 21.9, 34.2, 49.1, 63.3, 74.8, 84.1]),
    }),
}  # fmt: skip

# What the text of TPDS (figure 9) and USENIX (figure 3) says of MS-SQL-Large at half the client's cache: more hits
# of the global algorithm, in per cent.
LARGE = {"lru": 100, "fbr": 49, "2q": 59, "mq": 15}
# And at other multiples of it: 2Q hits 9.8 instead of 5.9 % at an eighth, and at twice the client all are equal.
LARGE_SIZES = {1 / 8: {"2q": 66}, 1 / 2: LARGE, 2: dict.fromkeys(GLOBAL, 0)}

# HFA table 3: trace and year, data in GB, hours, millions of requests, and where it can be had.
HFA_TRACES = [
    ("WebSearch, 2002", 4.3, 2.6, 5.7, "UMass Trace Repository"),
    ("FIU, 2009", 5.9, 5.7, 7.3, "SNIA IOTTA"),
    ("MSN-SFS, 2007", 1.6, 6.0, 4.5, "SNIA IOTTA, Microsoft enterprise traces"),
    ("Exchange, 2007", 1.9, 5.0, 11.5, "SNIA IOTTA, Microsoft enterprise traces"),
    ("TPC-E, 2007", 18.4, 11.4, 16.7, "SNIA IOTTA, Microsoft enterprise traces"),
    ("TPC-C, 2007", 27.2, 12.1, 21.3, "SNIA IOTTA, Microsoft enterprise traces"),
]
# HFA table 4: best gain over the base in per cent, of hit ratio and of response time.
HFA_GAINS = {"d-hfa": (19.1, 22.0), "p-hfa": (7.1, 20.1), "h-hfa": (6.5, 10.1)}
# HFA figure 8, TPC-C: hits of the first level, variation and Q1's share of it, in per cent.
HFA_STABLE = {"d-hfa": (54, 4.6, 13), "p-hfa": (39, 4.8, 9), "h-hfa": (62, 8.9, 70)}
# And the period from which on it is so.
HFA_SETTLES = {"d-hfa": 8, "p-hfa": 6, "h-hfa": 4}
# HFA figure 9: Q1's share in the best fixed split, and how far that is behind the dynamic one, in per cent.
HFA_SPLIT = {"d-hfa": (0.2, 11), "p-hfa": (0.1, 11), "h-hfa": (0.8, 11)}
# HFA figure 10: the best k.
HFA_SLOTS = {"d-hfa": 5, "p-hfa": 4, "h-hfa": 5}


def table2():
    """Name to row, the policies in the order of POLICIES."""
    return {
        name: Row([f"{size} MiB" for size in rows], [size / client for size in rows],
                  dict(zip(POLICIES, map(list, zip(*rows.values())))))
        for name, (client, rows) in TABLE2.items()
    }  # fmt: skip


def figure8():
    return {"HP Disk": Row(["32 MiB"], [32 / 30], {policy: [value] for policy, value in FIGURE8.items()})}


def figure10(kind):
    """Name to row: the hits of each policy, and with `kind` before its name those with cooperation."""
    rows = {}
    for name, (client, sizes, pairs) in FIGURE10.items():
        hits = {}
        for policy, (local, other) in pairs.items():
            hits |= {policy: local, f"{kind}-{policy}": other}
        rows[name] = Row([f"{size} MiB" for size in sizes], [size / client for size in sizes], hits)
    return rows
