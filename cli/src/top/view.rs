//! How the figures of `undercroft top` look: lines of text, the answer first. A terminal and a file
//! get the same lines.

use std::collections::VecDeque;
use std::time::Duration;

use super::figures::{ClientFigures, Figures, Sources, VolumeFigures};
use crate::held::{ClientCache, Known};
use crate::table::{Table, bytes, count, percent, wrapped_at};

/// Clients that are shown.
const CLIENTS: usize = 20;

/// Steps of a small curve, from nothing to all.
const STEPS: [char; 9] = [
    ' ', '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}',
    '\u{2588}',
];

/// Columns of a small curve.
const WIDTH: usize = 12;

/// How a line stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Plain,
    Strong,
    Soft,
    Bad,
}

/// A line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) look: Look,
    /// Of a table, which may be wider than the terminal: so many characters stay where they are
    /// when the others move sideways.
    pub(crate) fixed: Option<usize>,
}

/// By what volumes are sorted: the most first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// As they are configured.
    #[default]
    Configured,
    HitRatio,
    Reads,
    Writes,
    Dirty,
    Cache,
}

impl Order {
    /// All orders, with their names, in the order in which a key goes through them.
    const ALL: [(Self, &str); 6] = [
        (Self::Configured, "as configured"),
        (Self::HitRatio, "by hit ratio"),
        (Self::Reads, "by reads/s"),
        (Self::Writes, "by writes/s"),
        (Self::Dirty, "by dirty bytes"),
        (Self::Cache, "by cache"),
    ];

    fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    pub(crate) fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()].0
    }

    fn sort(self, rows: &mut [&VolumeFigures]) {
        let key = |row: &VolumeFigures| match self {
            Self::Configured => 0.0,
            Self::HitRatio => row.sources.map_or(-1.0, |sources| sources.hits),
            Self::Reads => row.reads_s,
            Self::Writes => row.writes_s,
            Self::Dirty => row.dirty_bytes as f64,
            Self::Cache => row.cache_bytes as f64,
        };
        rows.sort_by(|a, b| key(b).total_cmp(&key(a)));
    }
}

/// What is shown beside the figures, and how.
pub(crate) struct View<'a> {
    pub(crate) uri: &'a str,
    /// Time between two looks.
    pub(crate) every: Duration,
    /// Why the server does not answer at present.
    pub(crate) lost: Option<&'a str>,
    /// Characters of a line of text; tables may be wider.
    pub(crate) width: usize,
    pub(crate) order: Order,
}

/// What keys do.
pub(crate) fn help() -> Vec<Line> {
    let text = "undercroft top: keys\n \n\
        q, Esc, Ctrl-C       end\n\
        up, down, j, k       move by a line\n\
        space, Page Up/Down  move by a screen\n\
        Home, End            the first lines, the last\n\
        left, right, h, l    move tables sideways; > marks what goes on\n\
        s                    sort volumes by something else\n\
        ?                    back to the figures\n \n\
        Ratios, rates and times are of the time since the last look; at first, of\n\
        the time since the server's start.";
    let line = |text: &str| Line { text: text.to_owned(), look: Look::Plain, fixed: None };
    text.lines().map(line).collect()
}

