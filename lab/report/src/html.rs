//! Writes a page as HTML. Every text is escaped, also the JSON that the script reads: names of
//! traces come from outside.

use std::fmt::Write;

use crate::page::{Cell, Chart, Page, Section, Statement, Table};

const SCRIPT: &str = include_str!("../assets/page.js");
// Those of a server's live page.
const STYLE: &str = include_str!("../../../crates/server/assets/page.css");
const UNITS: &str = include_str!("../../../crates/server/assets/units.js");
const UPLOT: &str = include_str!("../../../crates/server/assets/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../../../crates/server/assets/uPlot.min.css");

/// What a page may load: its own script and style, and nothing by the network.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      img-src data:";

impl Page {
    /// The page as one file of HTML.
    pub fn html(&self) -> String {
        let title = escaped(&format!("{} - {}", self.title, self.kind));
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta name=\"generator\" content=\"undercroft {}\">\n<title>{title}</title>\n\
             <link rel=\"icon\" href=\"data:,\">\n<style>{UPLOT_STYLE}{STYLE}</style>\n</head>\n\
             <body>\n",
            env!("CARGO_PKG_VERSION")
        );
        self.header(&mut out);
        out += "<main>\n";
        statements(&mut out, "answer", "", &self.answer);
        let mut charts: Vec<&Chart> = Vec::new();
        for section in &self.sections {
            match section {
                Section::Heading(text) => out += &format!("<h2>{}</h2>\n", escaped(text)),
                Section::Chart(chart) => {
                    chart_place(&mut out, chart, charts.len());
                    charts.push(chart);
                }
                Section::Table(table) => table_of(&mut out, table),
            }
        }
        statements(&mut out, "assumed", "What this rests on", &self.assumptions);
        out += "</main>\n";
        self.footer(&mut out);
        let data = serde_json::to_string(&charts).unwrap_or_else(|_| "[]".into());
        let data = json_in_html(&data);
        let _ = write!(
            out,
            "<script type=\"application/json\" id=\"charts\">{data}</script>\n\
             <script>{UPLOT}</script>\n<script>{UNITS}{SCRIPT}</script>\n</body>\n</html>\n"
        );
        out
    }

    fn header(&self, out: &mut String) {
        let facts: Vec<_> =
            self.facts.iter().map(|fact| format!("<li>{}</li>", escaped(fact))).collect();
        let _ = write!(
            out,
            "<header>\n<p class=\"kind\">Undercroft <span>{}</span></p>\n<h1>{}</h1>\n\
             <ul class=\"facts\">{}</ul>\n</header>\n",
            escaped(self.kind),
            escaped(&self.title),
            facts.concat()
        );
    }

    fn footer(&self, out: &mut String) {
        *out += "<footer>\n";
        if !self.command.is_empty() {
            let command = escaped(&self.command);
            let _ = writeln!(out, "<p>Made by</p>\n<pre><code>{command}</code></pre>");
        }
        let _ = writeln!(out, "<p>undercroft {}</p>\n</footer>", env!("CARGO_PKG_VERSION"));
    }
}

fn statements(out: &mut String, class: &str, heading: &str, all: &[Statement]) {
    if all.is_empty() {
        return;
    }
    if !heading.is_empty() {
        let _ = writeln!(out, "<h2>{}</h2>", escaped(heading));
    }
    let _ = writeln!(out, "<ul class=\"statements {class}\">");
    for statement in all {
        let runs = statement.runs.iter().map(|run| format!("<code>{}</code>", escaped(run)));
        let runs = runs.collect::<String>();
        let _ = writeln!(out, "<li><p>{}</p>{runs}</li>", unbroken(&escaped(&statement.text)));
    }
    *out += "</ul>\n";
}

/// The caption of a figure. `hint` says what a click does, so paper leaves it out.
fn caption(out: &mut String, title: &str, note: &str, hint: &str) {
    let (title, note) = (escaped(title), escaped(note));
    let _ = writeln!(
        out,
        "<figcaption><strong>{title}</strong> <span>{note} <i class=\"hint\">{hint}</i></span>\
         </figcaption>"
    );
}

fn chart_place(out: &mut String, chart: &Chart, number: usize) {
    *out += "<figure class=\"chart\">\n";
    // Of two curves nobody wants to see one.
    let hint = if chart.series.len() > 2 { "Tap or click a name to switch its curve." } else { "" };
    caption(out, &chart.title, &chart.note, hint);
    let _ = write!(out, "<div class=\"plot\" id=\"chart-{number}\"></div>\n</figure>\n");
}

fn table_of(out: &mut String, table: &Table) {
    *out += "<figure class=\"table\">\n";
    caption(out, &table.title, &table.note, "Click a heading to sort.");
    *out += "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>";
    let class = |column: usize| match table.columns.get(column) {
        Some(column) if column.is_number => " class=\"number\"",
        _ => "",
    };
    for (at, column) in table.columns.iter().enumerate() {
        let name = escaped(&column.name);
        let _ = write!(
            out,
            "<th scope=\"col\"{}><button type=\"button\">{name}</button></th>",
            class(at)
        );
    }
    *out += "</tr></thead>\n<tbody>\n";
    for row in &table.rows {
        *out += "<tr>";
        for (at, Cell { text, value, is_best }) in row.iter().enumerate() {
            let value = value.map_or(String::new(), |value| format!(" data-value=\"{value}\""));
            let text = escaped(text);
            let text = if *is_best { format!("<strong>{text}</strong>") } else { text };
            let _ = write!(out, "<td{}{value}>{text}</td>", class(at));
        }
        *out += "</tr>\n";
    }
    *out += "</tbody>\n</table></div>\n</figure>\n";
}

/// A text in HTML, between tags or in a quoted attribute.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            // What no text has, and what turns its direction around.
            '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{202a}'..='\u{202e}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// No line begins with the unit of a number.
fn unbroken(html: &str) -> String {
    ["%", "KiB", "MiB", "GiB", "TiB"].iter().fold(html.to_owned(), |html, unit| {
        html.replace(&format!(" {unit}"), &format!("\u{a0}{unit}"))
    })
}

/// JSON in an element of script: what could end it, or begin a comment, as escapes.
fn json_in_html(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
