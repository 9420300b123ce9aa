#!/bin/sh
# What `make install` does: puts the program, the library that `undercroft attach` loads, the unit for
# systemd, examples and documents where they belong. It builds nothing.
#
#     tools/install.sh PROGRAM        PREFIX (/usr/local) and DESTDIR (empty) say where to
set -eu
program=$1
built=$(dirname "$program")
prefix=${PREFIX:-/usr/local}
to=${DESTDIR:-}$prefix
units=${DESTDIR:-}${UNITDIR:-/usr/lib/systemd/system}

install -D -m 755 "$program" "$to/bin/undercroft"
# `attach` looks for it in ../lib of the program. A build of the tests has it in `deps`.
library=$built/libundercroft_cct.so
[ -e "$library" ] || library=$built/deps/libundercroft_cct.so
install -D -m 644 "$library" "$to/lib/libundercroft_cct.so"
install -d "$units" "$to/share/doc/undercroft/examples"
sed "s|/usr/local/bin/|$prefix/bin/|" examples/systemd/undercroft.service >"$units/undercroft.service"
chmod 644 "$units/undercroft.service"
install -m 644 README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$to/share/doc/undercroft/"
install -m 644 examples/undercroft.toml examples/postgres-tpcc.uct.zst "$to/share/doc/undercroft/examples/"
cp -R docs "$to/share/doc/undercroft/"
