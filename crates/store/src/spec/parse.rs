//! The parser of the syntax that `spec.rs` describes.

use super::units::{bytes, time};
use super::{FileSpec, NbdAddress, ObjectPlace, ObjectService, ObjectSpec, SpecError, StoreSpec};
use crate::delay::Delay;
use crate::fail::{FailRule, FailWith, Failure, RequestKind, Trigger};
use crate::file::FileOptions;

/// Longest text that is looked at, in bytes.
const MAX_TEXT: usize = 64 << 10;

/// Most wrappers and lists around one another.
const MAX_DEPTH: u32 = 16;

const STORES: &str = "a store: file:PATH, mem:, s3://BUCKET/PREFIX, gs://, az://, nbd://HOST/NAME, \
    nbd+unix:///NAME?socket=PATH, concat(...), stripe(...), delay(...):STORE or fail(...):STORE";

/// A part of the text to parse, which knows where it is.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    whole: &'a str,
    start: usize,
    end: usize,
}

type Parsed<T> = Result<T, SpecError>;

/// The error at the beginning of a part.
pub(super) fn fail<T>(at: Text<'_>, expected: &str) -> Parsed<T> {
    let mut text: String = at.whole.chars().take(200).collect();
    if text.len() < at.whole.len() {
        text.push_str("...");
    }
    let at = at.whole[..at.start].chars().count();
    Err(SpecError { text, at, expected: expected.to_owned() })
}

impl<'a> Text<'a> {
    pub(super) fn text(self) -> &'a str {
        &self.whole[self.start..self.end]
    }

    /// A part of this part, by bytes from its start.
    pub(super) fn range(self, start: usize, end: usize) -> Text<'a> {
        Text { start: self.start + start, end: self.start + end, ..self }
    }

    /// The empty part at its end.
    pub(super) fn end(self) -> Text<'a> {
        Text { start: self.end, ..self }
    }

    /// What follows a prefix, if it has it.
    pub(super) fn after(self, prefix: &str) -> Option<Text<'a>> {
        self.text().starts_with(prefix).then(|| Text { start: self.start + prefix.len(), ..self })
    }

    /// What is before and after the first `c`.
    pub(super) fn split(self, c: char) -> (Text<'a>, Option<Text<'a>>) {
        match self.text().find(c) {
            Some(at) => {
                let after = self.range(at + c.len_utf8(), self.text().len());
                (self.range(0, at), Some(after))
            }
            None => (self, None),
        }
    }

    /// The parts between separators that stand outside of parentheses.
    fn list(self, separator: char) -> Vec<Text<'a>> {
        let mut parts = Vec::new();
        let (mut depth, mut start) = (0_u32, 0);
        for (at, c) in self.text().char_indices() {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ if c == separator && depth == 0 => {
                    parts.push(self.range(start, at));
                    start = at + c.len_utf8();
                }
                _ => {}
            }
        }
        parts.push(self.range(start, self.text().len()));
        parts
    }

    /// What stands in the parentheses at its beginning, and what follows them.
    fn parentheses(self) -> Parsed<Option<(Text<'a>, Text<'a>)>> {
        if !self.text().starts_with('(') {
            return Ok(None);
        }
        let mut depth = 0;
        for (at, c) in self.text().char_indices() {
            match c {
                '(' => depth += 1,
                ')' if depth == 1 => {
                    return Ok(Some((self.range(1, at), self.range(at + 1, self.text().len()))));
                }
                ')' => depth -= 1,
                _ => {}
            }
        }
        fail(self.end(), "`)`")
    }
}

/// One option: its name (or the whole of it), and its value if it has one.
type Setting<'a> = (Text<'a>, Option<Text<'a>>);

pub(super) fn parse(text: &str) -> Parsed<StoreSpec> {
    let all = Text { whole: text, start: 0, end: text.len() };
    if text.len() > MAX_TEXT {
        return fail(all, "at most 64 KiB of text");
    }
    if let Some(at) = text.find(|c: char| c.is_control()) {
        return fail(all.range(at, text.len()), "no control characters");
    }
    store(all, 0)
}

