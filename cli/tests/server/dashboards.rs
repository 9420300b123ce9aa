//! The dashboard for Grafana and the alert rules for Prometheus in `examples/prometheus`: each
//! metric that they name is one of a server that does everything, and a Prometheus that scrapes it
//! has figures for every panel.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use undercroft_nbd::Client;

use super::support::{PATIENCE, Place, Server, read, text, write};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/prometheus")
}

/// The metrics of ours that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_part(c));
    words.filter(|word| word.starts_with("undercroft_")).map(str::to_owned).collect()
}

/// All that is asked of Prometheus, by panel.
fn expressions(dashboard: &Value) -> Vec<(String, String)> {
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| {
        let title = panel["title"].as_str().unwrap();
        let targets = panel["targets"].as_array().unwrap().iter();
        targets.map(move |target| (title.to_owned(), target["expr"].as_str().unwrap().to_owned()))
    });
    targets.collect()
}

/// A server that does everything, one below it, and their folders.
struct Everything {
    server: Server,
    lower: Server,
    place: Place,
    _below: Place,
}

impl Everything {
    fn start() -> Everything {
        let place = Place::new();
        let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        place.write("cert.pem", certified.cert.pem());
        place.write("key.pem", certified.signing_key.serialize_pem());
        // One below, that is told; one that knows what its clients hold; one that records.
        let below = Place::new();
        let lower = below.serve("--volume coop=mem:,size=1MiB,placement=eviction,cache=256KiB");
        let socket = below.path("socket").display().to_string();
        let server = place.serve(&format!(
            "--tls-certificate cert.pem --tls-key key.pem --flash flash,size=4MiB,budget=off \
             --volume a=file:a.img,size=1MiB,write=back,placement=eviction,cache=256KiB,record=rec \
             --volume told=nbd+unix:///coop?socket={socket},report=evictions,cache=256KiB \
             --volume logged=log(log,size=8MiB):file:b.img,size=1MiB,cache=256KiB \
             --volume aware=mem:,size=1MiB,policy=lru-ca,cache=256KiB"
        ));
        Everything { server, lower, place, _below: below }
    }

