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
        "live    http://127.0.0.1:10880/  metrics",
    ] {
        assert!(said.contains(part), "no '{part}' in {said}");
    }
    for name in ["new.img", "state", "socket"] {
        assert!(!place.path(name).exists(), "{name}");
    }
    // A server that runs with the same settings is not disturbed.
    let server = place.serve("--volume there=file:there.img,size=1MiB");
    checked(&place, "--volume there=file:there.img,size=1MiB --listen unix:socket");
    assert_eq!(server.stop(), 0);
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