fn store(all: Text<'_>, depth: u32) -> Parsed<StoreSpec> {
    if depth == MAX_DEPTH {
        return fail(all, "at most 16 wrappers and lists around one another");
    }
    let name_end = all.text().find(['(', ':']).unwrap_or(all.text().len());
    let name = all.range(0, name_end).text();
    let rest = all.range(name_end, all.text().len());
    let (inside, rest) = match rest.parentheses()? {
        Some((inside, rest)) => (Some(inside), rest),
        None => (None, rest),
    };
    match name {
        "concat" | "stripe" => return parts(name, inside, rest, depth),
        "nbd" | "nbds" | "nbd+unix" | "nbds+unix" => {
            return match inside {
                Some(inside) => fail(inside, "no options for an NBD server"),
                None => NbdAddress::parse(name, rest).map(StoreSpec::Upstream),
            };
        }
        _ => {}
    }
    let options = inside.map_or(Vec::new(), options);
    if let Some(service) = ObjectService::ALL.into_iter().find(|one| one.name() == name) {
        let Some(rest) = rest.after("://") else { return fail(rest, "://") };
        return objects(bucket(service, rest)?, &options);
    }
    let known = ["file", "mem", "object-file", "object-memory", "delay", "fail"];
    if !known.contains(&name) {
        return fail(all, STORES);
    }
    let Some(rest) = rest.after(":") else { return fail(rest, "`:`") };
    match name {
        "file" => file(rest, &options),
        "mem" => memory(rest, &options),
        "object-file" => objects(ObjectPlace::Folder(path(rest)?.into()), &options),
        "object-memory" if rest.text().is_empty() => objects(ObjectPlace::Memory, &options),
        "object-memory" => fail(rest, "nothing after `object-memory:`"),
        "delay" => {
            let delay = delay(inside.unwrap_or(rest), &options)?;
            Ok(StoreSpec::Delay(delay, Box::new(store(rest, depth + 1)?)))
        }
        _ => Ok(StoreSpec::Fail(fail_rule(&options)?, Box::new(store(rest, depth + 1)?))),
    }
}

fn parts(name: &str, inside: Option<Text<'_>>, rest: Text<'_>, depth: u32) -> Parsed<StoreSpec> {
    let Some(inside) = inside else { return fail(rest, "`(` and stores with `;` between them") };
    if !rest.text().is_empty() {
        return fail(rest, "nothing after the `)`");
    }
    let mut list = inside.list(';').into_iter();
    let stripe = match list.next() {
        Some(first) if name == "stripe" => Some(size(first)?),
        Some(first) => {
            let stores = std::iter::once(first).chain(list).map(|part| store(part, depth + 1));
            return stores.collect::<Parsed<_>>().map(StoreSpec::Concat);
        }
        None => None,
    };
    let stores = list.map(|part| store(part, depth + 1)).collect::<Parsed<Vec<_>>>()?;
    match stripe {
        Some(bytes) if !stores.is_empty() => Ok(StoreSpec::Stripe(bytes, stores)),
        _ => fail(inside.end(), "`;` and a store"),
    }
}

fn options(inside: Text<'_>) -> Vec<Setting<'_>> {
    if inside.text().is_empty() {
        return Vec::new();
    }
    inside.list(',').into_iter().map(|option| option.split('=')).collect()
}

fn file(rest: Text<'_>, options: &[Setting<'_>]) -> Parsed<StoreSpec> {
    let path = path(rest)?.into();
    let mut spec = FileSpec { path, direct: false, threads: None, size: None };
    for (name, value) in options {
        match (name.text(), value) {
            ("direct", None) => spec.direct = true,
            ("threads", Some(value)) => {
                let most = FileOptions::THREADS_MAX as u64;
                spec.threads = Some(number(*value, 1, most, "1 to 1024 threads")? as usize);
            }
            ("size", Some(value)) => spec.size = Some(size(*value)?),
            _ => return fail(*name, "direct, threads=N or size=SIZE"),
        }
    }
    Ok(StoreSpec::File(spec))
}

