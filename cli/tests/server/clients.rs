//! Unmodified programs of others as clients, in every write mode. A program that is not there, or
//! not allowed, is skipped; the last line says how many were.

use std::io::Write;
use std::path::Path;

use serde_json::Value;

use super::disk::Disk;
use super::support::{Place, Server, seeded};

const MIB: usize = 1 << 20;

/// The volumes: one of each write mode.
const MODES: [&str; 3] = ["through", "back", "around"];

/// How a check ended that did not fail.
enum Checked {
    Yes,
    /// Why not.
    Skipped(String),
}

type Check = fn(&Place, &Server, &str) -> Checked;

/// What each check is called, which programs it needs, and the check of one volume.
const CHECKS: [(&str, &[&str], Check); 6] = [
    ("nbdinfo", &["nbdinfo"], nbdinfo),
    ("nbdcopy", &["nbdcopy"], nbdcopy),
    ("qemu-img", &["qemu-img"], qemu_img),
    ("qemu-io", &["qemu-io"], qemu_io),
    ("fio", &["fio"], fio),
    ("ext4", &["nbdfuse", "losetup", "mkfs.ext4", "fsck.ext4", "mount"], ext4),
];

#[test]
fn unmodified_clients() {
    let place = Place::new();
    let server = place.serve(
        "--volume through=file:through.img,size=64MiB,write=through \
         --volume back=file:back.img,size=64MiB,write=back \
         --volume around=file:around.img,size=64MiB,write=around --cache 48MiB",
    );
    let (mut checked, mut skipped) = (Vec::new(), Vec::new());
    for (name, programs, check) in CHECKS {
        let missing = programs.iter().find(|program| !is_there(program));
        let result = match missing {
            Some(program) => Checked::Skipped(format!("{program} is not installed")),
            None => MODES.iter().fold(Checked::Yes, |before, mode| match before {
                Checked::Yes => check(&place, &server, mode),
                skipped => skipped,
            }),
        };
        match result {
            Checked::Yes => checked.push(name),
            Checked::Skipped(why) => skipped.push(format!("{name} ({why})")),
        }
    }
    assert_eq!(server.stop(), 0);
    // Not through print!, which the test harness would keep to itself.
    let _ = writeln!(
        std::io::stderr(),
        "clients: {} checked: {}; {} skipped: {}",
        checked.len(),
        checked.join(", "),
        skipped.len(),
        if skipped.is_empty() { "none".to_owned() } else { skipped.join(", ") },
    );
}

pub(crate) fn is_there(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/bin:/bin:/usr/sbin:/sbin")
        .split(':')
        .any(|folder| Path::new(folder).join(program).is_file())
}

fn nbdinfo(place: &Place, server: &Server, volume: &str) -> Checked {
    let told: Value =
        serde_json::from_str(&place.run("nbdinfo", &["--json", &server.uri(volume)])).unwrap();
    assert_eq!(told["protocol"], "newstyle-fixed");
    assert_eq!((&told["TLS"], &told["structured"]), (&false.into(), &true.into()));
    let export = &told["exports"][0];
    assert_eq!(export["export-name"], volume);
    assert_eq!(export["export-size"], 64 * MIB);
    assert_eq!(export["is_read_only"], false);
    for can in ["cache", "df", "fast_zero", "flush", "fua", "multi_conn", "trim", "zero"] {
        assert_eq!(export[format!("can_{can}")], true, "{can} in {export}");
    }
    let sizes = ["minimum", "preferred", "maximum"]
        .map(|size| export[format!("block_size_{size}")].clone());
    assert_eq!(sizes, [Value::from(1), Value::from(4096), Value::from(64 * MIB)]);
    let contexts = export["contexts"].as_array().unwrap();
    assert!(contexts.contains(&"base:allocation".into()), "{contexts:?}");
    let list: Value =
        serde_json::from_str(&place.run("nbdinfo", &["--list", "--json", &server.uri(volume)]))
            .unwrap();
    let names: Vec<_> =
        list["exports"].as_array().unwrap().iter().map(|one| &one["export-name"]).collect();
    assert_eq!(names, ["around", "back", "through"]);
    Checked::Yes
}

fn nbdcopy(place: &Place, server: &Server, volume: &str) -> Checked {
    let mut data = seeded(&format!("nbdcopy, {volume}")).bytes(64 * MIB);
    // Some of it is a hole.
    data[20 * MIB..29 * MIB + 12_345].fill(0);
    place.write("from", &data);
    place.run("nbdcopy", &["--flush", "from", &server.uri(volume)]);
    place.run("nbdcopy", &[&server.uri(volume), "to"]);
    assert!(place.read("to") == data, "what comes back is something else");
    assert!(place.read(&format!("{volume}.img")) == data, "a flush left something out");
    Checked::Yes
}

