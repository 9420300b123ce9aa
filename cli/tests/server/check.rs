//! `serve --check`: what would be served or what is wrong, with nothing opened or made.

use super::support::{Place, text};

fn checked(place: &Place, arguments: &str) -> String {
    let output = place.undercroft(&format!("serve --check {arguments}"));
    assert_eq!(output.status.code(), Some(0), "{arguments}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn what_would_be_served_is_said_and_nothing_is_made() {
    let place = Place::new();
    place.write("there.img", vec![0; 1 << 20]);
    place.write(
        "undercroft.toml",
        "listen = ['unix:socket']\nstate = 'state'\nhttp = '127.0.0.1:10880'\n\
         flash = 'flash,size=9MiB,restart=warm'\n\
         [[volume]]\nname = 'new'\nstore = 'delay(1ms):file:new.img'\nsize = '2MiB'\n\
         [[volume]]\nname = 'there'\nstore = 'file:there.img'\nread-only = true\n\
         [[volume]]\nname = 'far'\nstore = 'nbd://no.such.host.invalid/x'\ncache = 'off'\n",
    );
    let said = checked(&place, "");
    for part in [
        "would serve at unix:socket\n",
        "  volume  new  2 MiB  file:new.img  write-through  default export\n",
        "new.img does not exist and would be created, of zeroes\n",
        "  volume  there  1 MiB  file:there.img  write-through  read-only\n",
        "  volume  far  size of its store  nbd://no.such.host.invalid/x  write-through\n",
        "nbd://no.such.host.invalid/x was not looked at",
        "          flash 4 MiB\n",
        "  flash   flash,size=9MiB,budget=9MiB/day,restart=warm\n",
        "live    http://127.0.0.1:10880/  metrics",
    ] {
        assert!(said.contains(part), "no '{part}' in {said}");
    }
    for name in ["new.img", "state", "socket", "flash"] {
        assert!(!place.path(name).exists(), "{name}");
    }
    // A server that runs with the same settings is not disturbed.
    let server = place.serve("--volume there=file:there.img,size=1MiB");
    checked(&place, "--volume there=file:there.img,size=1MiB --listen unix:socket");
    assert_eq!(server.stop(), 0);
    // A start goes on without it, and a reload whose settings are checked first must, too.
    let said = checked(&place, "--volume m=mem:,size=1MiB --flash /dev/no-device,size=4MiB");
    assert!(said.contains("flash /dev/no-device: there is no such device"), "{said}");
}

#[test]
fn what_is_wrong_ends_with_the_code_of_a_start() {
    let place = Place::new();
    place.write("v.img", vec![0; 1 << 20]);
    for (code, arguments, part) in [
        (2, "", "nothing to serve"),
        (2, "--volume v=file:v.img,wirte=back", "'wirte=back' is not known here"),
        (2, "--volume v=nothing:v.img", "expected a store"),
        (2, "--volume v=file:v.img,size=2MiB", "v.img: has 1048576 bytes, not 2097152"),
        (2, "--volume v=file:v.img,block=12KiB", "12288 bytes is not a power of two"),
        (2, "--volume v=mem:,size=1MiB,placement=d-hfa,k=4", "placement d-hfa is for simulations"),
        (2, "--volume v=mem:,size=1MiB --placement tandem", "placement=auto, and let clients"),
        (2, "--volume v=file:v.img --flash f,size=1MiB", "flash of 1MiB: at least 2MiB"),
        (1, "--volume v=file:w.img", "w.img: No such file"),
        (1, "--volume v=file:w.img,size=1MiB,create=no", "w.img: No such file"),
        (1, "--volume v=file:no/w.img,size=1MiB", "no/w.img: No such file"),
        (1, "--volume v=file:/dev/undercroft-no-disk,size=1MiB", "No such file"),
        (1, "--volume v=file:.", "is a folder"),
        (1, "--volume v=file:v.img --tls-certificate no.pem --tls-key no.key", "no.pem"),
        (2, "--config other.toml", "other.toml"),
    ] {
        let output = place.undercroft(&format!("serve --check {arguments}"));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments}: {said}");
        assert!(said.contains(part), "{arguments}: {said}");
        assert_eq!(text(&output.stdout), "", "{arguments}");
    }
    let wrong = "--volume v=mem:,size=1MiB --cache 4TiB --tls-certificate no.pem --tls-key no.key";
    let said = text(&place.undercroft(&format!("serve --check {wrong}")).stderr);
    assert!(said.contains("caches of 4TiB need") && said.contains("no.pem"), "{said}");
    // Everything that is wrong is said at once.
    let output = place.undercroft("serve --check --volume a=file:a.img --volume b=file:b.img");
    let said = text(&output.stderr);
    assert!(said.contains("a.img") && said.contains("b.img"), "{said}");
}

