//! Lists of words and of `key=value`, with separators that may stand in parentheses or quotes.

/// The characters of a text outside of double quotes, with their places. A quote that is not closed
/// is a character like others.
pub fn outside_quotes(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut quoted = false;
    text.char_indices().filter(move |&(at, c)| {
        if c != '"' {
            return !quoted;
        }
        let opens = !quoted && text[at + 1..].contains('"');
        let closes = std::mem::replace(&mut quoted, opens);
        !opens && !closes
    })
}

/// The text within the double quotes around a text; the text itself if there are none.
pub fn unquoted(text: &str) -> &str {
    let inside = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inside.filter(|inside| !inside.contains('"')).unwrap_or(text)
}

/// The pieces of a text between separators that are outside of all parentheses and quotes. An empty
/// text is one empty piece.
pub fn list(text: &str, separator: char) -> Vec<&str> {
    let (mut pieces, mut start, mut depth) = (Vec::new(), 0, 0_u32);
    for (at, c) in outside_quotes(text) {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if c == separator && depth == 0 => {
                pieces.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    pieces.push(&text[start..]);
    pieces
}

/// The words between the commas of a text, without the blanks around them.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}

/// Key and value of `key=value`, without the blanks around them; no value where there is no `=`.
pub fn pair(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        Some((key, value)) => (key.trim(), Some(value.trim())),
        None => (word, None),
    }
}

#[cfg(test)]
mod tests {
    use super::{list, pair, unquoted, words};

    #[test]
    fn separators_in_parentheses_separate_nothing() {
        assert_eq!(list("a,b(c,(d,e)),,f", ','), ["a", "b(c,(d,e))", "", "f"]);
        assert_eq!(list("a;b", ','), ["a;b"]);
        assert_eq!(list("", ','), [""]);
        // What is closed without being opened counts as nothing.
        assert_eq!(list("a),b", ','), ["a)", "b"]);
    }

    #[test]
    fn separators_in_quotes_separate_nothing() {
        assert_eq!(list(r#"a,b="c,d(",e"#, ','), ["a", r#"b="c,d(""#, "e"]);
        // A quote without an end counts as nothing.
        assert_eq!(list(r#"a",b"#, ','), [r#"a""#, "b"]);
        let texts = [r#""a,b""#, r#"""#, r#""""#, r#""a"b""#, "a"];
        assert_eq!(texts.map(unquoted), ["a,b", r#"""#, "", r#""a"b""#, "a"]);
    }

    #[test]
    fn blanks_around_words_do_not_count() {
        assert!(words(" lru , k = 2").eq(["lru", "k = 2"]));
        assert_eq!(pair("k = 2"), ("k", Some("2")));
        assert_eq!(pair("k="), ("k", Some("")));
        assert_eq!(pair("direct"), ("direct", None));
        assert_eq!(pair("a=b=c"), ("a", Some("b=c")));
    }
}
