"""One run of libCacheSim: python peer.py TRACE POLICY CAPACITY. Prints its user CPU seconds
(reading the trace included: it reads while it simulates), miss ratio and peak memory as JSON."""

import json
import resource
import sys

import libcachesim as lcs

path, policy, capacity = sys.argv[1], sys.argv[2], int(sys.argv[3])
params = lcs.ReaderInitParam(ignore_obj_size=True)
reader = lcs.TraceReader(path, lcs.TraceType.ORACLE_GENERAL_TRACE, params)
cache = getattr(lcs, policy)(capacity)
before = resource.getrusage(resource.RUSAGE_SELF)
miss_ratio, _ = cache.process_trace(reader)
after = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "cpu_s": after.ru_utime - before.ru_utime,
    "miss_ratio": miss_ratio,
    "peak_mib": after.ru_maxrss / 1024,
}))
