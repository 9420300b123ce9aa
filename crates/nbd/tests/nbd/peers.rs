//! Other people's programs: their clients against our server, our client against their servers. A
//! program that is not installed is skipped, and that is said.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::*;
use bytes::Bytes;
use undercroft_nbd::{Client, ClientOptions, Listener, Server, ServerOptions, Uri};

const MIB: u64 = 1 << 20;

impl Folder {
    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }
}

/// A server of an empty disk in memory.
async fn serve_ram(folder: &Folder, size: u64) -> Server {
    let server = Server::new(Arc::new(Ram::new("ram", size)), ServerOptions::default());
    let listener = Listener::unix(folder.socket()).unwrap();
    listen(&server, listener);
    server
}

/// Runs a program to its end; its output, which must be a success. It finds the system's own
/// programs first: nbdsh wants the Python that its module was installed for.
async fn run(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(arguments).env("PATH", format!("/usr/bin:/bin:{path}"));
    let output: Output =
        tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {text}{errors}");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn nbdinfo_sees_everything() {
    if !present("nbdinfo") {
        return;
    }
    let folder = Folder::new("nbdinfo");
    let server = serve_ram(&folder, 64 * MIB).await;
    let told = run("nbdinfo", &[&folder.uri()]).await;
    for line in [
        "newstyle-fixed without TLS, using structured packets",
        "export-size: 67108864",
        "base:allocation",
        "can_fast_zero: true",
        "can_multi_conn: true",
        "block_size_maximum: 33554432",
    ] {
        assert!(told.contains(line), "{line} is missing in {told}");
    }
    let list = run("nbdinfo", &["--list", &folder.uri()]).await;
    assert!(list.contains("export=\"ram\""), "{list}");
    let map = run("nbdinfo", &["--map", &folder.uri()]).await;
    assert!(map.contains("67108864") && map.contains("hole,zero"), "{map}");
    deserted(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nbdcopy_brings_back_what_it_took() {
    if !present("nbdcopy") {
        return;
    }
    let folder = Folder::new("nbdcopy");
    let server = serve_ram(&folder, 32 * MIB).await;
    let (from, to) = (folder.0.join("from"), folder.0.join("to"));
    let mut content: Vec<u8> = (0..16u32 << 20).map(|at| ((at * 7) >> 5) as u8).collect();
    content[(5 * MIB) as usize..(9 * MIB) as usize].fill(0);
    std::fs::write(&from, &content).unwrap();
    std::fs::File::options().write(true).open(&from).unwrap().set_len(32 * MIB).unwrap();
    run("nbdcopy", &[from.to_str().unwrap(), &folder.uri()]).await;
    run("nbdcopy", &[&folder.uri(), to.to_str().unwrap()]).await;
    assert!(std::fs::read(&from).unwrap() == std::fs::read(&to).unwrap());
    if present("qemu-img") {
        let files = ["-f", "raw", "-F", "raw", from.to_str().unwrap(), &folder.uri()];
        let told = run("qemu-img", &[&["compare"], &files[..]].concat()).await;
        assert!(told.contains("identical"), "{told}");
        let map = run("qemu-img", &["map", "--output=json", "-f", "raw", &folder.uri()]).await;
        assert!(map.contains("\"zero\": true") && map.contains("\"data\": true"), "{map}");
    }
    deserted(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn qemu_io_writes_zeroes_and_reads() {
    if !present("qemu-io") {
        return;
    }
    let folder = Folder::new("qemu-io");
    let server = serve_ram(&folder, 8 * MIB).await;
    let commands = [
        "write -P 7 100 5000",
        "read -P 7 100 5000",
        "write -f -P 8 1M 3M",
        "write -z 1M 1M",
        "write -z -u 2M 64k",
        "read -P 0 1M 1M",
        "read -P 0 2M 64k",
        "read -P 8 3M 1M",
        "discard 3M 1M",
        "flush",
    ];
    let mut arguments = vec!["-f", "raw"];
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    let uri = folder.uri();
    arguments.push(&uri);
    let told = run("qemu-io", &arguments).await;
    assert!(!told.contains("failed"), "{told}");
    deserted(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nbdsh_is_told_no_where_it_should_be() {
    if !present("nbdsh") {
        return;
    }
    let folder = Folder::new("nbdsh");
    let server = serve_ram(&folder, MIB).await;
    let script = format!(
        "
import errno
h.set_strict_mode(0)
h.connect_uri('{}')
def refused(number, call, *args):
    try:
        call(*args)
    except nbd.Error as error:
        assert error.errnum == number, (error.errnum, number)
    else:
        raise AssertionError('not refused')
size = h.get_size()
refused(errno.ENOSPC, h.pwrite, b'x' * 512, size)
refused(errno.EINVAL, h.pread, 512, size)
refused(errno.EINVAL, h.cache, 512, 0, 8)
refused(errno.EINVAL, h.block_status, 512, 0, lambda *a: 0)
h.pwrite(b'y' * 1000, 24, nbd.CMD_FLAG_FUA)
assert h.pread(1000, 24) == b'y' * 1000
h.zero(1000, 24, nbd.CMD_FLAG_FAST_ZERO)
assert h.pread(1000, 24) == bytes(1000)
h.shutdown()
",
        folder.uri()
    );
    run("nbdsh", &["-c", &script]).await;
    deserted(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fio_verifies_what_it_wrote() {
    if !present("fio") {
        return;
    }
    let folder = Folder::new("fio");
    let server = serve_ram(&folder, 64 * MIB).await;
    let engines = run("fio", &["--enghelp"]).await;
    if !engines.contains("nbd") {
        println!("skipped: this fio has no nbd engine");
        return;
    }
    let uri = format!("--uri={}", folder.uri());
    let arguments = "--name=x --ioengine=nbd --rw=randwrite --bs=4k --iodepth=64 --size=32M \
                     --verify=crc32c --verify_state_save=0 --output-format=terse";
    let arguments: Vec<&str> = arguments.split(' ').chain([&*uri]).collect();
    run("fio", &arguments).await;
    drop(server);
}

/// A program that runs until it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn start(program: &str, arguments: &[&str], socket: &Path) -> Running {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null());
    let running = Running(command.spawn().unwrap());
    let begin = Instant::now();
    while tokio::net::UnixStream::connect(socket).await.is_err() {
        assert!(begin.elapsed() < PATIENCE, "{program} does not listen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    running
}

/// Writes, zeroes and reads back.
async fn exercise(uri: &str) {
    let uri: Uri = uri.parse().unwrap();
    let contexts = vec!["base:allocation".to_owned()];
    let options = ClientOptions { contexts, ..ClientOptions::default() };
    let told = Client::describe(&uri, &options).await.unwrap();
    assert_eq!(told.info.size, 8 * MIB);
    let client = Client::connect(&uri, &options).await.unwrap();
    let writes: Vec<_> = (0..128u64)
        .map(|at| client.write(at << 16, vec![Bytes::from(vec![at as u8; 1 << 16])], at % 9 == 0))
        .collect();
    for write in writes {
        write.await.unwrap();
    }
    client.flush().await.unwrap();
    client.write_zeroes(MIB, MIB, 0, false).await.unwrap();
    let (mut buffers, result) = client.read(0, vec![Box::new(vec![1u8; 8 << 20])]).await;
    result.unwrap();
    for (at, part) in (*buffers[0]).as_mut().chunks(1 << 16).enumerate() {
        let expected = if (16..32).contains(&at) { 0 } else { at as u8 };
        assert!(part.iter().all(|byte| *byte == expected), "block {at}");
    }
    let status = client.block_status(0, 8 * MIB, false).await.unwrap();
    assert_eq!(status.len(), 1);
    client.trim(2 * MIB, MIB, false).await.unwrap();
    client.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn our_client_works_with_nbdkit() {
    if !present("nbdkit") {
        return;
    }
    let folder = Folder::new("nbdkit");
    let socket = folder.socket();
    let arguments = ["-f", "-U", socket.to_str().unwrap(), "memory", "8M"];
    let _server = start("nbdkit", &arguments, &socket).await;
    exercise(&folder.uri()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn our_client_works_with_qemu_nbd() {
    if !present("qemu-nbd") {
        return;
    }
    let folder = Folder::new("qemu-nbd");
    let (socket, image) = (folder.socket(), folder.0.join("image"));
    std::fs::File::create(&image).unwrap().set_len(8 * MIB).unwrap();
    let options = ["-t", "-e", "4", "-f", "raw", "--discard=unmap", "-k"];
    let places = [socket.to_str().unwrap(), image.to_str().unwrap()];
    let _server = start("qemu-nbd", &[&options[..], &places].concat(), &socket).await;
    exercise(&folder.uri()).await;
}
