//! The dashboard for Grafana and the alert rules for Prometheus in `examples/prometheus`: each
//! metric that they name is one of a server that does everything.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::support::{Place, read, text, write};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/prometheus")
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

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_that_is_asked_for_exists() {
    let place = Place::new();
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    place.write("cert.pem", certified.cert.pem());
    place.write("key.pem", certified.signing_key.serialize_pem());
    // One below, that is told; one that is a level of a scheme, above another; one that knows what
    // its clients hold; one that records.
    let below = Place::new();
    let lower = below.serve(
        "--volume coop=mem:,size=1MiB,placement=eviction,cache=256KiB \
         --volume level=mem:,size=1MiB,policy=lru,placement=d-hfa,cache=256KiB",
    );
    let socket = below.path("socket").display().to_string();
    let server = place.serve(&format!(
        "--tls-certificate cert.pem --tls-key key.pem \
         --volume a=file:a.img,size=1MiB,write=back,placement=eviction,cache=256KiB,record=rec \
         --volume told=nbd+unix:///coop?socket={socket},report=evictions,cache=256KiB \
         --volume level=nbd+unix:///level?socket={socket},policy=lru,placement=d-hfa,cache=256KiB \
         --volume aware=mem:,size=1MiB,policy=lru-ca,cache=256KiB"
    ));
    let client = server.connect("a").await;
    read(&client, 0, 4096).await.unwrap();
    write(&client, 0, vec![1; 4096]).await.unwrap();
    client.flush().await.unwrap();
    client.close().await;
    let metrics = server.page("/metrics");
    let samples = metrics.lines().filter(|line| !line.starts_with('#'));
    let known: BTreeSet<_> =
        samples.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect();
    assert!(known.len() > 100, "{known:?}");

    let dashboard = std::fs::read_to_string(folder().join("grafana.json")).unwrap();
    let json: Value = serde_json::from_str(&dashboard).unwrap();
    let asked = expressions(&json);
    assert!(asked.len() > 40, "{}", asked.len());
    for (panel, expression) in &asked {
        let balance =
            |open, close| expression.matches(open).count() == expression.matches(close).count();
        assert!(balance('(', ')') && balance('{', '}'), "{panel}: {expression}");
        assert!(!named(expression).is_empty(), "{panel}: {expression}");
    }
    let alerts = std::fs::read_to_string(folder().join("alerts.yml")).unwrap();
    for (file, text) in [("grafana.json", dashboard), ("alerts.yml", alerts)] {
        let wrong: Vec<_> = named(&text).into_iter().filter(|name| !known.contains(name)).collect();
        assert!(wrong.is_empty(), "{file}: no such metrics: {wrong:?}");
    }
    assert_eq!(server.stop(), 0);
    assert_eq!(lower.stop(), 0);
}

/// The rules are those of the operations page, and Prometheus takes them.
#[test]
fn alert_rules_are_those_of_the_documents() {
    let alerts = std::fs::read_to_string(folder().join("alerts.yml")).unwrap();
    let page = folder().join("../../docs/user/operations.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rules: Vec<_> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(rules.len() > 10, "{rules:?}");
    for rule in rules {
        assert!(page.contains(&format!("| `{rule}` |")), "operations.md does not name {rule}");
    }
    let Ok(output) =
        Command::new("promtool").args(["check", "rules"]).arg(folder().join("alerts.yml")).output()
    else {
        return println!("skipped: promtool is not installed");
    };
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}
