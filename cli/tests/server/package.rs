//! What is handed out, unpacked into an empty root: the Debian package, with nothing but the
//! libraries that it depends on, and the container image. The program serves there, and the trace
//! that came with it is simulated.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_undercroft");

/// Runs what must succeed; what it prints.
fn output(command: &mut Command) -> String {
    let done = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(done.status.success(), "{command:?}");
    String::from_utf8(done.stdout).unwrap()
}

/// The shared libraries that a program loads.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let said = output(Command::new("ldd").arg(program));
    let paths = said.split_whitespace().filter(|word| word.starts_with('/'));
    paths.map(PathBuf::from).collect()
}

#[test]
fn the_package_works_in_a_fresh_root() {
    if !geteuid().is_root() || Command::new("dpkg-deb").arg("--version").output().is_err() {
        return println!("skipped: it needs dpkg-deb, and root for chroot");
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut make = Command::new("tools/package.sh");
    make.arg(PROGRAM).current_dir(repository).env("COMPRESSION", "none");
    let package = output(&mut make);
    let root = tempfile::tempdir().unwrap();
    output(Command::new("dpkg-deb").arg("-x").arg(package.trim()).arg(root.path()));
    fs::remove_file(package.trim()).unwrap();
    let within = |path: &Path| root.path().join(path.strip_prefix("/").unwrap());
    let program = Path::new("/usr/bin/undercroft");
    for library in libraries(&within(program)) {
        let place = within(&library);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(library, place).unwrap();
    }
    fs::create_dir(within(Path::new("/tmp"))).unwrap();
    let chroot = |arguments: &[&str]| {
        let mut command = Command::new("chroot");
        command.arg(root.path()).arg("/usr/bin/undercroft").args(arguments);
        command
    };
    let trace = "/usr/share/doc/undercroft/examples/postgres-tpcc.uct.zst";
    let said = output(&mut chroot(&["simulate", trace, "--l1", "32MiB:lru", "--l2", "64MiB:mq"]));
    assert!(said.contains("35.26 %"), "{said}");

    let volume = "d=file:/tmp/d.img,size=4MiB";
    let mut serve = chroot(&["serve", "--listen", "unix:/tmp/s", "--cache", "1MiB"]);
    let mut server = serve.args(["--volume", volume]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("serving"));
    let uri = format!("nbd+unix:///d?socket={}", root.path().join("tmp/s").display());
    let said = output(Command::new(PROGRAM).args(["stats", &uri]));
    assert!(said.lines().any(|line| line.starts_with("d ")), "{said}");
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
    // The unit names the program where the package has it.
    let unit = within(Path::new("/usr/lib/systemd/system/undercroft.service"));
    let unit = fs::read_to_string(unit).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/undercroft serve"), "{unit}");
    assert!(within(Path::new("/usr/lib/libundercroft_cct.so")).exists());
    // What else people look for after an installation.
    let documents = "/usr/share/doc/undercroft";
    for path in [
        "/usr/share/man/man1/undercroft.1.gz",
        "/usr/share/man/man1/undercroft-serve.1.gz",
        "/usr/share/bash-completion/completions/undercroft",
        "/usr/share/zsh/vendor-completions/_undercroft",
        "/usr/share/fish/vendor_completions.d/undercroft.fish",
        &format!("{documents}/examples/prometheus/alerts.yml"),
        &format!("{documents}/examples/prometheus/grafana.json"),
        &format!("{documents}/examples/systemd/undercroft.service.d/credentials.conf"),
        &format!("{documents}/examples/systemd/postgresql.service.d/undercroft.conf"),
        &format!("{documents}/docs/user/operations.md"),
    ] {
        let size = fs::metadata(within(Path::new(path))).map(|file| file.len());
        assert!(size.is_ok_and(|size| size > 100), "{path}");
    }
    let sections = output(Command::new("readelf").args(["-S", "-W"]).arg(within(program)));
    let has = |name: &str| sections.contains(name);
    assert!(has(".text") && !has(".debug_line") && !has(".symtab"), "{sections}");
    // Everybody may read it.
    let closed = output(
        Command::new("find")
            .arg(root.path().join("usr"))
            .args(["-not", "-perm", "-444", "-o", "-type", "d", "-not", "-perm", "-555"]),
    );
    assert_eq!(closed, "", "files that not everybody can read");
}

#[test]
fn the_image_works_in_a_fresh_root() {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !geteuid().is_root() || !has("/usr/bin/python3") || !has("dpkg") || !has("tar") {
        return println!("skipped: it needs python3, dpkg, tar, and root for chroot");
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut make = Command::new("tools/image.py");
    let image = output(make.arg(PROGRAM).current_dir(repository));
    let layout = tempfile::tempdir().unwrap();
    output(Command::new("tar").arg("-xf").arg(image.trim()).arg("-C").arg(layout.path()));
    fs::remove_file(image.trim()).unwrap();
    // Every name of a content is its digest.
    let blob = |digest: &Value| {
        let digest = digest["digest"].as_str().unwrap().replace(':', "/");
        let path = layout.path().join("blobs").join(&digest);
        let said = output(Command::new("sha256sum").arg(&path));
        assert_eq!(said.split_whitespace().next(), digest.strip_prefix("sha256/"));
        path
    };
    let json =
        |path: PathBuf| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
    let index = json(layout.path().join("index.json"));
    let manifest = json(blob(&index["manifests"][0]));
    let config = json(blob(&manifest["config"]));
    let root = tempfile::tempdir().unwrap();
    let layer = blob(&manifest["layers"][0]);
    output(Command::new("tar").arg("-xpf").arg(layer).arg("-C").arg(root.path()));

    let config = &config["config"];
    let user = format!("--userspec={}", config["User"].as_str().unwrap());
    let words = |list: &Value| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let mut serve = Command::new("chroot");
    serve.arg(user).arg(root.path()).args(words(&config["Entrypoint"]));
    // Ports of this machine may be in use.
    let free = |word: String| {
        word.replace("0.0.0.0:10809", "127.0.0.1:0").replace("0.0.0.0:10880", "127.0.0.1:0")
    };
    serve.args(words(&config["Cmd"]).into_iter().map(free));
    let mut server = serve.args(["--cache", "1MiB"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let serving = lines.next().unwrap().unwrap();
    let address = serving.split_whitespace().last().unwrap();
    let said = output(Command::new(PROGRAM).args(["stats", &format!("{address}demo")]));
    assert!(said.lines().any(|line| line.starts_with("demo ")), "{said}");
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
}
