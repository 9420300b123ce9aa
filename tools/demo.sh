#!/bin/sh
# What `make demo` shows: what a second-level cache would be worth below a real database's own.
set -eu
undercroft=$1
trace=examples/postgres-tpcc.uct.zst
out=out/demo

say() { printf '\n$ undercroft %s\n' "$*"; "$undercroft" "$@"; }

echo "PostgreSQL under TPC-C, recorded at its buffer pool ($trace)."
echo "32 MiB of cache in the database, 64 MiB in the storage server below it:"
say simulate "$trace" --l1 32MiB:lru --l2 64MiB:lru
say simulate "$trace" --l1 32MiB:lru --l2 64MiB:mq
echo
echo "Every policy at four sizes of the storage server's cache (again at once from $out):"
say sweep "$trace" --l1 32MiB:lru --l2 32MiB..256MiB -o "$out"
echo
echo "Your own trace: $undercroft simulate TRACE --l1 64MiB:lru --l2 512MiB:mq"
echo "Everything else: $undercroft --help, docs/user/guide.md"
