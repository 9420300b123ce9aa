//! The server as a service: what its manager is told, the datagrams that systemd would get, and
//! what the unit in `examples/systemd` gives it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Signal, geteuid};

use super::support::{PATIENCE, Place, text};

fn units() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/systemd")
}

/// The next message, as lines.
fn told(manager: &UnixDatagram) -> Vec<String> {
    let mut buffer = [0; 4096];
    let length = manager.recv(&mut buffer).unwrap();
    text(&buffer[..length]).lines().map(str::to_owned).collect()
}

#[test]
fn the_manager_hears_when_the_server_is_ready_reloads_and_stops() {
    let place = Place::new();
    let manager = UnixDatagram::bind(place.path("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let volume = |name: &str, store: &str| {
        format!("[[volume]]\nname = '{name}'\nstore = '{store}'\ncache = '64KiB'\n")
    };
    let here = volume("here", "mem(1MiB):");
    let away = volume("away", "nbd+unix:///v?socket=below");
    place.write("undercroft.toml", format!("{here}{away}"));
    let variable = format!("NOTIFY_SOCKET={}", place.path("notify").display());
    let server = place.serve_within(&["env", &variable], "-v");
    let ready = |status: &str| ["READY=1".to_owned(), format!("STATUS={status}")];
    assert_eq!(told(&manager), ready("volumes served: 1, away: away"));

    let reload = |settings: String| {
        place.write("undercroft.toml", settings);
        server.signal(Signal::HUP);
        let began = told(&manager);
        assert_eq!(began[0], "RELOADING=1");
        let now = began[1].strip_prefix("MONOTONIC_USEC=").unwrap();
        assert!(now.parse::<u64>().unwrap() > 0, "{now}");
        told(&manager)
    };
    assert_eq!(reload(here.clone()), ready("volumes served: 1; reloaded"));
    server.wait_for_log("reloaded");
    let wrong = reload(format!("{here}policy = 'fancy'\n"));
    assert!(wrong[0] == "READY=1" && wrong[1].contains("; reloaded, except: "), "{wrong:?}");
    assert!(wrong[1].contains("all settings stay as they were"), "{wrong:?}");
    let wrong = reload(here.replace("mem(1MiB):", "mem(2MiB):"));
    let why = "except: volume here: store: changed, which needs a restart; stays as it was";
    assert!(wrong[1].contains(why), "{wrong:?}");
    assert_eq!(reload(here.clone()), ready("volumes served: 1; reloaded"));

    assert_eq!(server.stop(), 0);
    assert_eq!(told(&manager)[0], "STOPPING=1");
}

/// The drop-in `credentials.conf`, done as systemd does it: the files are root's alone, the server
/// is a user without rights, and finds copies in a folder of its own.
#[test]
fn a_server_without_rights_reads_what_its_unit_hands_over() {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !geteuid().is_root() || !has("unshare") || !has("setpriv") {
        return println!("skipped: it needs root, unshare and setpriv");
    }
    const FOLDER: &str = "/run/credentials/undercroft.service";
    let place = Place::new();
    let dropin = fs::read_to_string(units().join("undercroft.service.d/credentials.conf")).unwrap();
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let token = "0123456789abcdef0123456789abcdef";
    let mut handed = format!("mount -t tmpfs none /run && mkdir -p {FOLDER}");
    let mut names = Vec::new();
    for line in dropin.lines().filter_map(|line| line.strip_prefix("LoadCredential=")) {
        let (name, source) = line.split_once(':').unwrap();
        assert!(source.starts_with("/etc/undercroft/"), "{source}");
        let content = match name {
            "http-token" => token.to_owned(),
            "server-key.pem" => certified.signing_key.serialize_pem(),
            _ => certified.cert.pem(),
        };
        place.write(name, content);
        fs::set_permissions(place.path(name), Permissions::from_mode(0o600)).unwrap();
        let source = place.path(name).display().to_string();
        handed += &format!(" && install -m 400 -o 4242 -g 4242 {source} {FOLDER}/{name}");
        names.push((name, source));
    }
    assert_eq!(names.len(), 4);
    // The configuration is the one that the drop-in shows.
    let shown = dropin.lines().filter_map(|line| line.strip_prefix("#     "));
    let settings = shown.collect::<Vec<_>>().join("\n");
    let volume = "\n[[volume]]\nname = 'v'\nstore = 'mem(1MiB):'\n";
    place.write("undercroft.toml", format!("{settings}{volume}"));
    let direct = names.iter().fold(settings.clone(), |settings, (name, source)| {
        settings.replace(&format!("{FOLDER}/{name}\""), &format!("{source}\""))
    });
    assert_eq!(settings.matches(FOLDER).count(), 4, "{settings}");
    place.write("direct.toml", format!("{direct}{volume}"));

    let become_user = "exec setpriv --reuid=4242 --regid=4242 --clear-groups --no-new-privs \
                       --bounding-set=-all --";
    let script = format!(
        "{handed} && chown 4242:4242 . {FOLDER} && chmod 500 {FOLDER} && {become_user} \"$@\""
    );
    let within = ["unshare", "--mount", "sh", "-c", &script, "sh"];
    let server = place.serve_within(&within, "");
    assert!(server.announced.contains("with the token"), "{}", server.announced);
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    assert!(status.contains("Uid:\t4242\t4242\t4242\t4242"), "{status}");
    assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
    let asked = |header: &str| {
        let url = format!("{}/stats", server.http());
        ureq::get(url).header("authorization", header).call().map(|answer| answer.status().as_u16())
    };
    assert!(matches!(asked("Bearer wrong"), Err(ureq::Error::StatusCode(401))));
    assert_eq!(asked(&format!("Bearer {token}")).unwrap(), 200);
    assert_eq!(server.stop(), 0);

    // Without that it cannot read one of them.
    let program = env!("CARGO_BIN_EXE_undercroft");
    let line =
        format!("{become_user} {program} serve --check --http 127.0.0.1:0 --config direct.toml");
    let output = place.command("sh", &["-c", &line]).output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(!output.status.success() && said.contains("Permission denied"), "{said}");
}

/// systemd finds nothing to complain about in the unit with all its drop-ins, and reads keys of
/// object stores as root.
#[test]
fn the_unit_and_its_drop_ins_are_right() {
    let place = Place::new();
    let unit = fs::read_to_string(units().join("undercroft.service")).unwrap();
    assert!(unit.contains("\nEnvironmentFile=-/etc/undercroft/environment\n"), "{unit}");
    let operations = fs::read_to_string(units().join("../../docs/user/operations.md")).unwrap();
    for named in ["/etc/undercroft/environment", "undercroft.service.d/credentials.conf"] {
        assert!(operations.contains(named), "operations.md says nothing of {named}");
    }
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return println!("skipped: it needs systemd-analyze");
    }
    let dropins = units().join("undercroft.service.d").display().to_string();
    place.run("cp", &["-R", &dropins, "."]);
    // It looks whether the program is there.
    let there = unit.replace("/usr/local/bin/undercroft", env!("CARGO_BIN_EXE_undercroft"));
    place.write("undercroft.service", there);
    let mut verify = place.command("systemd-analyze", &["verify", "./undercroft.service"]);
    let output = verify.output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}
