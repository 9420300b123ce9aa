#!/bin/sh
# Runs the fuzz targets (crates/nbd/fuzz: the protocol; crates/hints/fuzz: messages of hints;
# crates/server/fuzz: a server with hints, files of a warm restart; lab/trace/fuzz: the readers of
# traces), one after another, for FUZZ_MINUTES each (default 10). Needs a nightly Rust and cargo-fuzz.
# What is found stays in artifacts/ there, and what was learnt in corpus/, for the next run. FUZZ_TARGETS:
# only these, as "nbd/requests trace/readers".
set -eu

minutes=${FUZZ_MINUTES:-10}
seconds=$(awk "BEGIN { print int($minutes * 60) }")
[ "$seconds" -gt 0 ] || { echo "fuzz: FUZZ_MINUTES=$minutes: expected more than 0" >&2; exit 2; }
cargo +nightly --version >/dev/null 2>&1 ||
    { echo "fuzz: a nightly Rust is missing: rustup toolchain install nightly" >&2; exit 1; }
cargo +nightly fuzz --version >/dev/null 2>&1 ||
    { echo "fuzz: cargo-fuzz is missing: cargo install cargo-fuzz" >&2; exit 1; }

# The target folder of the workspace may be in the environment; each of these has its own.
unset CARGO_TARGET_DIR
log=$(mktemp)
trap 'rm -f "$log"' EXIT
summary=""
all="nbd/handshake nbd/requests nbd/client hints/hints server/hinted server/state trace/readers"
for place in ${FUZZ_TARGETS:-$all}; do
    crate=crates/${place%/*} target=${place#*/}
    [ -d "$crate" ] || crate=lab/${place%/*}
    echo "fuzz: $target of $crate for $minutes min"
    # Inputs beyond 64 KiB find nothing that shorter ones do not.
    if ! (cd "$crate" && cargo +nightly fuzz run "$target" -- \
        -max_total_time="$seconds" -max_len=65536 -timeout=60 -print_final_stats=1) >"$log" 2>&1
    then
        tail -n 40 "$log" >&2
        echo "fuzz: $target FAILED; repeat with: cargo +nightly fuzz run $target FILE, in" \
            "$crate, with the file named above" >&2
        exit 1
    fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    grep -E '^#[0-9]+.*cov:' "$log" | tail -n 1 || true
    summary="$summary $target $runs;"
done
echo "fuzz: passed; inputs tried:$summary"