fn qemu_img(place: &Place, server: &Server, volume: &str) -> Checked {
    let uri = server.uri(volume);
    let data = seeded(&format!("qemu-img, {volume}")).bytes(16 * MIB);
    place.write("disk.raw", &data);
    place.run("qemu-img", &["resize", "-f", "raw", "disk.raw", "64M"]);
    place.run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", "disk.raw", "disk.qcow2"]);
    place.run("qemu-img", &["convert", "-n", "-f", "qcow2", "-O", "raw", "disk.qcow2", &uri]);
    let told = place.run("qemu-img", &["compare", "-f", "qcow2", "-F", "raw", "disk.qcow2", &uri]);
    assert!(told.contains("identical"), "{told}");
    place.run("qemu-img", &["convert", "-f", "raw", "-O", "raw", &uri, "back.raw"]);
    assert!(place.read("back.raw") == place.read("disk.raw"));
    let map: Value =
        serde_json::from_str(&place.run("qemu-img", &["map", "--output=json", "-f", "raw", &uri]))
            .unwrap();
    let zeroes: u64 = map
        .as_array()
        .unwrap()
        .iter()
        .filter(|extent| extent["zero"] == true)
        .map(|extent| extent["length"].as_u64().unwrap())
        .sum();
    assert_eq!(zeroes, 48 * MIB as u64, "{map}");
    Checked::Yes
}

fn qemu_io(place: &Place, server: &Server, volume: &str) -> Checked {
    let uri = server.uri(volume);
    let commands = [
        "write -P 7 100 5000",
        "read -P 7 100 5000",
        "write -P 8 4096 1000",
        "read -P 7 100 3996",
        "read -P 8 4096 1000",
        "read -P 7 5096 4",
        "write -f -P 9 1M 3M",
        "write -z 1M 1M",
        "write -z -u 2M 64k",
        "read -P 0 1M 1M",
        "read -P 0 2M 64k",
        "read -P 9 2112k 1984k",
        "write -z 3000000 100",
        "read -P 9 2999000 1000",
        "read -P 0 3000000 100",
        "read -P 9 3000100 1000",
        "discard 3M 1M",
        "flush",
        "aio_write -P 10 8M 2M",
        "aio_write -P 11 10M 2M",
        "aio_flush",
        "read -P 10 8M 2M",
        "read -P 11 10M 2M",
        "write -P 12 67108352 512",
        "read -P 12 67108352 512",
    ];
    let mut arguments = vec!["-f", "raw"];
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    arguments.push(&uri);
    let told = place.run("qemu-io", &arguments);
    assert!(!told.contains("failed") && !told.contains("error"), "{told}");
    // What is discarded reads the same ever after.
    let read = || place.run("qemu-io", &["-f", "raw", "-r", "-c", "read -v 3M 4k", &uri]);
    let dump = |text: String| text.lines().filter(|l| l.starts_with("0")).collect::<String>();
    assert_eq!(dump(read()), dump(read()));
    Checked::Yes
}

fn fio(place: &Place, server: &Server, volume: &str) -> Checked {
    if !place.run("fio", &["--enghelp"]).lines().any(|line| line.trim() == "nbd") {
        return Checked::Skipped("this fio has no nbd engine".to_owned());
    }
    let uri = format!("--uri={}", server.uri(volume));
    // The second job works on another half with blocks that are not those of the cache.
    let arguments = [
        "--ioengine=nbd",
        &uri,
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--verify_backlog=512",
        "--output-format=json",
        "--name=blocks",
        "--rw=randwrite",
        "--bs=4k",
        "--iodepth=32",
        "--size=24M",
        "--name=others",
        "--rw=randwrite",
        "--bsrange=512-64k",
        "--bs_unaligned=1",
        "--iodepth=8",
        "--offset=32M",
        "--size=24M",
        "--fsync=200",
    ];
    // The engine prints lines of its own before the report.
    let told = place.run("fio", &arguments);
    let told: Value = serde_json::from_str(&told[told.find('{').unwrap()..]).unwrap();
    for job in told["jobs"].as_array().unwrap() {
        assert_eq!(job["error"], 0, "{job}");
        let bytes = ["read", "write"].map(|way| job[way]["io_bytes"].as_u64().unwrap());
        assert!(bytes[0] >= 20 * MIB as u64 && bytes[1] >= 20 * MIB as u64, "{bytes:?}");
    }
    Checked::Yes
}

fn ext4(place: &Place, server: &Server, volume: &str) -> Checked {
    let mut random = seeded(&format!("ext4, {volume}"));
    let files: Vec<_> = (0..40)
        .map(|number| {
            let length = random.below(400_000) as usize;
            (format!("files/{number}"), random.bytes(length))
        })
        .collect();
    let mut disk = match Disk::new(place, &server.uri(volume)) {
        Ok(disk) => disk,
        Err(why) => return Checked::Skipped(why),
    };
    place.run("mkfs.ext4", &["-q", "-F", disk.device()]);
    if let Err(why) = disk.mount("ext4") {
        return Checked::Skipped(why);
    }
    files.iter().for_each(|(name, content)| place.write(name, content));
    // Some go again, and their places are written by others.
    files[..20].iter().for_each(|(name, _)| std::fs::remove_file(place.path(name)).unwrap());
    files[..10].iter().for_each(|(name, content)| place.write(name, content));
    disk.unmount();
    place.run("fsck.ext4", &["-f", "-n", disk.device()]);
    disk.mount("ext4").unwrap();
    for (name, content) in files[..10].iter().chain(&files[20..]) {
        assert!(place.read(name) == *content, "{name}");
    }
    disk.unmount();
    drop(disk);
    // Unmounting flushes, through the loop device and FUSE too: the file is sound in any mode.
    place.run("fsck.ext4", &["-f", "-n", &format!("{volume}.img")]);
    Checked::Yes
}
