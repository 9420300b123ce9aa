#!/bin/sh
# Runs the tests of frame memory, which is unsafe code, and the volume tests over it,
# under what is there of: AddressSanitizer (nightly Rust), valgrind. Says what it left out.
set -eu

target="${CARGO_TARGET_DIR:-target}/sanitize"
host=$(rustc -vV | sed -n 's/^host: //p')
ran=""

if cargo +nightly --version >/dev/null 2>&1; then
    echo "sanitize: AddressSanitizer"
    RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR="$target" \
        cargo +nightly test --locked --target "$host" -p undercroft-frames
    ran="$ran address"
    if rustup component list --toolchain nightly 2>/dev/null | grep -q '^rust-src (installed)'; then
        # The standard library has to be built with it, or it reports false races in it.
        echo "sanitize: ThreadSanitizer"
        RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR="$target" \
            cargo +nightly test --locked -Zbuild-std --target "$host" -p undercroft-frames --tests
        ran="$ran thread"
    else
        echo "sanitize: without rust-src there is no ThreadSanitizer"
    fi
else
    echo "sanitize: without a nightly Rust there is no AddressSanitizer"
fi

if command -v valgrind >/dev/null; then
    echo "sanitize: valgrind"
    CARGO_TARGET_DIR="$target" cargo test --locked --no-run -p undercroft-frames --test frames
    for test in $(ls -t "$target"/debug/deps/frames-* | grep -v '\.d$' | head -n1); do
        valgrind --quiet --error-exitcode=1 --leak-check=full \
            --errors-for-leak-kinds=definite "$test" --test-threads=1
    done
    ran="$ran valgrind"
else
    echo "sanitize: valgrind is not there"
fi

[ -n "$ran" ] || { echo "sanitize: nothing could be run" >&2; exit 1; }
echo "sanitize: passed under$ran"
