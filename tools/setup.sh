#!/bin/sh
# Installs what building and testing needs and this machine lacks: a C compiler (for zstd), cargo
# with rustfmt and clippy; for tests also the foreign clients and servers that they talk to; for the
# Python package (python) what makes virtual environments. Does nothing, at once, where all is
# there. Debian's packages only.
set -eu

stage=${1:-build}

# Oldest Rust that builds the workspace; rust-version in Cargo.toml says the same.
need=1.85

have_rust() {
    command -v cargo >/dev/null && command -v rustc >/dev/null || return 1
    have=$(rustc --version | cut -d' ' -f2)
    [ "$(printf '%s\n%s\n' "$need" "$have" | sort -V | head -n1)" = "$need" ] || return 1
    [ "$stage" = build ] && return 0
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1
}

# Oldest Go that builds go-tpc, and what is fetched where Debian's is older: a toolchain as Go's
# own proxy has it, which `go mod download` checks against Go's checksum database.
need_go=1.21
newer_go=golang.org/toolchain@v0.0.1-go1.24.4

# The Go to build go-tpc with: the one that there is, or a newer one that it fetches.
go_program() {
    command -v go >/dev/null || return 1
    have=$(go env GOVERSION | sed 's/^go//')
    if [ "$(printf '%s\n%s\n' "$need_go" "$have" | sort -V | head -n1)" = "$need_go" ]; then
        echo go
        return 0
    fi
    case $(uname -m) in x86_64) arch=amd64 ;; aarch64) arch=arm64 ;; *) return 1 ;; esac
    root=$(go mod download -json "$newer_go.linux-$arch" | sed -n 's/.*"Dir": "\(.*\)",*/\1/p')
    [ -n "$root" ] || return 1
    # Files of modules are not executable.
    chmod -R a+x "$root/bin" "$root/pkg/tool" && echo "$root/bin/go"
}

have() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null; }

# Packages of what tests use and this machine lacks. A test says so and passes without its tool.
tools() {
    have nbdinfo && have nbdcopy || echo libnbd-bin
    # In libnbd-bin on Debian 12, a package of its own where apt knows one.
    have nbdfuse || { apt-cache show nbdfuse >/dev/null 2>&1 && echo nbdfuse; } || echo libnbd-bin
    have qemu-img && have qemu-io || echo qemu-utils
    have fio || echo fio
    have nbdkit || echo nbdkit
    have mkfs.ext4 || echo e2fsprogs
    have ip || echo iproute2
    have fincore || echo util-linux-extra
    have mkfs.xfs || echo xfsprogs
    have sqlite3 || echo sqlite3
    have valgrind || echo valgrind
    [ -e /usr/include/libaio.h ] || echo libaio-dev
    [ -e /usr/include/liburing.h ] || echo liburing-dev
    have curl || echo curl
    # `undercroft top` is looked at in a terminal of its own.
    have tmux || echo tmux
    # Alert rules are checked by the program that reads them.
    have promtool || echo prometheus
    # Databases, as clients that nobody changes.
    have mariadbd || echo mariadb-server-core
    have mariadb-check || echo mariadb-client-core
    have pg_ctlcluster || echo postgresql
    have go || echo golang-go
    /usr/bin/python3 -c 'import nbd' >/dev/null 2>&1 || echo python3-libnbd
    # Pages of results are looked at in a browser.
    have chromium || echo chromium
    # For the pictures of `make experiment`.
    /usr/bin/python3 -c 'import matplotlib' >/dev/null 2>&1 || echo python3-matplotlib
    python_tools
}

# Packages that building the Python package needs.
python_tools() {
    have python3 || echo python3
    python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || echo python3-venv
}

# What is no package of Debian, into the target folder: TPC-C for the tests with databases, pinned in
# tools/go-tpc, and PostgreSQL 18, pinned in tools/experiment/install.py.
other_tools() {
    target=${CARGO_TARGET_DIR:-target}
    case $target in /*) ;; *) target=$PWD/$target ;; esac
    mkdir -p "$target/tools"
    python3 tools/experiment/install.py "$target/tools" ||
        echo "setup: tests with PostgreSQL 18 will be left out" >&2
    built=$target/tools/go-tpc
    [ ! -x "$built" ] || return 0
    echo "setup: building go-tpc"
    (cd tools/go-tpc && program=$(go_program) &&
        GOTOOLCHAIN=local "$program" build -o "$built" github.com/pingcap/go-tpc/cmd/go-tpc) ||
        echo "setup: tests with databases will be left out: go-tpc could not be built" >&2
}

wanted=""
command -v cc >/dev/null || wanted="$wanted gcc libc6-dev"
if ! have_rust; then
    if command -v rustup >/dev/null; then
        echo "setup: adding rustfmt and clippy with rustup"
        rustup component add rustfmt clippy
        have_rust || rustup update stable
    else
        # Debian's rustc is older than we need on Debian 12; rustc-web is kept current there.
        wanted="$wanted rustc-web cargo-web rustfmt-web rust-web-clippy"
    fi
fi
extra=""
[ "$stage" = test ] && extra=$(tools | sort -u | tr '\n' ' ')
[ "$stage" = python ] && extra=$(python_tools | tr '\n' ' ')
if [ -z "$wanted$extra" ]; then
    [ "$stage" = test ] && other_tools
    exit 0
fi

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    [ -z "$extra" ] || echo "setup: tests will be left out for want of packages: $extra" >&2
    [ "$stage" = test ] && other_tools
    [ -z "$wanted" ] && exit 0
    echo "setup: missing packages; as root, run: apt-get install$wanted" >&2
    exit 1
fi
apt-get update -qq
# With the lists there, apt knows which package has what.
[ "$stage" = test ] && extra=$(tools | sort -u | tr '\n' ' ')
echo "setup: installing$wanted $extra"
# Databases are installed for tests, not to run as services.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi
# shellcheck disable=SC2086 # lists of words
DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends ca-certificates $wanted $extra
[ "$stage" = test ] && other_tools
have_rust || { echo "setup: Rust $need or newer is still missing" >&2; exit 1; }
