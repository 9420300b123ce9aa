#!/usr/bin/python3
"""What `make image` does: a container image of what is built, without a container program.

    tools/image.py PROGRAM      the image is written beside the program; its path is printed

The root has the program with its documents, the libraries that it loads, the system's certificates,
and the folder /data of the user `undercroft` (10809), and nothing else: no shell, no packages. It
serves as examples/container/Containerfile does. The file is an OCI image layout in a tar archive, which
also has the index that `docker load` reads.
"""

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

USER = 10809
FLAGS = ["serve", "--listen", "0.0.0.0:10809", "--http", "0.0.0.0:10880", "--state", "/data/state",
         "--volume", "demo=file:/data/demo.img,size=1GiB"]
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def libraries(program):
    """The shared libraries that a program loads, by the paths that it looks for."""
    return [word for word in output("ldd", program).split() if word.startswith("/")]


def add(layer, name, content=b"", kind=tarfile.REGTYPE, mode=0o644, user=0):
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.type, entry.mode, entry.uid, entry.gid, entry.size = kind, mode, user, user, len(content)
    layer.addfile(entry, io.BytesIO(content))


def root(program):
    """The root of the image as a tar archive, the same for the same files."""
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=packed, mode="w") as layer:
        environment = dict(os.environ, DESTDIR=folder, PREFIX="/usr")
        subprocess.run(["tools/install.sh", program], check=True, env=environment)
        files = {str(path)[len(folder):]: path for path in Path(folder).rglob("*") if path.is_file()}
        files |= {path: Path(path) for path in libraries(program)}
        if CERTIFICATES.exists():
            files[str(CERTIFICATES)] = CERTIFICATES
        for name, path in sorted(files.items()):
            is_program = name.endswith("/bin/undercroft") or "ld-linux" in name
            add(layer, name, path.read_bytes(), mode=0o755 if is_program else 0o644)
        add(layer, "/etc/passwd", b"root:x:0:0::/:/\nundercroft:x:%d:%d::/data:/\n" % (USER, USER))
        add(layer, "/etc/group", b"root:x:0:\nundercroft:x:%d:\n" % USER)
        add(layer, "/data", kind=tarfile.DIRTYPE, mode=0o700, user=USER)
        add(layer, "/tmp", kind=tarfile.DIRTYPE, mode=0o1777)
    return packed.getvalue()


def main():
    program = sys.argv[1]
    version = output(program, "--version").split()[1]
    architecture = output("dpkg", "--print-architecture").strip()
    image = Path(program).parent / f"undercroft_{version}_{architecture}.oci.tar"
    with tarfile.open(image, "w") as archive:

        def blob(content, kind):
            digest = hashlib.sha256(content).hexdigest()
            add(archive, f"blobs/sha256/{digest}", content)
            return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

        plain = root(program)
        layer = blob(gzip.compress(plain, mtime=0), "layer.v1.tar+gzip")
        config = {
            "architecture": architecture,
            "os": "linux",
            "config": {
                "User": f"{USER}:{USER}",
                "WorkingDir": "/data",
                "Env": ["PATH=/usr/bin", "NO_COLOR=1"],
                "Entrypoint": ["/usr/bin/undercroft"],
                "Cmd": FLAGS,
                "Volumes": {"/data": {}},
                "ExposedPorts": {"10809/tcp": {}, "10880/tcp": {}},
                "StopSignal": "SIGTERM",
            },
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(plain).hexdigest()]},
        }
        config = blob(json.dumps(config).encode(), "config.v1+json")
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": [layer]}
        manifest = blob(json.dumps(manifest).encode(), "manifest.v1+json")
        manifest["annotations"] = {"org.opencontainers.image.ref.name": version}
        add(archive, "index.json", json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode())
        add(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        path = "blobs/sha256/" + config["digest"].removeprefix("sha256:")
        layers = ["blobs/sha256/" + layer["digest"].removeprefix("sha256:")]
        old = [{"Config": path, "RepoTags": [f"undercroft:{version}"], "Layers": layers}]
        add(archive, "manifest.json", json.dumps(old).encode())
    print(image)


main()