/// All lines.
pub(crate) fn lines(figures: &Figures, view: &View<'_>) -> Vec<Line> {
    let &View { uri, every, lost, width, order } = view;
    let wrapped = |text: &str, first: &str, rest: &str| wrapped_at(width, text, first, rest);
    let mut all = Vec::new();
    let mut add = |look, text: String| {
        all.extend(text.lines().map(|text| Line { text: text.to_owned(), look, fixed: None }));
    };
    let every = every.as_secs();
    let head = format!(
        "undercroft top {uri} every {every} s, volumes {} (? shows keys, q ends)",
        order.name()
    );
    add(Look::Soft, wrapped(&head, "", ""));
    let troubles: Vec<_> = figures.troubles().collect();
    let number = volumes(figures.volumes.len());
    let waiting = troubles.iter().filter(|(_, waits)| *waits).count();
    match (lost, troubles.len() - waiting) {
        (Some(why), _) => {
            let text = format!("lost, trying again; the figures are old: {why}");
            add(Look::Bad, wrapped(&text, "", "  "));
        }
        (None, 0) if waiting > 0 => {
            add(Look::Bad, format!("Waiting for stores: {waiting} of {number}"));
        }
        (None, 0) => add(Look::Strong, format!("Healthy: {number} served")),
        (None, bad) => add(Look::Bad, format!("Not healthy: {bad} of {number}")),
    }
    troubles.into_iter().for_each(|(trouble, _)| add(Look::Bad, wrapped(&trouble, "  ", "    ")));
    for volume in figures.volumes.iter().filter(|volume| volume.has_lost_flash) {
        let text = format!("{}: its flash is not used; the log says why", volume.name);
        add(Look::Bad, wrapped(&text, "  ", "    "));
    }
    add(Look::Plain, wrapped(&said(&figures.total), "", ""));
    figures.saved.iter().for_each(|saved| add(Look::Plain, wrapped(saved, "", "")));
    figures.advice.iter().for_each(|advice| add(Look::Strong, wrapped(advice, "* ", "  ")));
    let mut rows: Vec<_> = figures.volumes.iter().collect();
    order.sort(&mut rows);
    if rows.len() != 1 {
        rows.push(&figures.total);
    }
    let known: Vec<_> =
        figures.volumes.iter().filter_map(|one| Some((one, one.known.as_ref()?))).collect();
    let caches =
        figures.volumes.iter().flat_map(|one| one.caches.iter().map(move |its| (one, its)));
    let caches: Vec<_> = caches.collect();
    let of_rows = |title, table| (title, table, 0);
    for (title, table, number) in [
        of_rows("", volumes_table(&rows)),
        of_rows(
            "response times in us: reads that hit, that miss, writes, FLUSH",
            times_table(&rows),
        ),
        of_rows("", waiting_table(&rows)),
        ("", clients_table(&figures.clients), figures.clients.len()),
        ("", known_table(&known), known.len()),
        ("", caches_table(&caches), caches.len()),
    ] {
        let table = printed(&table);
        // A heading alone says nothing.
        if table.lines().count() < 2 {
            continue;
        }
        all.push(Line { text: String::new(), look: Look::Plain, fixed: None });
        if !title.is_empty() {
            all.push(Line { text: title.to_owned(), look: Look::Soft, fixed: None });
        }
        // The first column is padded to its widest cell.
        let first = table.lines().map(|line| line.split("  ").next().unwrap_or("").chars().count());
        let fixed = first.max().map(|widest| widest + 2);
        let lines =
            table.lines().map(|text| Line { text: text.to_owned(), look: Look::Plain, fixed });
        all.extend(lines);
        if number > CLIENTS {
            let text = format!("and {} more", number - CLIENTS);
            all.push(Line { text, look: Look::Soft, fixed: None });
        }
    }
    all
}

fn volumes(number: usize) -> String {
    format!("{number} {}", if number == 1 { "volume" } else { "volumes" })
}

/// How good the cache is, and what waits, in words.
fn said(total: &VolumeFigures) -> String {
    let mut said = match total.sources {
        None => "Nothing was read.".to_owned(),
        Some(sources) => {
            let told = sources.handed_over + sources.reloaded + sources.staged;
            let hits = percent(sources.hits);
            let told = match told > 0.0 {
                true => format!(", {} of them blocks that clients had evicted", percent(told)),
                false => String::new(),
            };
            let flash = match sources.flash > 0.0 {
                true => format!(" Flash served {} more.", percent(sources.flash)),
                false => String::new(),
            };
            format!("The cache served {hits} of the blocks read{told}.{flash}")
        }
    };
    let waits = [
        (total.starved, "blocks wait for memory"),
        (total.reloads_waiting, "evicted blocks wait to be read back"),
    ];
    for (number, what) in waits.into_iter().filter(|(number, _)| *number > 0) {
        said += &format!(" {} {what}.", count(number));
    }
    if total.dirty_bytes > 0 {
        let age = match total.dirty_age_s {
            0 => String::new(),
            age => format!(", the oldest for {age} s"),
        };
        said += &format!(" {} of changes wait for the store{age}.", bytes(total.dirty_bytes));
    }
    said
}

fn printed(table: &Table) -> String {
    let mut out = Vec::new();
    // Memory takes everything.
    let _ = table.print(&mut out, 1);
    String::from_utf8_lossy(&out).into_owned()
}

