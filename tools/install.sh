#!/bin/sh
# What `make install` does: puts the program without what debuggers read, the library that `undercroft
# attach` loads, manual pages, completions of shells, the unit for systemd, examples and documents where
# they belong. It builds nothing.
#
#     tools/install.sh PROGRAM        PREFIX (/usr/local) and DESTDIR (empty) say where to
set -eu
program=$1
built=$(dirname "$program")
prefix=${PREFIX:-/usr/local}
to=${DESTDIR:-}$prefix
units=${DESTDIR:-}${UNITDIR:-/usr/lib/systemd/system}
documents=$to/share/doc/undercroft

install -D -m 755 "$program" "$to/bin/undercroft"
# `attach` looks for it in ../lib of the program. A build of the tests has it in `deps`.
library=$built/libundercroft_cct.so
[ -e "$library" ] || library=$built/deps/libundercroft_cct.so
install -D -m 644 "$library" "$to/lib/libundercroft_cct.so"
# Debug information is nine tenths of the program.
if command -v strip >/dev/null; then
    strip "$to/bin/undercroft"
    strip --strip-unneeded "$to/lib/libundercroft_cct.so"
else
    echo "install: without strip (binutils) the program stays as large as it was built" >&2
fi

"$program" man-pages "$to/share/man/man1"
complete() {
    install -d "$(dirname "$to/share/$2")"
    "$program" completions "$1" >"$to/share/$2"
}
complete bash bash-completion/completions/undercroft
complete zsh zsh/site-functions/_undercroft
complete fish fish/vendor_completions.d/undercroft.fish

install -d "$units" "$documents/examples"
sed "s|/usr/local/bin/|$prefix/bin/|" examples/systemd/undercroft.service >"$units/undercroft.service"
chmod 644 "$units/undercroft.service"
install -m 644 README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$documents/"
# Drop-ins for units, the dashboard for Grafana, rules for Prometheus, and what the documents name.
for example in undercroft.toml postgres-tpcc.uct.zst prometheus systemd postgresql; do
    cp -R "examples/$example" "$documents/examples/"
done
cp -R docs "$documents/"
chmod -R u=rwX,go=rX "$to/share/man/man1" "$documents"
