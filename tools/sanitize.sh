#!/bin/sh
# Runs the tests of unsafe code under what is there of AddressSanitizer and ThreadSanitizer (nightly
# Rust; the latter also its component rust-src) and valgrind: frame memory; the tracker's table,
# ring, files and processes; memory that the kernel reads into; C programs with the preloaded library.
# Says what it left out. SANITIZE=frames: frame memory only.
set -eu

all=true
[ -z "${SANITIZE:-}" ] || all=false

target="${CARGO_TARGET_DIR:-target}/sanitize"
host=$(rustc -vV | sed -n 's/^host: //p')
ran=""

if cargo +nightly --version >/dev/null 2>&1; then
    echo "sanitize: AddressSanitizer"
    RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR="$target" \
        cargo +nightly test --locked --target "$host" -p undercroft-frames
    ! $all || RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR="$target" \
        cargo +nightly test --locked --target "$host" -p undercroft-ring -p undercroft-tracker --lib \
            --test ring --test tracking
    ran="$ran address"
    if rustup component list --toolchain nightly 2>/dev/null | grep -q '^rust-src (installed)'; then
        # The standard library has to be built with it, or it reports false races in it. One test
        # at a time: it does not see that memory was unmapped before another test was given it.
        echo "sanitize: ThreadSanitizer"
        RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR="$target" \
            cargo +nightly test --locked -Zbuild-std --target "$host" -p undercroft-frames --tests \
            -- --test-threads=1
        ran="$ran thread"
    else
        echo "sanitize: without rust-src there is no ThreadSanitizer"
    fi
else
    echo "sanitize: without a nightly Rust there is no AddressSanitizer"
fi

if command -v valgrind >/dev/null; then
    echo "sanitize: valgrind"
    programs="-p undercroft-frames --test frames"
    ! $all || programs="$programs -p undercroft-tracker --test tracking"
    # shellcheck disable=SC2086 # a list of words
    CARGO_TARGET_DIR="$target" cargo test --locked --no-run $programs
    newest() { ls -t "$target"/debug/deps/"$1"-* | grep -v '\.d$' | head -n1; }
    memcheck="valgrind --quiet --error-exitcode=1 --leak-check=full
        --show-leak-kinds=definite --errors-for-leak-kinds=definite"
    # What a frame costs there says nothing.
    $memcheck "$(newest frames)" --test-threads=1 --skip cost
    # Threads that wait for each other in a loop would take hours there.
    ! $all || $memcheck "$(newest tracking)" --test-threads=1 --skip many_writers --skip processes \
        --skip places
    # The C programs with the library in them: what it does wrong there ends them with 1.
    ! $all || PRELOAD_TEST_UNDER="valgrind --quiet --error-exitcode=1" CARGO_TARGET_DIR="$target" \
        cargo test --locked -p undercroft-preload --test preload -- pages_of_several the_table_of
    ran="$ran valgrind"
else
    echo "sanitize: valgrind is not there"
fi

[ -n "$ran" ] || { echo "sanitize: nothing could be run" >&2; exit 1; }
echo "sanitize: passed under$ran"