    fn stop(self) {
        assert_eq!(self.server.stop(), 0);
        assert_eq!(self.lower.stop(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_that_is_asked_for_exists() {
    let all = Everything::start();
    let client = all.server.connect("a").await;
    load(&client).await;
    client.close().await;
    let metrics = all.server.page("/metrics");
    let samples = metrics.lines().filter(|line| !line.starts_with('#'));
    let known: BTreeSet<_> =
        samples.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect();
    assert!(known.len() > 100, "{known:?}");
    let helps = metrics.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    let deprecated = helps.filter(|(_, help)| help.starts_with("Deprecated"));
    let deprecated: BTreeSet<_> = deprecated.map(|(name, _)| name.to_owned()).collect();
    assert!(deprecated.len() > 50, "{deprecated:?}");

    let (dashboard, asked) = dashboard();
    assert!(asked.len() > 40, "{}", asked.len());
    for (panel, expression) in &asked {
        assert!(!named(expression).is_empty(), "{panel}: {expression}");
    }
    let alerts = std::fs::read_to_string(folder().join("alerts.yml")).unwrap();
    for (file, text) in [("grafana.json", dashboard), ("alerts.yml", alerts)] {
        let named = named(&text);
        let wrong: Vec<_> = named.iter().filter(|name| !known.contains(*name)).collect();
        assert!(wrong.is_empty(), "{file}: no such metrics: {wrong:?}");
        let old: Vec<_> = named.iter().filter(|name| deprecated.contains(*name)).collect();
        assert!(old.is_empty(), "{file}: deprecated metrics: {old:?}");
    }
    all.stop();
}

/// The text of the dashboard, and its expressions by panel.
fn dashboard() -> (String, Vec<(String, String)>) {
    let text = std::fs::read_to_string(folder().join("grafana.json")).unwrap();
    let asked = expressions(&serde_json::from_str(&text).unwrap());
    (text, asked)
}

/// Reads that hit and that miss, a write and a flush.
async fn load(client: &Client) {
    for block in 0..100_u64 {
        read(client, block * 4096, 4096).await.unwrap();
        read(client, block * 4096, 4096).await.unwrap();
    }
    write(client, 0, vec![1; 4096]).await.unwrap();
    client.flush().await.unwrap();
}

/// A Prometheus of a test's own; ended with it.
struct Prometheus {
    child: Child,
    url: String,
}

impl Prometheus {
    /// Starts one with the configuration of `examples/prometheus` that scrapes a server every
    /// second; `None` if it is not installed.
    fn start(all: &Everything) -> Option<Prometheus> {
        let address = all.server.http().replace("http://", "");
        let config = std::fs::read_to_string(folder().join("prometheus.yml")).unwrap();
        let config = config.replace("127.0.0.1:10880", &address).replace("15s", "1s");
        all.place.write("prometheus.yml", format!("global: {{evaluation_interval: 1s}}\n{config}"));
        all.place.write("alerts.yml", std::fs::read(folder().join("alerts.yml")).unwrap());
        let arguments =
            ["--config.file=prometheus.yml", "--storage.tsdb.path=data", LISTEN_ON_A_FREE_PORT];
        let Ok(mut child) = all.place.command("prometheus", &arguments).spawn() else {
            println!("skipped: prometheus is not installed");
            return None;
        };
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains("msg=\"Listening on\""));
        // The rest of its log is read too, so that it is never stuck.
        std::thread::spawn(move || lines.for_each(drop));
        let mut prometheus = Prometheus { child, url: String::new() };
        let line = line.unwrap_or_else(|| panic!("prometheus: {:?}", prometheus.child.wait()));
        prometheus.url = format!("http://{}", line.rsplit_once("address=").unwrap().1);
        // It listens before its database is open, and answers 503 until then.
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = ureq::get(format!("{}/-/ready", prometheus.url)).call() {
            assert!(Instant::now() < deadline, "prometheus is not ready: {error}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(prometheus)
    }

    /// What its HTTP API answers.
    fn ask(&self, path: &str, query: &[(&str, &str)]) -> Value {
        let request = ureq::get(format!("{}/api/v1/{path}", self.url));
        let request =
            query.iter().fold(request, |request, (name, value)| request.query(*name, *value));
        let answer = request.call().unwrap().body_mut().read_to_string().unwrap();
        serde_json::from_str::<Value>(&answer).unwrap()["data"].take()
    }

    /// The values of an expression now.
    fn values(&self, expression: &str) -> Vec<f64> {
        let found = self.ask("query", &[("query", expression)]);
        let series = found["result"].as_array().unwrap().iter();
        series.map(|one| one["value"][1].as_str().unwrap().parse().unwrap()).collect()
    }
}

const LISTEN_ON_A_FREE_PORT: &str = "--web.listen-address=127.0.0.1:0";

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Prometheus scrapes a server under load: every panel has figures, and every alert rule is
/// evaluated.
#[tokio::test(flavor = "multi_thread")]
async fn every_panel_has_figures() {
    let all = Everything::start();
    let Some(prometheus) = Prometheus::start(&all) else { return };
    let client = all.server.connect("a").await;
    let (_, asked) = dashboard();
    let deadline = Instant::now() + PATIENCE;
    loop {
        load(&client).await;
        let empty = asked.iter().filter(|(_, expression)| {
            // As Grafana does it, with all jobs and volumes chosen.
            let expression = expression.replace("$job", ".*").replace("$volume", ".*");
            let values = prometheus.values(&expression.replace("$__rate_interval", "1m"));
            !values.iter().any(|value| value.is_finite())
        });
        let empty: Vec<_> = empty.collect();
        let rules = prometheus.ask("rules", &[]);
        let rules = rules["groups"][0]["rules"].as_array().unwrap();
        let unwell: Vec<_> = rules.iter().filter(|rule| rule["health"] != "ok").collect();
        if empty.is_empty() && unwell.is_empty() {
            assert!(rules.len() > 10, "{rules:?}");
            break;
        }
        assert!(Instant::now() < deadline, "no figures: {empty:?}; not evaluated: {unwell:?}");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    // What the variables of the dashboard offer.
    assert_eq!(prometheus.ask("label/job/values", &[]), json!(["undercroft"]));
    let volumes =
        prometheus.ask("label/volume/values", &[("match[]", "undercroft_read_blocks_total")]);
    assert_eq!(volumes, json!(["a", "aware", "logged", "told"]));
    let hits = prometheus.values("undercroft_read_hit_blocks_total{volume=\"a\"}");
    assert!(hits[0] >= 100.0, "{hits:?}");
    drop(client);
    all.stop();
}

/// The rules are those of the operations page; Prometheus takes them, and each fires for what it is
/// made for and for nothing else.
#[test]
fn alert_rules_are_those_of_the_documents() {
    let alerts = std::fs::read_to_string(folder().join("alerts.yml")).unwrap();
    let page = folder().join("../../docs/user/operations.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rules: Vec<_> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(rules.len() > 10, "{rules:?}");
    let tests = std::fs::read_to_string(folder().join("alerts_test.yml")).unwrap();
    for rule in &rules {
        assert!(page.contains(&format!("| `{rule}` |")), "operations.md does not name {rule}");
        assert!(tests.contains(&format!("alertname: {rule},")), "alerts_test.yml: not {rule}");
    }
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        let Ok(output) = Command::new("promtool").args(arguments).current_dir(folder()).output()
        else {
            return println!("skipped: promtool is not installed");
        };
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    }
}