fn memory(rest: Text<'_>, options: &[Setting<'_>]) -> Parsed<StoreSpec> {
    if !rest.text().is_empty() {
        return fail(rest, "nothing after `mem:`; a size is written mem(1GiB):");
    }
    match options {
        [] => Ok(StoreSpec::Memory(None)),
        [(only, None)] => Ok(StoreSpec::Memory(Some(size(*only)?))),
        [(name, _), ..] => fail(*name, "a size, such as 1GiB, and nothing else"),
    }
}

fn bucket(service: ObjectService, rest: Text<'_>) -> Parsed<ObjectPlace> {
    let (bucket, prefix) = rest.split('/');
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if bucket.text().is_empty() || !bucket.text().chars().all(allowed) {
        return fail(bucket, "the name of a bucket: letters, digits, `-`, `.`, `_`");
    }
    let prefix = prefix.unwrap_or(rest.end());
    let trimmed = prefix.text().strip_suffix('/').unwrap_or(prefix.text());
    let bad = |part: &str| part.is_empty() || part == "." || part == "..";
    if !trimmed.is_empty() && trimmed.split('/').any(bad) {
        return fail(prefix, "a prefix without empty parts, `.` and `..`");
    }
    Ok(ObjectPlace::Bucket(service, bucket.text().to_owned(), trimmed.to_owned()))
}

fn objects(place: ObjectPlace, options: &[Setting<'_>]) -> Parsed<StoreSpec> {
    let mut spec = ObjectSpec { place, object_bytes: None, size: None, lease: true };
    for (name, value) in options {
        match (name.text(), value) {
            ("object", Some(value)) => {
                let bytes = size(*value)?;
                if !bytes.is_power_of_two() || !(4096..=1 << 30).contains(&bytes) {
                    return fail(*value, "a power of two from 4KiB to 1GiB");
                }
                spec.object_bytes = Some(bytes);
            }
            ("size", Some(value)) => spec.size = Some(size(*value)?),
            ("lease", Some(value)) => {
                spec.lease = match value.text() {
                    "on" => true,
                    "off" => false,
                    _ => return fail(*value, "on or off"),
                };
            }
            _ => return fail(*name, "object=SIZE, size=SIZE or lease=off"),
        }
    }
    Ok(StoreSpec::Objects(spec))
}

fn delay(inside: Text<'_>, options: &[Setting<'_>]) -> Parsed<Delay> {
    let Some(((first, None), options)) = options.split_first() else {
        return fail(inside, "a time, as in delay(5ms): or delay(2ms..8ms):");
    };
    let (min, max) = match first.text().find("..") {
        Some(at) => {
            let max = first.range(at + 2, first.text().len());
            (first.range(0, at), max)
        }
        None => (*first, *first),
    };
    let mut delay = Delay { min: span(min)?, max: span(max)?, queue: None, seed: 0 };
    if delay.min > delay.max {
        return fail(max, "a time that is not below the first");
    }
    for (name, value) in options {
        match (name.text(), value) {
            ("queue", Some(value)) => {
                let most = u64::from(Delay::QUEUE_MAX);
                delay.queue = Some(number(*value, 1, most, "1 to 65536 requests")? as u32);
            }
            ("seed", Some(value)) => delay.seed = number(*value, 0, u64::MAX, "a number")?,
            _ => return fail(*name, "queue=N or seed=N"),
        }
    }
    Ok(delay)
}

