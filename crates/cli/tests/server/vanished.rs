//! A server below that is gone without a word: its machine lost power, or the network between.

use std::process::Child;
use std::time::{Duration, Instant};

use super::clients::is_there;
use super::support::{Place, read, text};

/// A network of its own for a server, at the other end of a cable; taken apart with the test.
struct Network<'a> {
    place: &'a Place,
    name: String,
    server: Option<Child>,
}

impl<'a> Network<'a> {
    /// None where that is not allowed.
    fn new(place: &'a Place) -> Option<Network<'a>> {
        let name = format!("uc{}", std::process::id());
        let network = Network { place, name, server: None };
        // Names of interfaces are short.
        let (name, at) = (&network.name, &network.name);
        let ip = |arguments: &str| {
            let arguments: Vec<_> = arguments.split(' ').collect();
            let done = place.command("ip", &arguments).output().ok()?;
            if !done.status.success() {
                eprintln!("ip {arguments:?}: {}", text(&done.stderr));
            }
            done.status.success().then_some(())
        };
        ip(&format!("netns add {name}"))?;
        ip(&format!("link add {at}a type veth peer name {at}b netns {name}"))?;
        ip(&format!("addr add 198.51.100.1/30 dev {at}a"))?;
        ip(&format!("link set {at}a up"))?;
        ip(&format!("-n {name} addr add 198.51.100.2/30 dev {at}b"))?;
        ip(&format!("-n {name} link set {at}b up"))?;
        Some(network)
    }

    fn serve(&mut self, arguments: &[&str]) {
        let program = env!("CARGO_BIN_EXE_undercroft");
        let begin = ["netns", "exec", &self.name, program, "serve"];
        let arguments = [&begin, arguments].concat();
        self.server = Some(self.place.command("ip", &arguments).spawn().unwrap());
    }

    fn unplug(&self) {
        let end = format!("{}b", self.name);
        self.place.run("ip", &["-n", &self.name, "link", "set", &end, "down"]);
    }
}

impl Drop for Network<'_> {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            // An error means that it has ended already.
            let _ = server.kill();
            let _ = server.wait();
        }
        // Where there is none there is nothing to do. The cable goes with it.
        let _ = self.place.command("ip", &["netns", "delete", &self.name]).output();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_below_that_vanishes_is_given_up_in_time() {
    if !is_there("ip") {
        eprintln!("ip is not installed: left out");
        return;
    }
    let (below, above) = (Place::new(), Place::new());
    let Some(mut network) = Network::new(&below) else {
        eprintln!("networks may not be made here: left out");
        return;
    };
    network.serve(&["--listen", "198.51.100.2:10809", "--volume", "v=mem:,size=1MiB"]);
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect("198.51.100.2:10809").is_err() {
        assert!(Instant::now() < deadline, "the server below does not begin");
        std::thread::sleep(Duration::from_millis(50));
    }
    let upper = above.serve("--volume v=nbd://198.51.100.2/v,cache=64KiB");
    let client = upper.connect("v").await;
    read(&client, 0, 4096).await.unwrap();
    network.unplug();
    let since = Instant::now();
    read(&client, 0, 4096).await.expect("what is cached is served");
    read(&client, 65536, 4096).await.expect_err("there is nobody to ask");
    let took = since.elapsed();
    assert!(took < Duration::from_secs(75), "{took:?}");
}
