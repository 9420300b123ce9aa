#!/bin/sh
# A long campaign against the server: SOAK_MINUTES (default 30) of random load in every write mode
# whose every byte is checked, with kills, clean ends, SIGHUPs, connections that come and go, and
# stores that fail. Prints its seed, rounds, and a verdict in one line. UNDERCROFT_SEED=N begins as
# an earlier campaign did; what the machine does meanwhile is never the same.
set -eu

export SOAK_MINUTES="${SOAK_MINUTES:-30}"
${CARGO:-cargo} test --workspace --locked --test server -- \
    --ignored --exact soak::campaign --nocapture || {
    echo "soak: FAILED; the last lines above say where, the first its UNDERCROFT_SEED" >&2
    exit 1
}