/// Where blocks came from, and how much is asked.
fn volumes_table(rows: &[&VolumeFigures]) -> Table {
    let mut table = Table::new(&[
        "volume",
        "store",
        "hit ratio",
        "lately",
        "reads/s",
        "writes/s",
        "cache",
        "resident",
        "read",
        "written",
        "waited",
        "handed over",
        "reloaded",
        "staged",
        "flash",
    ]);
    for row in rows {
        let sources = row.sources.unwrap_or_default();
        let share = |of: fn(&Sources) -> f64| match of(&sources) {
            share if share > 0.0 => percent(share),
            _ => "-".to_owned(),
        };
        table.row(vec![
            row.name.clone(),
            row.store.clone(),
            row.sources.map_or_else(|| "-".to_owned(), |sources| percent(sources.hits)),
            curve(&row.curve),
            rate(row.reads_s),
            rate(row.writes_s),
            bytes(row.cache_bytes),
            bytes(row.resident_bytes),
            flow(row.read_bytes_s),
            flow(row.written_bytes_s),
            share(|sources| sources.waited),
            share(|sources| sources.handed_over),
            share(|sources| sources.reloaded),
            share(|sources| sources.staged),
            share(|sources| sources.flash),
        ]);
    }
    table
}

/// Median and 99th percentile of the response times.
fn times_table(rows: &[&VolumeFigures]) -> Table {
    let kinds = ["hit", "miss", "write", "flush"];
    let columns = kinds.iter().flat_map(|kind| [format!("{kind} 50 %"), "99 %".to_owned()]);
    let heading: Vec<_> = ["volume".to_owned()].into_iter().chain(columns).collect();
    let mut table = Table::new(&heading.iter().map(String::as_str).collect::<Vec<_>>());
    for row in rows {
        let times = row.times.iter().flat_map(|times| [0.5, 0.99].map(|q| times.quantile_us(q)));
        let cells = times.map(|us| or_none(us, |us| count(us.round() as u64)));
        table.row([row.name.clone()].into_iter().chain(cells).collect());
    }
    table
}

/// What waits, and what is dirty.
fn waiting_table(rows: &[&VolumeFigures]) -> Table {
    let mut table =
        Table::new(&["volume", "in progress", "to read back", "no memory", "dirty", "oldest"]);
    for row in rows {
        table.row(vec![
            row.name.clone(),
            count(row.in_progress),
            count(row.reloads_waiting),
            count(row.starved),
            bytes(row.dirty_bytes),
            format!("{} s", row.dirty_age_s),
        ]);
    }
    table
}

/// A cell; `-` without a value.
fn or_none<T>(value: Option<T>, cell: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), cell)
}

fn clients_table(clients: &[ClientFigures]) -> Table {
    let mut table =
        Table::new(&["client", "volume", "requests/s", "read", "written", "delayed so far"]);
    for client in clients.iter().take(CLIENTS) {
        table.row(vec![
            client.client.clone(),
            client.volume.clone(),
            rate(client.requests_s),
            flow(client.read_bytes_s),
            flow(client.written_bytes_s),
            count(client.delayed),
        ]);
    }
    table
}

/// What volumes know of what their clients hold.
fn known_table(volumes: &[(&VolumeFigures, &Known)]) -> Table {
    let mut table = Table::new(&[
        "what clients told",
        "evictions",
        "late",
        "read again",
        "held by others",
        "contents taken",
        "refused",
        "believed held",
        "false positives",
    ]);
    for (volume, known) in volumes.iter().take(CLIENTS) {
        let of_told =
            |part: u64| or_none((known.told > 0).then(|| part as f64 / known.told as f64), percent);
        table.row(vec![
            volume.name.clone(),
            count(known.told),
            of_told(known.late),
            of_told(known.stale),
            count(known.held_by_others),
            count(known.taken),
            count(known.refused),
            bytes(known.believed_blocks.saturating_mul(volume.block_bytes)),
            or_none(known.false_positives, percent),
        ]);
    }
    table
}

/// The caches of clients, as these or their trackers describe them.
fn caches_table(caches: &[(&VolumeFigures, &ClientCache)]) -> Table {
    let mut table = Table::new(&[
        "client cache",
        "volume",
        "tells",
        "policy",
        "size",
        "hit ratio",
        "late",
        "precision",
        "recall",
    ]);
    for (volume, cache) in caches.iter().take(CLIENTS) {
        let size = |blocks: u64| bytes(blocks.saturating_mul(volume.block_bytes));
        table.row(vec![
            cache.client.clone(),
            volume.name.clone(),
            if cache.tells_evictions { "yes" } else { "no" }.to_owned(),
            or_none(cache.policy.clone(), |policy| policy),
            or_none(cache.capacity_blocks, size),
            or_none(cache.hit_ratio, percent),
            or_none(cache.late, percent),
            or_none(cache.precision, percent),
            or_none(cache.recall, percent),
        ]);
    }
    table
}

