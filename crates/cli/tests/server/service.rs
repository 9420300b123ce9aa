//! What a service manager is told: the datagrams that systemd would get.

use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;

use super::support::{PATIENCE, Place, text};

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
