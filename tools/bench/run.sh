#!/bin/sh
# Speed and memory against libCacheSim: installs its Python wheel beside the build, then measures.
# Arguments after the program go to bench.py (--quick, --rounds N, --only WHAT).
set -eu
undercroft=$1
shift
venv=target/bench-venv
if ! [ -x "$venv/bin/python" ]; then
    if ! python3 -m venv "$venv" 2>/dev/null; then
        echo "bench: installing python3-venv"
        apt-get update -qq && apt-get install -y --no-install-recommends python3-venv
        python3 -m venv --clear "$venv"
    fi
    "$venv/bin/pip" install --quiet libcachesim==0.3.5
fi
exec "$venv/bin/python" tools/bench/bench.py "$undercroft" "$@"