/// The screen of a start says which file was read, all the more if nobody named one.
#[test]
fn the_file_that_was_read_is_said() {
    let place = Place::new();
    let volume = "[[volume]]\nname = 'v'\nstore = 'mem:'\nsize = '1MiB'\n";
    place.write("undercroft.toml", volume);
    place.write("other.toml", volume);
    let path = |name: &str| std::fs::canonicalize(place.path(name)).unwrap().display().to_string();
    let said = checked(&place, "");
    assert!(
        said.contains(&format!("  config  {}  found here\n", path("undercroft.toml"))),
        "{said}"
    );
    let said = checked(&place, "--config other.toml");
    assert!(said.contains(&format!("  config  {}\n", path("other.toml"))), "{said}");
    let server = place.serve("");
    assert!(server.announced.contains("undercroft.toml  found here"), "{}", server.announced);
    assert_eq!(server.stop(), 0);
    std::fs::remove_file(place.path("undercroft.toml")).unwrap();
    assert!(!checked(&place, "--volume v=mem:,size=1MiB").contains("config"));
}

/// Every mistake of a configuration, each with its place, in one answer; a start says the same.
#[test]
fn all_mistakes_are_said_with_their_places() {
    let place = Place::new();
    place.write(
        "undercroft.toml",
        "cache = '64MiB'\n\
         placement = 'sideways'\n\
         [limits]\n\
         bytes = 'lots'\n\
         [[volume]]\n\
         name = 'a'\n\
         store = 'mem:'\n\
         size = '1MiB'\n\
         dirty-percent = 300\n\
         policy = 'fancy'\n\
         [[volume]]\n\
         name = 'b'\n\
         store = 'nothing:x'\n\
         [[volume]]\n\
         name = 'c'\n\
         store = 'mem:'\n\
         placement = 'access'\n\
         cache-idle-s = 0\n",
    );
    for arguments in ["serve --check", "serve"] {
        let mut command = place.undercroft_command(arguments);
        let output = command.env("UNDERCROFT_WRITE", "sideways").output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        for part in [
            "undercroft: 7 mistakes:\n",
            "\n  undercroft.toml, line 2: ",
            "\n  undercroft.toml, line 4: limits.bytes 'lots': expected a size",
            "\n  undercroft.toml, line 9: volume 'a': dirty-percent 300: expected 1 to 100",
            "\n  undercroft.toml, line 10: volume 'a': ",
            "\n  undercroft.toml, line 13: volume 'b': ",
            "\n  undercroft.toml, line 18: volume 'c': cache-idle-s 0: expected 1 to 3600",
            "\n  UNDERCROFT_WRITE: write 'sideways': expected through, back or around",
        ] {
            assert!(said.contains(part), "no '{part}' in {said}");
        }
    }
    // What a flag replaces is no mistake; names and types that are wrong are said at once, too.
    place.write("undercroft.toml", "cache = 'lots'\n[limits]\nbytes = 'lots'\n");
    let volume = "--volume v=mem:,size=1MiB";
    let output = place.undercroft(&format!("serve --check {volume} --cache 1MiB"));
    let said = text(&output.stderr);
    let wanted = "undercroft: undercroft.toml, line 3: limits.bytes 'lots': expected a size";
    assert!(said.starts_with(wanted), "{said}");
    place.write("undercroft.toml", "chache = '1MiB'\n[tls]\nmode = 3\n");
    let said = text(&place.undercroft(&format!("serve --check {volume}")).stderr);
    assert!(said.contains("line 1: unknown field `chache`, expected one of"), "{said}");
    assert!(said.contains("`policy`") && said.contains("line 3: invalid type"), "{said}");
    // Options that do not fit together, in several places.
    place.write(
        "undercroft.toml",
        "http-token-file = 'token'\n\
         [[volume]]\nname = 'a'\nstore = 'mem:'\nsize = '1MiB'\nclients = ['db']\n\
         [[volume]]\nname = 'b'\nstore = 'mem:'\nsize = '1MiB'\nreport = 'evictions'\n",
    );
    let said = text(&place.undercroft("serve --check").stderr);
    for part in [
        "3 mistakes:\n",
        "  undercroft.toml, line 1: http-token-file: there is no HTTP listener",
        "  undercroft.toml, line 2: volume 'a': client or writer 'certificate:db'",
        "  undercroft.toml, line 11: volume 'b': report=evictions: nobody listens",
    ] {
        assert!(said.contains(part), "no '{part}' in {said}");
    }
}
