#!/bin/sh
# What `make run` shows: a volume on a local file, served with a cache in front, and what to try on
# it. LISTEN and HTTP choose other addresses.
set -eu
undercroft=$1
listen=${LISTEN:-127.0.0.1:10809}
http=${HTTP:-127.0.0.1:10880}
trace=examples/postgres-tpcc.uct.zst
volume=nbd://$listen/demo
ready=data/ready.txt

mkdir -p data
: >"$ready"
warm="" overwrite=""
[ ! -e data/state/demo.warm ] || warm=yes
# An earlier replay may have written.
[ ! -e data/demo.img ] || overwrite=" --overwrite"

# Blocks of the trace's pages, and a volume that the trace fits. An undercroft.toml that may lie
# here is for another server.
"$undercroft" serve --config /dev/null --listen "$listen" --http "$http" --state ./data/state \
    --volume demo=file:./data/demo.img,size=2GiB --cache 64MiB --block 8KiB >"$ready" &
server=$!
trap 'kill -TERM "$server" 2>/dev/null || true' INT TERM

# The line with the HTTP address is the last that it prints.
while kill -0 "$server" 2>/dev/null && ! grep -q ' live ' "$ready"; do sleep 0.1; done
if ! grep -q ' live ' "$ready"; then
    status=0
    wait "$server" || status=$?
    echo "demo: the server did not start. Where an address is in use: end who uses it, or" >&2
    echo "      make run LISTEN=127.0.0.1:10819 HTTP=127.0.0.1:10890" >&2
    exit "$status"
fi

cat "$ready"
cat <<EOF
  try, in a second terminal, in this folder:
          $undercroft replay $trace --to $volume --l1 32MiB:lru$overwrite
          $undercroft top http://$http
          $undercroft simulate $trace --l1 32MiB:lru --l2 64MiB:auto
          nbdinfo $volume
          nbdcopy README.md $volume
EOF
if [ -n "$warm" ]; then
    echo "  The cache is warm from the last run. For the counts of the simulation: rm -r data, again."
else
    echo "  The first three are one experiment: the server counts what the simulation foretells."
fi
echo "  Ctrl-C ends the server; nothing that it acknowledged is lost."

# A signal ends the first wait; the server then flushes and saves.
status=0
wait "$server" || status=$?
while kill -0 "$server" 2>/dev/null; do
    status=0
    wait "$server" || status=$?
done
exit "$status"
