//! What caches saved, and what has happened, as a server tells it: for `stats`, `top` and
//! `attach --check`.

use std::io::Write;

use serde_json::Value;

use crate::error::Error;
use crate::held::shown;
use crate::status::volumes;
use crate::table::{Table, count};

/// What was saved, in words; `None` if the server does not tell, or nothing was read yet. `counts`:
/// a volume of `/stats`, or the total.
pub(crate) fn sentence(counts: &Value) -> Option<String> {
    let (all, today) = (&counts["saved"]["since_start"], &counts["saved"]["today"]);
    if all.is_null() || counts["reads"].as_u64().unwrap_or(0) == 0 {
        return None;
    }
    let said = |saved: &Value, prefix: &str| {
        let field = |name: &str| format!("{prefix}{name}");
        format!(
            "{} disk reads and {} of waiting",
            signed(&saved[field("disk_reads")]),
            seconds(&saved[field("waiting_s")])
        )
    };
    let hints = match all["hinted_disk_reads"].as_i64() {
        Some(0) | None => String::new(),
        Some(_) => format!("; by hints {}", said(all, "hinted_")),
    };
    Some(format!("Saved since the start: {}{hints}; today: {}.", said(all, ""), said(today, "")))
}

/// What was saved, by volume.
pub(crate) fn table(out: &mut impl Write, stats: &Value) -> Result<(), Error> {
    let columns = [
        "volume",
        "saved disk reads",
        "waiting",
        "by hints",
        "waiting",
        "today (UTC)",
        "waiting",
        "by hints",
        "waiting",
    ];
    let mut table = Table::new(&columns);
    for (name, volume) in volumes(stats).into_iter().chain([("total", &stats["total"])]) {
        if volume["saved"].is_null() {
            continue;
        }
        let mut cells = vec![name.to_owned()];
        for span in ["since_start", "today"] {
            for kind in ["", "hinted_"] {
                let saved = &volume["saved"][span];
                cells.push(signed(&saved[format!("{kind}disk_reads")]));
                cells.push(seconds(&saved[format!("{kind}waiting_s")]));
            }
        }
        table.row(cells);
    }
    table.print_if_filled(out, 1)
}

/// The last events, the latest first.
pub(crate) fn events(out: &mut impl Write, stats: &Value) -> Result<(), Error> {
    let events = stats["events"].as_array().map_or(&[][..], Vec::as_slice);
    if events.is_empty() {
        writeln!(out, "nothing has happened, or this server does not tell")?;
    }
    for event in events {
        let text = |field: &str| event[field].as_str().map(shown).unwrap_or_default();
        let volume = match text("volume") {
            volume if volume.is_empty() => String::new(),
            volume => format!("{volume}: "),
        };
        let who = match text("who") {
            who if who.is_empty() => String::new(),
            who => format!(" [{who}]"),
        };
        let time = utc(event["time_ms"].as_u64().unwrap_or(0) / 1000);
        let (kind, level) = (text("kind"), text("level"));
        writeln!(out, "{time}  {level:<7}  {kind:<7}  {volume}{}{who}", text("text"))?;
    }
    Ok(())
}

fn signed(value: &Value) -> String {
    let number = value.as_i64().unwrap_or(0);
    let minus = if number < 0 { "-" } else { "" };
    format!("{minus}{}", count(number.unsigned_abs()))
}

fn seconds(value: &Value) -> String {
    match value.as_f64().unwrap_or(0.0) {
        s if s < 100.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{} h", count((s / 3600.0).round() as u64)),
    }
}

/// A time of day in UTC, of seconds since 1970: `2026-11-26 01:02:03Z`.
fn utc(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    // Years of 400 begin in March, so that leap days come last.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{of_month:02} {hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (unix_s, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399, "2000-02-28 23:59:59Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (1_709_251_199, "2024-02-29 23:59:59Z"),
            (1_709_251_200, "2024-03-01 00:00:00Z"),
            (4_102_444_800, "2100-01-01 00:00:00Z"),
        ] {
            assert_eq!(utc(unix_s), text);
        }
    }

    #[test]
    fn savings_in_words() {
        assert_eq!(sentence(&json!({ "reads": 5 })), None, "an older server");
        let saved = |reads: i64, hinted: i64| {
            json!({ "disk_reads": reads, "waiting_s": 250.0, "hinted_disk_reads": hinted,
                "hinted_waiting_s": 0.25 })
        };
        let counts = |reads: u64, hinted: i64| {
            json!({ "reads": reads,
                "saved": { "since_start": saved(12_345, hinted), "today": saved(-7, 0) } })
        };
        assert_eq!(sentence(&counts(0, 0)), None);
        let plain = "Saved since the start: 12,345 disk reads and 4 min of waiting";
        let today = "; today: -7 disk reads and 4 min of waiting.";
        assert_eq!(sentence(&counts(9, 0)), Some(format!("{plain}{today}")));
        let hints = "; by hints 21 disk reads and 0.2 s of waiting";
        assert_eq!(sentence(&counts(9, 21)), Some(format!("{plain}{hints}{today}")));
    }

    #[test]
    fn events_are_lines_without_what_a_terminal_acts_on() {
        let all = json!({ "events": [
            { "time_ms": 951_782_400_123_u64, "kind": "store", "level": "error", "volume": "v",
              "text": "its store is down\u{1b}[2J" },
            { "time_ms": 0, "kind": "refusal", "level": "warning", "volume": null,
              "text": "refused", "who": "client 10.0.0.2" },
        ] });
        let mut out = Vec::new();
        events(&mut out, &all).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "2000-02-29 00:00:00Z  error    store    v: its store is down\u{fffd}[2J\n\
             1970-01-01 00:00:00Z  warning  refusal  refused [client 10.0.0.2]\n"
        );
        let mut out = Vec::new();
        events(&mut out, &json!({})).unwrap();
        assert!(String::from_utf8(out).unwrap().starts_with("nothing has happened"));
    }
}
