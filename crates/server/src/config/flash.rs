//! The device of the level on flash, as a person writes it: `PATH,size=SIZE[,key=value...]`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use undercroft_flash::{Budget, FlashSpec};
use undercroft_text::Bytes;

/// The device of the level on flash.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashConfig {
    /// A file, which is created if it does not exist, or a device that was formatted.
    pub path: PathBuf,
    /// Bytes of it that are used.
    pub bytes: u64,
    /// What goes there.
    pub spec: FlashSpec,
    /// Whether what lies there is used after a restart.
    pub warm: bool,
}

impl FromStr for FlashConfig {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| {
            format!(
                " '{text}': {what}; expected PATH,size=SIZE, then budget=SIZE/day or off, \
                 rule=evidence, access or second-miss, restart=cold or warm"
            )
        };
        let (path, rest) = text.split_once(',').ok_or_else(|| wrong("the size is missing"))?;
        let (size, rest): (Vec<_>, Vec<_>) =
            rest.split(',').partition(|word| word.starts_with("size="));
        let [size] = size[..] else { return Err(wrong("one size is needed")) };
        let (restart, rest): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|word| word.starts_with("restart="));
        let warm = match restart[..] {
            [] | ["restart=cold"] => false,
            ["restart=warm"] => true,
            _ => return Err(wrong("restart is cold or warm")),
        };
        let size = &size["size=".len()..];
        let Ok(Bytes(bytes)) = size.parse() else { return Err(wrong("that is no size")) };
        let words: Vec<_> = std::iter::once(size).chain(rest).collect();
        let mut spec: FlashSpec =
            words.join(",").parse().map_err(|error| wrong(&format!("{error}")))?;
        if spec.sequential_bytes > 0 {
            return Err(wrong("streams are kept out by stream-cutoff of a volume"));
        }
        if path.is_empty() {
            return Err(wrong("the path is missing"));
        }
        if spec.budget == Budget::Unsaid {
            spec.budget = Budget::Bytes(bytes);
        }
        Ok(Self { path: path.into(), bytes, spec, warm })
    }
}

impl fmt::Display for FlashConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = self.spec.to_string();
        let rest = spec.split_once(',').map_or(String::new(), |(_, rest)| format!(",{rest}"));
        let restart = if self.warm { ",restart=warm" } else { "" };
        write!(f, "{},size={}{rest}{restart}", self.path.display(), Bytes(self.bytes))
    }
}
