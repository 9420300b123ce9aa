#!/bin/sh
# The pictures of README.md, docs/user/report.md and live.md: pages of the bundled recording, and the live page
# of a server through which it is replayed, in a real browser. HTTP: another address of its live page;
# LIVE_SECONDS: how much of the curves is shown.
set -eu
undercroft=$1
http=${HTTP:-127.0.0.1:10880}
trace=examples/postgres-tpcc.uct.zst
into=docs/user/pictures
folder=$(mktemp -d)
processes=""
trap 'for process in $processes; do kill "$process" 2>/dev/null || true; done; rm -rf "$folder"' EXIT
mkdir -p "$into"
"$undercroft" advise "$trace" --l1 32MiB:lru --json > "$folder/advice.json"
"$undercroft" characterize "$trace" --l1 32MiB:lru --json > "$folder/characterisation.json"
for page in advice characterisation; do
    "$undercroft" report "$folder/$page.json" -o "$folder/$page.html" >/dev/null
    python3 tools/report/browser.py shoot "$folder/$page.html" "$folder/$page" 1700
done

# A database's volume below 16 MiB of its own cache, and a log that is written back.
"$undercroft" serve --config /dev/null --listen "unix:$folder/socket" --http "$http" \
    --volume "db=delay(300us..2ms,queue=8):file:$folder/db.img,size=2GiB,cache=48MiB,placement=eviction" \
    --volume "log=delay(1ms):file:$folder/log.img,size=64MiB,cache=16MiB,write=back" \
    --volume archive=mem:,size=64MiB,cache=16MiB --block 8KiB >/dev/null 2>&1 &
processes=$!
while ! curl -s "http://$http/healthz" >/dev/null; do
    kill -0 "$processes" || { echo "pictures: the server did not start; HTTP= names another address" >&2; exit 1; }
    sleep 0.2
done
"$undercroft" replay "$trace" --to "nbd+unix:///db?socket=$folder/socket" --block 8KiB --l1 16MiB:lru \
    --report demotions --depth 2 >/dev/null 2>&1 &
processes="$processes $!"
"$undercroft" bench nbd "nbd+unix:///log?socket=$folder/socket" --depth 1 --block 8KiB --reads 30 \
    --seconds 300 >/dev/null 2>&1 &
processes="$processes $!"
sleep "${LIVE_SECONDS:-40}"
python3 tools/report/live.py shoot "http://$http/" "$folder/live" --height 1700
for picture in live-wide live-narrow-dark advice-wide characterisation-narrow characterisation-wide-dark; do
    # Few colours: a page has no photographs. MAXCOVERAGE keeps those of thin curves.
    /usr/bin/python3 -c 'import sys; from PIL import Image
Image.open(sys.argv[1]).convert("RGB").quantize(160, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(sys.argv[2], optimize=True)' \
        "$folder/$picture.png" "$into/$picture.png"
    echo "$into/$picture.png"
done
# What a reader sees first of it.
/usr/bin/python3 -c 'import sys; from PIL import Image
Image.open(sys.argv[1]).crop((0, 0, 1280, 1260)).save(sys.argv[2], optimize=True)' "$into/live-wide.png" "$into/live-top.png"
echo "$into/live-top.png"
