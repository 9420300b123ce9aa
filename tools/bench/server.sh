#!/bin/sh
# Speed of the server beside nbdkit and qemu-nbd: installs what is missing of them, if it can, then
# measures. Arguments after the two programs go to server.py (--quick, --rounds N, --only CASE).
set -eu

missing=""
command -v nbdkit >/dev/null || missing="$missing nbdkit"
command -v qemu-nbd >/dev/null || missing="$missing qemu-utils"
command -v nbdcopy >/dev/null || missing="$missing libnbd-bin"
if [ -n "$missing" ]; then
    echo "bench: installing$missing" >&2
    # shellcheck disable=SC2086 # a list of words
    if ! { [ "$(id -u)" = 0 ] && apt-get update -qq >&2 &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing >&2; }
    then
        echo "bench: could not; as root, run: apt-get install$missing" >&2
    fi
fi
exec python3 tools/bench/server.py "$@"
