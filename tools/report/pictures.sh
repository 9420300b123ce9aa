#!/bin/sh
# The pictures of docs/user/report.md: pages of the bundled recording in a real browser.
set -eu
undercroft=$1
trace=examples/postgres-tpcc.uct.zst
into=docs/user/pictures
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$into"
"$undercroft" advise "$trace" --l1 32MiB:lru --json > "$folder/advice.json"
"$undercroft" characterize "$trace" --l1 32MiB:lru --json > "$folder/characterisation.json"
for page in advice characterisation; do
    "$undercroft" report "$folder/$page.json" -o "$folder/$page.html" >/dev/null
    python3 tools/report/browser.py shoot "$folder/$page.html" "$folder/$page" 1700
done
for picture in advice-wide characterisation-narrow characterisation-wide-dark; do
    # Few colours: a page has no photographs. MAXCOVERAGE keeps those of thin curves.
    /usr/bin/python3 -c 'import sys; from PIL import Image
Image.open(sys.argv[1]).convert("RGB").quantize(160, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(sys.argv[2], optimize=True)' \
        "$folder/$picture.png" "$into/$picture.png"
    echo "$into/$picture.png"
done
