#!/bin/sh
# What `make package` does: a package for the Debian that this runs on, from what is built.
#
#     tools/package.sh PROGRAM        the package is written beside the program; its path is printed
set -eu
program=$1
version=$("$program" --version | cut -d ' ' -f 2)
architecture=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
DESTDIR=$root PREFIX=/usr tools/install.sh "$program"
# Where Debian's zsh looks.
mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions"
gzip -9n "$root/usr/share/doc/undercroft/CHANGELOG.md" "$root"/usr/share/man/man1/*

# Of this machine: a package for an older Debian is made there.
libc=$(dpkg-query --showformat '${Version}' --show libc6 | sed 's/-.*//')
install -d "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<END
Package: undercroft
Version: $version
Architecture: $architecture
Maintainer: The Undercroft developers <undercroft@localhost>
Installed-Size: $(du -sk "$root/usr" | cut -f 1)
Depends: libc6 (>= $libc), libgcc-s1, ca-certificates
Section: net
Priority: optional
Description: block storage server whose cache sits below another cache
 Undercroft serves files, devices, other NBD servers and object stores over NBD, with a cache that is
 managed for the second level. Its simulator says from a trace what that cache is worth.
 .
 The server is not started by the installation: write /etc/undercroft/undercroft.toml, as the example
 in /usr/share/doc/undercroft/examples shows, and then systemctl enable --now undercroft. Drop-ins for
 its unit, a dashboard for Grafana and alert rules for Prometheus are there, too.
END
package=$(dirname "$program")/undercroft_${version}_$architecture.deb
dpkg-deb -Z"${COMPRESSION:-xz}" --root-owner-group --build "$root" "$package" >&2
echo "$package"