fn fail_rule(options: &[Setting<'_>]) -> Parsed<FailRule> {
    const EXPECTED: &str = "read, write, zero, trim, flush, extents or any; n=N, from=N, every=N, \
        at=SIZE..SIZE or p=P[,seed=N]; error[=eio|enospc|enomem], short[=...] or stall[=TIME]";
    let all = Failure::Error(FailWith::Io);
    let mut rule = FailRule { kind: None, trigger: Trigger::From(1), failure: all };
    let mut drawn_with = None;
    for (name, value) in options {
        let count = |value| number(value, 1, u64::MAX, "a number from 1 on");
        let kind = RequestKind::ALL.iter().find(|(_, text)| *text == name.text());
        match (name.text(), *value) {
            (_, None) if kind.is_some() => rule.kind = kind.map(|(kind, _)| *kind),
            ("any", None) => rule.kind = None,
            ("n", Some(value)) => rule.trigger = Trigger::Nth(count(value)?),
            ("from", Some(value)) => rule.trigger = Trigger::From(count(value)?),
            ("at", Some(value)) => rule.trigger = within(value)?,
            ("every", Some(value)) => rule.trigger = Trigger::Every(count(value)?),
            ("p", Some(value)) => match value.text().parse() {
                Ok(probability) if (0.0..=1.0).contains(&probability) => {
                    rule.trigger = Trigger::Chance { probability, seed: 0 };
                }
                _ => return fail(value, "a probability from 0 to 1"),
            },
            ("seed", Some(value)) => {
                drawn_with = Some((*name, number(value, 0, u64::MAX, "a number")?));
            }
            ("error", value) => rule.failure = Failure::Error(fail_with(value)?),
            ("short", value) => rule.failure = Failure::Short(fail_with(value)?),
            ("stall", None) => rule.failure = Failure::Stall(None),
            ("stall", Some(value)) => rule.failure = Failure::Stall(Some(span(value)?)),
            _ => return fail(*name, EXPECTED),
        }
    }
    match (drawn_with, &mut rule.trigger) {
        (None, _) => Ok(rule),
        (Some((_, told)), Trigger::Chance { seed, .. }) => {
            *seed = told;
            Ok(rule)
        }
        (Some((name, _)), _) => fail(name, "a seed only together with p=P"),
    }
}

/// The bytes of a bad place.
fn within(value: Text<'_>) -> Parsed<Trigger> {
    let Some(at) = value.text().find("..") else { return fail(value, "two sizes, as 1MiB..2MiB") };
    let end = value.range(at + 2, value.text().len());
    let start = value.range(0, at);
    let from = if start.text() == "0" { 0 } else { size(start)? };
    let to = size(end)?;
    if from >= to {
        fail(end, "more than the first size")
    } else {
        Ok(Trigger::Within { from, to })
    }
}

fn fail_with(value: Option<Text<'_>>) -> Parsed<FailWith> {
    let Some(value) = value else { return Ok(FailWith::Io) };
    match FailWith::ALL.iter().find(|(_, name)| *name == value.text()) {
        Some((with, _)) => Ok(*with),
        None => fail(value, "eio, enospc or enomem"),
    }
}

fn path(rest: Text<'_>) -> Parsed<&str> {
    if rest.text().is_empty() { fail(rest, "a path") } else { Ok(rest.text()) }
}

fn size(text: Text<'_>) -> Parsed<u64> {
    let told = bytes(text.text()).filter(|bytes| (1..=i64::MAX as u64).contains(bytes));
    told.map_or_else(|| fail(text, "a size, such as 4096, 64KiB or 2GiB"), Ok)
}

fn span(text: Text<'_>) -> Parsed<std::time::Duration> {
    match time(text.text()) {
        Some(time) if time <= Delay::MAX => Ok(time),
        _ => fail(text, "a time of at most an hour, such as 5ms, 200us or 1s"),
    }
}

fn number(text: Text<'_>, least: u64, most: u64, expected: &str) -> Parsed<u64> {
    match text.text().parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => fail(text, expected),
    }
}
