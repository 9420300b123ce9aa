//! The contract that is checked from outside: every policy of the registry keeps it, and policies
//! that break a rule are found, each with the rule that it breaks and with few calls.

use std::sync::Arc;

use crate::variants::VARIANTS;
use undercroft_policy::contract::{Violation, check};
use undercroft_policy::{Context, Entry, EvictionKind, Evictions, Policy, Spec, policies};
use undercroft_random::testing::seeds;

#[test]
fn every_policy_keeps_the_contract() {
    // OPT must know the future. W-TinyLFU may evict another block than its victim (see `admit`);
    // its reports are checked beside its model.
    let is_checked = |text: &&str| !text.starts_with("opt") && !text.starts_with("w-tinylfu");
    let names = policies().iter().map(|info| info.name);
    for text in names.chain(VARIANTS.iter().copied()).filter(is_checked) {
        let Ok(spec) = Spec::parse(text) else { continue };
        let make = |capacity| spec.build(&Context::new(capacity)).unwrap();
        for seed in seeds(30) {
            check(&make, seed).unwrap_or_else(|e| panic!("{text}, UNDERCROFT_SEED={seed}: {e}"));
        }
    }
}

/// FIFO with one fault.
#[derive(Clone, Debug)]
struct Faulty {
    fault: &'static str,
    capacity: u32,
    queue: Vec<Entry>,
    calls: u32,
}

impl Faulty {
    fn evict(&mut self, out: &mut Evictions) {
        let victim = match self.fault {
            "evicts another one" if self.queue.len() > 1 => self.queue.remove(1),
            _ => self.queue.remove(0),
        };
        match self.fault {
            "is silent" => (),
            "pretends to remember" => out.push(victim, EvictionKind::Remembered),
            _ => out.push(victim, EvictionKind::Evicted),
        }
    }
}

impl Policy for Faulty {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn len(&self) -> u32 {
        self.queue.len() as u32 + u32::from(self.fault == "miscounts" && self.queue.len() == 2)
    }

    fn grow(&mut self, _: u32) {}

    fn contains(&self, entry: Entry) -> bool {
        self.queue.contains(&entry)
    }

    fn touch(&mut self, _: Entry, out: &mut Evictions) {
        if self.fault == "evicts at a hit" {
            self.evict(out);
        }
    }

    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        if self.queue.len() as u32 == self.capacity && self.fault != "overflows" {
            self.evict(out);
        }
        self.calls += 1;
        if self.fault != "refuses" || self.calls % 3 != 0 {
            self.queue.push(entry);
        }
    }

    fn discard(&mut self, entry: Entry, _: &mut Evictions) {
        if self.fault != "keeps" {
            self.queue.retain(|&e| e != entry);
        }
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.capacity = capacity;
        while self.queue.len() as u32 > capacity {
            self.evict(out);
        }
    }

    fn residents(&self) -> Vec<Entry> {
        self.queue.clone()
    }
}

fn first_violation(fault: &'static str) -> Option<Violation> {
    let make = |capacity| -> Box<dyn Policy> {
        Box::new(Faulty { fault, capacity, queue: Vec::new(), calls: 0 })
    };
    (0..100).find_map(|seed| check(&make, seed).err())
}

#[test]
fn each_fault_is_found_and_told_with_few_calls() {
    assert_eq!(first_violation("none"), None);
    for (fault, told) in [
        ("is silent", "no longer resident, and was not reported"),
        ("pretends to remember", "but is not a ghost"),
        ("evicts another one", "its victim was"),
        ("miscounts", "its length is"),
        ("evicts at a hit", "evicted"),
        ("overflows", "more than its capacity"),
        ("refuses", "is not resident after its access"),
        ("keeps", "after it was"),
    ] {
        let violation = first_violation(fault).unwrap_or_else(|| panic!("{fault}: not found"));
        assert!(violation.what.contains(told), "{fault}: {violation}");
        assert!(violation.calls.len() <= 6, "{fault}: {violation}");
    }
}

#[test]
fn random_answers_are_found() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let made = Arc::new(AtomicU32::new(0));
    let make = move |capacity| -> Box<dyn Policy> {
        let fault = match made.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => "none",
            _ => "evicts another one",
        };
        Box::new(Faulty { fault, capacity, queue: Vec::new(), calls: 0 })
    };
    let violation = (0..100).find_map(|seed| check(&make, seed).err()).expect("a violation");
    assert!(violation.what.contains("equal calls"), "{violation}");
}

/// A policy outside of the registry is built, compared and shown by its own name.
#[test]
fn a_spec_of_an_own_policy() {
    let make = |context: &Context| -> Result<Box<dyn Policy>, _> {
        let capacity = context.capacity;
        Ok(Box::new(Faulty { fault: "none", capacity, queue: Vec::new(), calls: 0 }))
    };
    let spec = Spec::own("Mine", Arc::new(make));
    assert_eq!(spec.to_string(), "Mine");
    assert_eq!(spec.build(&Context::new(7)).unwrap().capacity(), 7);
    assert!(spec.build(&Context::new(0)).is_err());
    assert!(spec == spec.clone() && spec != Spec::own("Mine", Arc::new(make)));
    assert!(spec != Spec::parse("lru").unwrap());
}
