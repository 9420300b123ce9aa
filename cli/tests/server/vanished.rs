//! A server below that is gone without a word: its machine lost power, or the network between.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::clients::is_there;
use super::support::{Place, read, text};

/// A network without a name and with nothing in it, not even a way out. It goes with the process
/// that holds it, and that with the test, however this ends: what one run left behind would be in
/// the way of the next.
struct Network<'a> {
    place: &'a Place,
    holder: Child,
    pid: String,
}

impl<'a> Network<'a> {
    /// None where that is not allowed.
    fn new(place: &'a Place) -> Option<Network<'a>> {
        // `cat` ends when the test does, which holds the other end.
        let mut hold = place.command("unshare", &["--net", "sh", "-c", "echo; exec cat"]);
        let mut holder = hold.stdin(Stdio::piped()).spawn().unwrap();
        let pid = holder.id().to_string();
        let mut ready = String::new();
        BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        let network = Network { place, holder, pid };
        (!ready.is_empty()).then_some(network)
    }

    /// Lays a cable to another network: `host` and `peer` are the addresses at its ends.
    fn connect(&self, other: &Network<'_>, host: &str, peer: &str) -> Option<()> {
        let (here, there) = (&self.pid, &other.pid);
        let veth = format!("link add cable netns {here} type veth peer name cable netns {there}");
        let made = self.place.command("ip", &veth.split(' ').collect::<Vec<_>>()).output().ok()?;
        if !made.status.success() {
            eprintln!("ip {veth}: {}", text(&made.stderr));
            return None;
        }
        for (network, address) in [(self, host), (other, peer)] {
            network.ip(&["addr", "add", &format!("{address}/30"), "dev", "cable"]);
            network.ip(&["link", "set", "cable", "up"]);
            network.ip(&["link", "set", "lo", "up"]);
        }
        Some(())
    }

    fn unplug(&self) {
        self.ip(&["link", "set", "cable", "down"]);
    }

    /// What a command begins with to run in here.
    fn enter(&self) -> [&str; 4] {
        ["nsenter", "-t", &self.pid, "--net"]
    }

    fn ip(&self, arguments: &[&str]) {
        self.place.run("nsenter", &[&self.enter()[1..], &["ip"], arguments].concat());
    }
}

impl Drop for Network<'_> {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_below_that_vanishes_is_given_up_in_time() {
    if !is_there("ip") {
        eprintln!("ip is not installed: left out");
        return;
    }
    let (below, above) = (Place::new(), Place::new());
    let networks = || {
        let (here, there) = (Network::new(&above)?, Network::new(&below)?);
        here.connect(&there, "198.51.100.1", "198.51.100.2")?;
        Some((here, there))
    };
    let Some((here, there)) = networks() else {
        eprintln!("networks may not be made here: left out");
        return;
    };
    let port = "--listen 198.51.100.2:10809 --volume v=mem:,size=1MiB";
    let _lower = below.serve_within(&there.enter(), port);
    let volume = "--volume v=nbd://198.51.100.2/v,cache=64KiB";
    let upper = above.serve_within(&here.enter(), volume);
    let client = upper.connect("v").await;
    read(&client, 0, 4096).await.unwrap();
    there.unplug();
    let since = Instant::now();
    read(&client, 0, 4096).await.expect("what is cached is served");
    read(&client, 65536, 4096).await.expect_err("there is nobody to ask");
    let took = since.elapsed();
    assert!(took < Duration::from_secs(75), "{took:?}");
}
