//! `undercroft policies`, `placements` and `schemes` list what there is.

use serde_json::Value;

use crate::commands::Place;

#[test]
fn every_policy_of_the_contract_is_listed_with_its_parameters() {
    let place = Place::new();
    let listed = place.json("policies --json");
    let listed = listed.as_array().unwrap();
    let names = |policy: &Value| -> Vec<String> {
        let aliases = policy["aliases"].as_array().unwrap().iter().map(|alias| &alias["name"]);
        std::iter::once(&policy["name"])
            .chain(aliases)
            .map(|n| n.as_str().unwrap().into())
            .collect()
    };
    for (name, parameters) in [
        ("opt", ""),
        ("lru", ""),
        ("mru", ""),
        ("fifo", ""),
        ("lfu", "ghost age"),
        ("fbr", "new old cmax amax ghost"),
        ("lru-2", "k crp ghost"),
        ("lru-k", "k crp ghost"),
        ("lfru", "decay lambda ghost"),
        ("2q", "kin kout"),
        ("lirs", "hirs nonres top"),
        ("arc", ""),
        ("mq", "m lifetime qout"),
        ("clock", "bits"),
        ("clock-pro", ""),
        ("car", ""),
        ("s3-fifo", "small threshold"),
        ("sieve", ""),
        ("w-tinylfu", "window protected sketch"),
    ] {
        let policy = listed.iter().find(|policy| names(policy).iter().any(|n| n == name));
        let policy = policy.unwrap_or_else(|| panic!("no {name}"));
        for field in ["summary", "source"] {
            assert!(!policy[field].as_str().unwrap().is_empty(), "{name}: {field}");
        }
        for key in parameters.split_whitespace() {
            let mut known = policy["parameters"].as_array().unwrap().iter();
            let parameter = known.find(|p| p["name"] == key);
            let parameter = parameter.unwrap_or_else(|| panic!("{name} has no {key}"));
            let default = parameter["default"].as_str().unwrap();
            assert!(parameter["range"]["type"].is_string() && parameter["help"].is_string());
            // The default may be spelled out, unless the name stands for it already.
            if (name, key) != ("lru-2", "k") {
                place.quiet(&format!("simulate a.spc --l1 2blk:{name},{key}={default}"));
            }
        }
        let table = place.quiet("policies");
        assert!(table.lines().any(|line| line.trim_start().starts_with(name)), "{name}");
    }
}

#[test]
fn placements_and_schemes_are_listed_and_one_can_be_asked_for() {
    let place = Place::new();
    for (list, one, has) in [
        ("policies", "lrfu", "lfru"),
        ("placements", "eviction", "on-hit"),
        ("schemes", "d-hfa", "queues"),
    ] {
        let all = place.json(&format!("{list} --json"));
        for listed in all.as_array().unwrap() {
            for field in ["name", "summary", "source"] {
                assert!(!listed[field].as_str().unwrap().is_empty(), "{list}: {listed}");
            }
            let name = listed["name"].as_str().unwrap();
            assert!(place.quiet(list).lines().any(|line| line.starts_with(name)), "{list}: {name}");
        }
        let single = place.json(&format!("{list} {one} --json"));
        assert_eq!(single.as_array().unwrap().len(), 1, "{list} {one}");
        assert!(place.quiet(&format!("{list} {one}")).contains(has), "{list} {one}");
        let error = place.fails(2, &format!("{list} none"));
        assert!(error.contains("no ") && error.contains("there are"), "{error}");
    }
}
