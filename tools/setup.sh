#!/bin/sh
# Installs what building and testing needs and this machine lacks: a C compiler (for zstd), cargo
# with rustfmt and clippy. Does nothing, at once, where all is there. Debian's packages only.
set -eu

# Oldest Rust that builds the workspace; rust-version in Cargo.toml says the same.
need=1.85

have_rust() {
    command -v cargo >/dev/null && command -v rustc >/dev/null || return 1
    have=$(rustc --version | cut -d' ' -f2)
    [ "$(printf '%s\n%s\n' "$need" "$have" | sort -V | head -n1)" = "$need" ] || return 1
    [ "${1:-build}" = build ] && return 0
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1
}

wanted=""
command -v cc >/dev/null || wanted="$wanted gcc libc6-dev"
if ! have_rust "${1:-build}"; then
    if command -v rustup >/dev/null; then
        echo "setup: adding rustfmt and clippy with rustup"
        rustup component add rustfmt clippy
        have_rust "${1:-build}" || rustup update stable
    else
        # Debian's rustc is older than we need on Debian 12; rustc-web is kept current there.
        wanted="$wanted rustc-web cargo-web rustfmt-web rust-web-clippy"
    fi
fi
[ -z "$wanted" ] && exit 0

if [ "$(id -u)" != 0 ]; then
    echo "setup: missing packages; as root, run: apt-get install$wanted" >&2
    exit 1
fi
echo "setup: installing$wanted"
apt-get update -qq
# shellcheck disable=SC2086 # a list of words
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates $wanted
have_rust "${1:-build}" || { echo "setup: Rust $need or newer is still missing" >&2; exit 1; }
