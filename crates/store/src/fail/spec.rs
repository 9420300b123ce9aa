//! The specification of a failing store: `fail(write,p=0.01,seed=7,short=enospc):STORE`.

use std::fmt;
use std::io;
use std::sync::Arc;

use undercroft_text::{Bytes, Time};

use super::{FailRule, FailStore, FailWith, Failure, RequestKind, Trigger};
use crate::kind::{Description, Kind, StoreSpec, Words};
use crate::open::OpenOptions;
use crate::parse::{Parsed, Setting, Text, name_of, write_options};
use crate::store::{Answer, Store};

pub(crate) static KINDS: [Kind; 1] = [Kind {
    name: "fail",
    form: "fail(...):STORE",
    summary: "a store that fails by a rule, for tests",
    parse,
}];

const REQUESTS: [(RequestKind, &str); 6] = [
    (RequestKind::Read, "read"),
    (RequestKind::Write, "write"),
    (RequestKind::Zero, "zero"),
    (RequestKind::Trim, "trim"),
    (RequestKind::Flush, "flush"),
    (RequestKind::Extents, "extents"),
];

const ERRORS: [(FailWith, &str); 3] =
    [(FailWith::Io, "eio"), (FailWith::NoSpace, "enospc"), (FailWith::NoMemory, "enomem")];

/// A failure rule in front of a store.
#[derive(Debug)]
struct FailSpec {
    rule: FailRule,
    inner: StoreSpec,
}

fn parse(words: &Words<'_>) -> Parsed<StoreSpec> {
    let rest = words.place()?;
    let rule = rule(&words.options())?;
    Ok(StoreSpec::new(FailSpec { rule, inner: words.store(rest)? }))
}

fn rule(options: &[Setting<'_>]) -> Parsed<FailRule> {
    const EXPECTED: &str = "read, write, zero, trim, flush, extents or any; n=N, from=N, every=N, \
        at=SIZE..SIZE or p=P[,seed=N]; error[=eio|enospc|enomem], short[=...] or stall[=TIME]";
    let all = Failure::Error(FailWith::Io);
    let mut rule = FailRule { kind: None, trigger: Trigger::From(1), failure: all };
    let mut drawn_with = None;
    for (name, value) in options {
        let count = |value: Text<'_>| value.number(1, u64::MAX, "a number from 1 on");
        let kind = REQUESTS.iter().find(|(_, text)| *text == name.text());
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
                _ => return value.fail("a probability from 0 to 1"),
            },
            ("seed", Some(value)) => {
                drawn_with = Some((*name, value.number(0, u64::MAX, "a number")?));
            }
            ("error", value) => rule.failure = Failure::Error(fail_with(value)?),
            ("short", value) => rule.failure = Failure::Short(fail_with(value)?),
            ("stall", None) => rule.failure = Failure::Stall(None),
            ("stall", Some(value)) => rule.failure = Failure::Stall(Some(value.time()?)),
            _ => return name.fail(EXPECTED),
        }
    }
    match (drawn_with, &mut rule.trigger) {
        (None, _) => Ok(rule),
        (Some((_, told)), Trigger::Chance { seed, .. }) => {
            *seed = told;
            Ok(rule)
        }
        (Some((name, _)), _) => name.fail("a seed only together with p=P"),
    }
}

/// Parses the range of a bad place.
fn within(value: Text<'_>) -> Parsed<Trigger> {
    let (start, Some(end)) = value.split("..") else {
        return value.fail("two sizes, as 1MiB..2MiB");
    };
    let from = if start.text() == "0" { 0 } else { start.size()? };
    let to = end.size()?;
    if from >= to { end.fail("more than the first size") } else { Ok(Trigger::Within { from, to }) }
}

fn fail_with(value: Option<Text<'_>>) -> Parsed<FailWith> {
    let Some(value) = value else { return Ok(FailWith::Io) };
    match ERRORS.iter().find(|(_, name)| *name == value.text()) {
        Some((with, _)) => Ok(*with),
        None => value.fail("eio, enospc or enomem"),
    }
}

impl Description for FailSpec {
    fn open(&self, options: OpenOptions) -> Answer<io::Result<Arc<dyn Store>>> {
        let (inner, rule) = (self.inner.open(options), self.rule);
        Box::pin(async move { Ok(Arc::new(FailStore::new(inner.await?, Some(rule))) as _) })
    }

    fn parts(&self) -> &[StoreSpec] {
        std::slice::from_ref(&self.inner)
    }

    fn is_wrapper(&self) -> bool {
        true
    }
}

impl fmt::Display for FailSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.rule.kind.map(|kind| name_of(&REQUESTS, &kind).to_owned());
        let trigger = match self.rule.trigger {
            Trigger::From(1) => None,
            Trigger::From(n) => Some(format!("from={n}")),
            Trigger::Nth(n) => Some(format!("n={n}")),
            Trigger::Every(n) => Some(format!("every={n}")),
            Trigger::Within { from, to } => Some(format!("at={}..{}", Bytes(from), Bytes(to))),
            Trigger::Chance { probability, seed: 0 } => Some(format!("p={probability}")),
            Trigger::Chance { probability, seed } => Some(format!("p={probability},seed={seed}")),
        };
        let with = |with| name_of(&ERRORS, &with);
        let failure = match self.rule.failure {
            Failure::Error(FailWith::Io) => None,
            Failure::Error(error) => Some(format!("error={}", with(error))),
            Failure::Short(FailWith::Io) => Some("short".to_owned()),
            Failure::Short(error) => Some(format!("short={}", with(error))),
            Failure::Stall(None) => Some("stall".to_owned()),
            Failure::Stall(Some(time)) => Some(format!("stall={}", Time(time))),
        };
        f.write_str("fail")?;
        write_options(f, [kind, trigger, failure])?;
        write!(f, ":{}", self.inner)
    }
}