fn rate(rate: f64) -> String {
    if rate > 0.0 && rate < 10.0 { format!("{rate:.1}") } else { count(rate.round() as u64) }
}

fn flow(rate: f64) -> String {
    format!("{}/s", bytes(rate.round() as u64))
}

/// A small curve of shares; a gap where there is none.
fn curve(shares: &VecDeque<Option<f64>>) -> String {
    let skipped = shares.len().saturating_sub(WIDTH);
    let step = |share: &Option<f64>| match share {
        None => ' ',
        Some(share) => STEPS[1 + (share.clamp(0.0, 1.0) * 7.0).round() as usize],
    };
    let curve: String = shares.iter().skip(skipped).map(step).collect();
    format!("{curve:>WIDTH$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_of_one_width() {
        assert_eq!(curve(&VecDeque::new()).chars().count(), WIDTH);
        let long: VecDeque<_> = (0..50).map(|at| Some(f64::from(at) / 49.0)).collect();
        let drawn = curve(&long);
        assert_eq!((drawn.chars().count(), drawn.chars().last()), (WIDTH, Some('\u{2588}')));
        assert!(curve(&[Some(0.0), None].into()).ends_with("\u{2581} "));
    }

    #[test]
    fn the_first_line_says_how_the_server_is() {
        let every = Duration::from_secs(2);
        let order = Order::default();
        let view = View { uri: "unix:x", every, lost: Some("refused"), width: 100, order };
        let all = lines(&Figures::default(), &view);
        assert_eq!(all[1].look, Look::Bad);
        assert_eq!(all[1].text, "lost, trying again; the figures are old: refused");
        assert_eq!(all[2].text, "Nothing was read.");
        // What was said of the stores is not known any more.
        assert!(all.iter().all(|line| !line.text.contains("ealthy")), "{all:?}");
        let view = View { lost: None, ..view };
        let all = lines(&Figures::default(), &view);
        assert_eq!(all[1].text, "Healthy: 0 volumes served");
        let volume = |name: &str, store: &str, trouble: Option<&str>| VolumeFigures {
            name: name.into(),
            store: store.into(),
            trouble: trouble.map(str::to_owned),
            ..VolumeFigures::default()
        };
        let waits = volume("a", "waiting", Some("waiting for its store since 3 s: gone"));
        let mut figures = Figures::default();
        figures.volumes.push(waits);
        let all = lines(&figures, &view);
        assert_eq!(
            (all[1].text.as_str(), all[1].look),
            ("Waiting for stores: 1 of 1 volume", Look::Bad)
        );
        assert_eq!(all[2].text, "  a: waiting for its store since 3 s: gone");
        figures.volumes.push(volume("b", "down", Some("its store is down since 40 s: gone")));
        let all = lines(&figures, &view);
        assert_eq!(all[1].text, "Not healthy: 1 of 2 volumes");
    }

    #[test]
    fn text_fits_the_terminal_and_tables_can_be_moved() {
        let volume = |name: &str, reads_s| VolumeFigures {
            name: name.to_owned(),
            reads_s,
            trouble: Some("the store did not answer a request for the last ten seconds".to_owned()),
            ..VolumeFigures::default()
        };
        let mut figures = Figures::default();
        figures.volumes = vec![volume("one", 1.0), volume("a longer name", 9.0)];
        figures.advice = vec!["many words of advice ".repeat(9)];
        let every = Duration::from_secs(2);
        let view = View { uri: "unix:x", every, lost: None, width: 40, order: Order::Reads };
        let all = lines(&figures, &view);
        let texts =
            all.iter().filter(|line| line.fixed.is_none() && !line.text.starts_with("resp"));
        texts.for_each(|line| assert!(line.text.chars().count() <= 40, "{line:?}"));
        let rows: Vec<_> = all.iter().filter(|line| line.fixed.is_some()).collect();
        // The busiest first; the names stay, with the gap behind them.
        assert!(rows[1].text.starts_with("a longer name  "), "{rows:?}");
        assert!(rows[2].text.starts_with("one  "), "{rows:?}");
        assert_eq!(rows[1].fixed, Some("a longer name  ".len()));
    }
}
