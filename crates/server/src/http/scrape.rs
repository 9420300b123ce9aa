//! In which format `/metrics` answers: OpenMetrics to whoever asks for it, and otherwise the plain
//! text format, which every scraper reads and browsers show.

use axum::http::{HeaderMap, header};

/// A format of `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// OpenMetrics of this version.
    OpenMetrics(&'static str),
    /// The text format of Prometheus, 0.0.4.
    Plain,
}

/// The versions of OpenMetrics that can be asked for; what is encoded is valid in both.
const VERSIONS: [&str; 2] = ["1.0.0", "0.0.1"];

impl Format {
    /// The format that a request prefers. A request that takes neither gets plain text.
    pub(crate) fn asked(headers: &HeaderMap) -> Format {
        let fields = headers.get_all(header::ACCEPT).into_iter();
        let ranges = fields.filter_map(|field| field.to_str().ok()).flat_map(|all| all.split(','));
        let (mut best, mut plain) = ((0, Format::Plain), 0);
        for range in ranges {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut version, mut weight) = (VERSIONS[0], 1000);
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                match name.trim().to_ascii_lowercase().as_str() {
                    "q" => weight = thousandths(value.trim()),
                    "version" => version = value.trim().trim_matches('"'),
                    _ => {}
                }
            }
            let version = VERSIONS.iter().find(|known| **known == version);
            match (media.as_str(), version) {
                ("application/openmetrics-text", Some(version)) if weight > best.0 => {
                    best = (weight, Format::OpenMetrics(version));
                }
                ("text/plain" | "text/*", _) => plain = weight.max(plain),
                _ => {}
            }
        }
        if best.0 >= plain { best.1 } else { Format::Plain }
    }

    /// The media type of the answer.
    pub(crate) fn media(self) -> String {
        match self {
            Format::OpenMetrics(version) => {
                format!("application/openmetrics-text; version={version}; charset=utf-8")
            }
            Format::Plain => "text/plain; version=0.0.4; charset=utf-8".to_owned(),
        }
    }

    /// The metrics in this format, from OpenMetrics.
    pub(crate) fn written(self, metrics: String) -> String {
        match self {
            Format::OpenMetrics(_) => metrics,
            Format::Plain => plain(&metrics),
        }
    }
}

/// A weight in thousandths; 0 if it is none.
fn thousandths(weight: &str) -> u32 {
    let weight = weight.parse().ok().filter(|weight| (0.0..=1.0).contains(weight));
    weight.map_or(0, |weight: f64| (weight * 1e3).round() as u32)
}

/// The plain text format from OpenMetrics. There, the comments of a family have the name of its
/// samples, there is no unit and no end, and no type for information.
fn plain(metrics: &str) -> String {
    let mut out = String::with_capacity(metrics.len());
    let mut lines = metrics.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(comment) = line.strip_prefix("# ") else {
            out.extend([line, "\n"]);
            continue;
        };
        // The type follows the help.
        let kind = lines.peek().and_then(|next| next.strip_prefix("# TYPE "));
        let (Some(help), Some(kind)) = (comment.strip_prefix("HELP "), kind) else { continue };
        let (Some((name, help)), Some((_, kind))) = (help.split_once(' '), kind.split_once(' '))
        else {
            continue;
        };
        let (suffix, kind) = match kind {
            "counter" => ("_total", kind),
            "info" => ("_info", "gauge"),
            _ => ("", kind),
        };
        out += &format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(accept: &[&str]) -> Format {
        let mut headers = HeaderMap::new();
        for field in accept {
            headers.append(header::ACCEPT, field.parse().unwrap());
        }
        Format::asked(&headers)
    }

    #[test]
    fn a_scraper_gets_what_it_asks_for() {
        let (new, old) = (Format::OpenMetrics("1.0.0"), Format::OpenMetrics("0.0.1"));
        for (accept, wanted) in [
            // Prometheus 2 and 3, a browser, curl.
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,\
                 application/openmetrics-text;version=0.0.1;q=0.4,\
                 text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                new,
            ),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                 encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;\
                 escaping=allow-utf-8;q=0.5,text/plain;version=1.0.0;q=0.3,*/*;q=0.1",
                new,
            ),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Format::Plain),
            ("*/*", Format::Plain),
            ("text/plain;version=0.0.4;q=0.9, application/openmetrics-text;q=0.8", Format::Plain),
            ("text/plain; version=0.0.4", Format::Plain),
            ("Application/OpenMetrics-Text; Version=\"0.0.1\"", old),
            ("application/openmetrics-text", new),
            ("application/openmetrics-text;version=9.0.0,text/plain;q=0.1", Format::Plain),
            ("application/openmetrics-text;q=0, text/plain;q=0.1", Format::Plain),
            ("application/openmetrics-text;q=nan", Format::Plain),
            ("application/json", Format::Plain),
            (";;,=,q=1;q", Format::Plain),
        ] {
            assert_eq!(asked(&[accept]), wanted, "{accept}");
        }
        assert_eq!(asked(&[]), Format::Plain);
        assert_eq!(asked(&["text/plain;q=0.5", "application/openmetrics-text"]), new);
    }

    #[test]
    fn plain_text_has_the_names_of_the_samples() {
        let metrics = "# HELP a_blocks Blocks.\n# TYPE a_blocks counter\n# UNIT a_blocks blocks\n\
                       a_blocks_total{volume=\"# x\"} 3\n# HELP b B.\n# TYPE b info\n\
                       b_info{v=\"1\"} 1\n# HELP c C.\n# TYPE c gauge\nc 4\n# EOF\n";
        let wanted = "# HELP a_blocks_total Blocks.\n# TYPE a_blocks_total counter\n\
                      a_blocks_total{volume=\"# x\"} 3\n# HELP b_info B.\n# TYPE b_info gauge\n\
                      b_info{v=\"1\"} 1\n# HELP c C.\n# TYPE c gauge\nc 4\n";
        assert_eq!(Format::Plain.written(metrics.to_owned()), wanted);
        assert_eq!(Format::OpenMetrics("1.0.0").written(metrics.to_owned()), metrics);
    }
}
