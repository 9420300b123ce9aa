//! The files of the live page, as browsers get them. `page.css`, `units.js` and `uPlot.*` are also
//! those of pages of results (`lab/report`).
//!
//! Not here: what the page shows; that it asks the server for while it is open.

/// A file of the live page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    /// Its name below `live/`.
    pub(crate) name: &'static str,
    /// Its media type.
    pub(crate) kind: &'static str,
    /// What is in it.
    pub(crate) text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The page itself, which names the other files.
pub(crate) const PAGE: File =
    File { name: "", kind: HTML, text: include_str!("../../../assets/live.html") };

/// The other files.
pub(crate) const FILES: [File; 7] = [
    File { name: "uPlot.css", kind: STYLE, text: include_str!("../../../assets/uPlot.min.css") },
    File { name: "page.css", kind: STYLE, text: include_str!("../../../assets/page.css") },
    File { name: "live.css", kind: STYLE, text: include_str!("../../../assets/live.css") },
    File {
        name: "uPlot.js",
        kind: SCRIPT,
        text: include_str!("../../../assets/uPlot.iife.min.js"),
    },
    File { name: "units.js", kind: SCRIPT, text: include_str!("../../../assets/units.js") },
    File { name: "charts.js", kind: SCRIPT, text: include_str!("../../../assets/charts.js") },
    File { name: "live.js", kind: SCRIPT, text: include_str!("../../../assets/live.js") },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_each_file_once_and_nothing_elsewhere() {
        for file in FILES {
            let named = format!("\"live/{}\"", file.name);
            assert_eq!(PAGE.text.matches(&named).count(), 1, "{named}");
        }
        assert_eq!(PAGE.text.matches("\"live/").count(), FILES.len());
        for part in ["<script>", "<style>", " style=", "onclick", "://"] {
            assert!(!PAGE.text.contains(part), "{part}: the page's policy forbids it");
        }
        let scripts = FILES.iter().filter(|file| ["charts.js", "live.js"].contains(&file.name));
        for script in scripts {
            // Texts of the server become text, and never markup.
            for part in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!script.text.contains(part), "{}: {part}", script.name);
            }
        }
    }
}
