//! Numbers, sizes and words of a command as people read them, in messages, tables and pages.

/// `1234567` as `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A ratio as `32.83 %`.
pub fn percent(ratio: f64) -> String {
    format!("{:.2} %", 100.0 * ratio)
}

/// A number of bytes as `3.9 MiB`.
pub fn bytes(number: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 100.0 && value.fract() != 0.0);
    format!("{value:.digits$} {}", units[unit])
}

/// A text as one word of a command line that a shell reads.
pub fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+%@".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::{bytes, count, word};

    #[test]
    fn numbers_as_people_read_them() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes(4_096_000), "3.9 MiB");
        assert_eq!(bytes(200 << 30), "200 GiB");
    }

    #[test]
    fn words_of_a_shell() {
        assert_eq!(word("out/a-b.csv"), "out/a-b.csv");
        assert_eq!(word("it's $1"), r"'it'\''s $1'");
        assert_eq!(word(""), "''");
    }
}
