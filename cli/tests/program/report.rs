//! Pages of results, in a real browser: the curves are there, tables can be sorted, nothing is
//! complained of, nothing is asked of the network. Left out where chromium is not installed.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::commands::{Place, text};
use super::tidy::root;

/// What a browser sees of a page; `None` without a browser.
fn seen(page: &Path) -> Option<Value> {
    let has = |program| Command::new(program).arg("--version").output().is_ok();
    if !has("chromium") || !has("python3") {
        println!("skipped: chromium or python3 is not installed");
        return None;
    }
    let script = root().join("tools/report/browser.py");
    let output = Command::new("python3").arg(script).arg("check").arg(page).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// Checks a page with so many charts and tables, at both widths.
fn check(page: &Path, title: &str, charts: usize, tables: usize) {
    let bytes = std::fs::metadata(page).unwrap().len();
    assert!((50_000..1_000_000).contains(&bytes), "{bytes} bytes");
    let Some(seen) = seen(page) else { return };
    for width in ["wide", "narrow"] {
        let seen = &seen[width];
        assert_eq!(seen["title"], title, "{width}");
        assert_eq!(seen["complaints"], Value::Array(Vec::new()), "{width}");
        assert_eq!((&seen["resources"], &seen["scripts"]), (&0.into(), &3.into()), "{width}");
        assert_eq!(seen["charts"], charts, "{width}");
        let painted = seen["painted"].as_array().unwrap();
        assert_eq!(painted.len(), charts, "{width}");
        // Colours of axes, and of curves.
        assert!(painted.iter().all(|colors| colors.as_u64() > Some(3)), "{width}: {painted:?}");
        assert_eq!(seen["switched"], true, "{width}: a curve cannot be switched");
        let sorted = seen["sorted"].as_array().unwrap();
        assert_eq!(sorted.len(), tables, "{width}");
        assert!(sorted.iter().all(|is| *is == true), "{width}: {sorted:?}");
        assert!(seen["answer"].as_u64() >= Some(1), "{width}");
        assert_eq!(seen["overflow"], 0, "{width}: wider than the screen");
        assert_eq!(seen["shaded"], seen["cut"], "{width}: tables are cut without a sign");
    }
    assert!(seen["narrow"]["cut"].as_u64() >= Some(1), "no table was wide: nothing was checked");
    assert_ne!(seen["dark"], seen["print"], "dark on paper");
    assert_eq!(seen["print"], "rgb(255, 255, 255)");
}

/// Curves that lie close together are shown apart: the axis begins where they do, and says so.
#[test]
fn hit_ratios_that_are_close_do_not_lie_on_each_other() {
    let place = Place::new();
    place.ok("trace generate zipf,requests=20000,blocks=3000,seed=2 -o z.uct");
    let begins = |sizes: &str| {
        let run = format!("sweep z.uct --l2 {sizes} --policy lru,mq -o {sizes}");
        place.ok(&run);
        place.ok(&format!("report {sizes} -o page.html"));
        seen(&place.path("page.html")).map(|seen| seen["wide"]["begins"][0].to_string())
    };
    let (Some(close), Some(wide)) = (begins("1500blk..2000blk"), begins("8blk..2000blk")) else {
        return;
    };
    assert!(close.starts_with("\"The vertical axis begins at "), "{close}");
    assert_eq!(wide, "\"\"");
}

/// A name that would end a script, an attribute and a comment; slashes are no part of file names.
const NAME: &str = "a\"'<script>alert(1)<!--&lt;.uct";

#[test]
fn pages_work_in_a_browser() {
    let place = Place::new();
    place.ok("trace generate zipf,requests=20000,blocks=3000,seed=2 -o z.uct");
    std::fs::rename(place.path("z.uct"), place.path(NAME)).unwrap();
    let run = |command: &str, more: &str| {
        let (first, last) = (command.split_whitespace(), more.split_whitespace());
        let mut process = place.command("");
        let output = process.args(first).arg(NAME).args(last).output().unwrap();
        assert!(output.status.success(), "{command}: {}", text(&output.stderr));
    };
    run("advise", "--l1 100blk:lru --policy mq,arc --report advice.html");
    check(&place.path("advice.html"), NAME, 2, 1);
    run("characterize", "--l1 100blk:lru --report described.html");
    check(&place.path("described.html"), NAME, 5, 3);
    let sweep = "--l1 100blk:lru --l2 100blk..800blk --policy lru,mq --placement access,eviction";
    run("sweep", &format!("{sweep} -o out"));
    assert_eq!(place.quiet("report out").trim(), "out/report.html");
    check(&place.path("out/report.html"), NAME, 3, 2);
    let page = place.read("out/report.html");
    assert!(page.contains("undercroft sweep &#39;a&quot;"), "the command is not in the page");
}

#[test]
fn a_page_can_be_made_later_or_at_once() {
    let place = Place::new();
    let run = "sweep a.spc --l2 1blk,2blk --policy lru,mq -o out";
    let table = place.quiet(run);
    assert_eq!(place.quiet("report out -o page.html").trim(), "page.html");
    let page = place.read("page.html");
    assert_eq!(page, place.quiet("report out -o -"));
    assert!(page.contains(&format!("undercroft {run}")));
    assert_eq!(place.ok(&format!("{run} --report direct.html")), table);
    let direct = place.read("direct.html").replace(" --report direct.html", "");
    assert_eq!(direct, page);
    place.write("found.json", place.quiet("characterize a.spc --json"));
    assert_eq!(place.quiet("report found.json").trim(), "found.html");
    assert!(place.read("found.html").contains("Working set over time"));
    assert!(!place.path("page.html.part").exists());
}

#[test]
fn a_page_of_nothing_is_refused() {
    let place = Place::new();
    assert!(place.fails(1, "report nowhere").contains("nowhere"));
    place.write("wrong.json", "{\"a\": 1}");
    assert!(place.fails(1, "report wrong.json").contains("wrong.json"));
    place.write("page.html", "[]");
    place.fails(1, "report page.html");
    assert_eq!(place.read("page.html"), "[]");
    let said = place.fails(1, "characterize a.spc --report nowhere/page.html");
    assert!(said.contains("nowhere/page.html"), "{said}");
}
