//! A policy written in Python, behind the engine's interface (`undercroft.Policy` describes the
//! class that it must be).
//!
//! In a simulation the adapter keeps what is resident, from what the class reports: a report that
//! cannot be true ends the simulation. When the contract is checked, the class is asked itself.
//!
//! The first exception ends the work, but not at once (`watch.rs`). Until then the class is not
//! asked any more, and the adapter evicts what it meets, so that the engine gets nothing that
//! cannot be.

use std::fmt;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use undercroft_policy::contract::check;
use undercroft_policy::{Context, Entry, EvictionKind, Evictions, Policy, Spec};

use crate::errors::{ContractError, wrong};
use crate::watch::{Failure, Watch};

/// A policy of a class, for simulations. Exceptions go to `failure`.
pub(crate) fn own(class: &Bound<'_, PyType>, failure: &Failure) -> PyResult<Spec> {
    let name = class.name()?.to_string();
    let (class, failure) = (class.clone().unbind(), failure.clone());
    let make = move |context: &Context| -> Result<Box<dyn Policy>, _> {
        Ok(Box::new(PythonPolicy::new(&class, context.capacity, &failure, Mode::Trusting)))
    };
    Ok(Spec::own(&name, Arc::new(make)))
}

/// Checks a class against the contract of policies, with `seeds` random sequences of calls.
#[pyfunction]
pub(crate) fn check_policy(
    py: Python<'_>,
    class: &Bound<'_, PyType>,
    first_seed: u64,
    seeds: u64,
) -> PyResult<()> {
    let watch = Watch::new(None);
    let of_class = class.clone().unbind();
    let make = |capacity| -> Box<dyn Policy> {
        Box::new(PythonPolicy::new(&of_class, capacity, watch.failure(), Mode::Asking))
    };
    for seed in first_seed..first_seed.saturating_add(seeds) {
        let checked = check(&make, seed);
        if let Some(error) = watch.failure().take() {
            return Err(error);
        }
        if let Err(violation) = checked {
            return Err(ContractError::new_err(format!("{}: {violation}", class.name()?)));
        }
        py.check_signals()?;
    }
    Ok(())
}

/// Who says what is resident.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// The adapter, from the reports of the class.
    Trusting,
    /// The class.
    Asking,
}

struct PythonPolicy {
    object: Py<PyAny>,
    name: String,
    failure: Failure,
    has_failed: std::sync::atomic::AtomicBool,
    mode: Mode,
    capacity: u32,
    /// By block, and unused when the class is asked.
    states: Vec<State>,
    count: u32,
    /// Where the search for a block to evict goes on after a failure.
    hand: usize,
}

/// What a block is, by the reports of the class.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Unknown,
    Resident,
    Ghost,
}

impl fmt::Debug for PythonPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(&self.name).finish_non_exhaustive()
    }
}

/// A clone is a deep copy.
impl Clone for PythonPolicy {
    fn clone(&self) -> Self {
        let copy = Python::attach(|py| -> PyResult<Py<PyAny>> {
            Ok(py.import("copy")?.call_method1("deepcopy", (&self.object,))?.unbind())
        });
        let mut clone = Python::attach(|py| Self {
            object: self.object.clone_ref(py),
            name: self.name.clone(),
            failure: self.failure.clone(),
            has_failed: self.has_failed().into(),
            mode: self.mode,
            capacity: self.capacity,
            states: self.states.clone(),
            count: self.count,
            hand: self.hand,
        });
        match copy {
            Ok(object) => clone.object = object,
            Err(error) => clone.fail(error),
        }
        clone
    }
}

impl PythonPolicy {
    fn new(class: &Py<PyType>, capacity: u32, failure: &Failure, mode: Mode) -> Self {
        Python::attach(|py| {
            let class = class.bind(py);
            let name = class.name().map_or_else(|_| "policy".into(), |name| name.to_string());
            let made = class.call1((capacity,));
            let policy = |object: Py<PyAny>| Self {
                object,
                name,
                failure: failure.clone(),
                has_failed: false.into(),
                mode,
                capacity,
                states: Vec::new(),
                count: 0,
                hand: 0,
            };
            match made {
                Ok(object) => policy(object.unbind()),
                Err(error) => {
                    let policy = policy(py.None());
                    policy.fail(error);
                    policy
                }
            }
        })
    }

    fn has_failed(&self) -> bool {
        self.has_failed.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn fail(&self, error: PyErr) {
        self.has_failed.store(true, std::sync::atomic::Ordering::Relaxed);
        self.failure.set(error);
    }

    /// What `ask` finds out from the object; after a failure the default.
    fn ask<T: Default>(&self, ask: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> T {
        if self.has_failed() {
            return T::default();
        }
        Python::attach(|py| ask(self.object.bind(py))).unwrap_or_else(|error| {
            self.fail(error);
            T::default()
        })
    }

    /// Calls a method that may evict; its result is the report. Nothing is reported if it fails.
    fn call(
        &mut self,
        method: impl FnOnce(Python<'_>) -> &Bound<'_, PyString>,
        argument: u32,
        out: &mut Evictions,
    ) {
        if self.has_failed() {
            return;
        }
        let name = self.name.clone();
        let called = Python::attach(|py| {
            let method = method(py);
            let result = self.object.bind(py).call_method1(method, (argument,))?;
            let say = |why: String| wrong(&format!("{name}.{method}({argument})"), why);
            let report = evictions(&result, say)?;
            if self.mode == Mode::Trusting {
                self.believe(&report).map_err(say)?;
            }
            Ok(report)
        });
        match called {
            Ok(report) => report.into_iter().for_each(|(entry, kind)| out.push(entry, kind)),
            Err(error) => self.fail(error),
        }
    }

    /// Follows a report.
    fn believe(&mut self, report: &[(Entry, EvictionKind)]) -> Result<(), String> {
        for &(entry, kind) in report {
            let state = self.states.get(entry as usize).copied().unwrap_or(State::Unknown);
            let (before, after) = match kind {
                EvictionKind::Evicted => (State::Resident, State::Unknown),
                EvictionKind::Remembered => (State::Resident, State::Ghost),
                EvictionKind::Forgotten => (State::Ghost, State::Unknown),
            };
            if state != before {
                let (verb, what) = match kind {
                    EvictionKind::Forgotten => ("forgot", "a ghost"),
                    _ => ("evicted", "resident"),
                };
                return Err(format!("{verb} {entry}, which is not {what}"));
            }
            self.set(entry, after);
        }
        Ok(())
    }

    fn set(&mut self, entry: Entry, state: State) {
        let before = std::mem::replace(&mut self.states[entry as usize], state);
        self.count -= u32::from(before == State::Resident);
        self.count += u32::from(state == State::Resident);
    }

    /// Notes that an entry is resident now. If the class made no room for it, that ends the work.
    fn enter(&mut self, entry: Entry, out: &mut Evictions) {
        if self.mode == Mode::Asking {
            return;
        }
        self.set(entry, State::Resident);
        if self.count > self.capacity {
            if !self.has_failed() {
                let why = format!("{} blocks in a cache of {}", self.count, self.capacity);
                self.fail(wrong(&format!("{}, block {entry}", self.name), why));
            }
            self.evict_other(entry, out);
        }
    }

    /// After a failure: evicts some block other than `entry`.
    fn evict_other(&mut self, entry: Entry, out: &mut Evictions) {
        loop {
            self.hand = (self.hand + 1) % self.states.len();
            let victim = self.hand as Entry;
            if victim != entry && self.states[self.hand] == State::Resident {
                self.set(victim, State::Unknown);
                return out.push(victim, EvictionKind::Evicted);
            }
        }
    }

    /// Notes that an entry is not resident now, and asks whether it is a ghost.
    fn leave(&mut self, entry: Entry) {
        if self.mode == Mode::Trusting {
            let is_ghost = self.asked_to_remember(entry);
            self.set(entry, if is_ghost { State::Ghost } else { State::Unknown });
        }
    }

    fn asked_to_remember(&self, entry: Entry) -> bool {
        self.ask(|object| object.call_method1("remembers", (entry,))?.extract())
    }
}

/// A report: nothing, one item, or several.
fn evictions(
    result: &Bound<'_, PyAny>,
    say: impl Fn(String) -> PyErr + Copy,
) -> PyResult<Vec<(Entry, EvictionKind)>> {
    if result.is_none() {
        return Ok(Vec::new());
    }
    if let Ok(entry) = result.extract::<Entry>() {
        return Ok(vec![(entry, EvictionKind::Evicted)]);
    }
    let items = result.try_iter().map_err(|_| say(expected(result)))?;
    items.map(|item| eviction(&item?).map_err(say)).collect()
}

/// One item of a report: a block, or a block and what happened to it.
fn eviction(item: &Bound<'_, PyAny>) -> Result<(Entry, EvictionKind), String> {
    if let Ok(entry) = item.extract::<Entry>() {
        return Ok((entry, EvictionKind::Evicted));
    }
    let parts: Result<(Entry, String), _> = item.extract();
    match parts {
        Ok((entry, kind)) => match kind.as_str() {
            "evicted" => Ok((entry, EvictionKind::Evicted)),
            "remembered" => Ok((entry, EvictionKind::Remembered)),
            "forgotten" => Ok((entry, EvictionKind::Forgotten)),
            _ => Err(expected(item)),
        },
        Err(_) => Err(expected(item)),
    }
}

fn expected(found: &Bound<'_, PyAny>) -> String {
    let found = found.repr().map_or_else(|_| "another object".into(), |text| text.to_string());
    format!(
        "returned {found}: expected None, a block, or a list of blocks and of pairs (block, kind), \
         where kind is 'evicted', 'remembered' or 'forgotten'"
    )
}

impl Policy for PythonPolicy {
    fn capacity(&self) -> u32 {
        match self.mode {
            Mode::Trusting => self.capacity,
            Mode::Asking => self.ask(|object| object.getattr("capacity")?.extract()),
        }
    }

    fn len(&self) -> u32 {
        match self.mode {
            Mode::Trusting => self.count,
            Mode::Asking => self.ask(|object| Ok(object.len()? as u32)),
        }
    }

    fn grow(&mut self, entries: u32) {
        self.states.resize(self.states.len().max(entries as usize), State::Unknown);
    }

    fn contains(&self, entry: Entry) -> bool {
        match self.mode {
            Mode::Trusting => self.states[entry as usize] == State::Resident,
            Mode::Asking => self.ask(|object| object.contains(entry)),
        }
    }

    fn touch(&mut self, entry: Entry, out: &mut Evictions) {
        self.call(|py| intern!(py, "touch"), entry, out);
    }

    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        self.call(|py| intern!(py, "admit"), entry, out);
        self.enter(entry, out);
    }

    fn discard(&mut self, entry: Entry, out: &mut Evictions) {
        self.call(|py| intern!(py, "discard"), entry, out);
        if self.mode == Mode::Trusting {
            self.set(entry, State::Unknown);
        }
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.capacity = capacity;
        self.call(|py| intern!(py, "resize"), capacity, out);
        while self.mode == Mode::Trusting && self.count > capacity {
            self.evict_other(Entry::MAX, out);
        }
    }

    fn residents(&self) -> Vec<Entry> {
        self.ask(|object| {
            let listed = object.call_method0("residents")?;
            listed.try_iter()?.map(|item| item?.extract()).collect()
        })
    }

    fn victim(&self) -> Option<Entry> {
        self.ask(|object| object.call_method0("victim")?.extract())
    }

    fn remembers(&self, entry: Entry) -> bool {
        match self.mode {
            Mode::Trusting => self.states[entry as usize] == State::Ghost,
            Mode::Asking => self.asked_to_remember(entry),
        }
    }

    fn take(&mut self, entry: Entry, out: &mut Evictions) {
        self.call(|py| intern!(py, "take"), entry, out);
        self.leave(entry);
    }

    fn note(&mut self, entry: Entry, out: &mut Evictions) {
        self.call(|py| intern!(py, "note"), entry, out);
        self.leave(entry);
    }

    fn place(&mut self, entry: Entry, out: &mut Evictions) {
        self.call(|py| intern!(py, "place"), entry, out);
        self.enter(entry, out);
    }

    fn validate(&self) -> Result<(), String> {
        if self.has_failed() {
            return Err("an exception".into());
        }
        let checked =
            Python::attach(|py| self.object.bind(py).call_method0("validate").map(|_| ()));
        checked.map_err(|error| {
            // What an `assert` of the class says is a finding, anything else a fault of its own.
            let is_finding = Python::attach(|py| {
                error.is_instance_of::<pyo3::exceptions::PyAssertionError>(py)
                    || error.is_instance_of::<PyValueError>(py)
            });
            if !is_finding {
                self.fail(error);
                return "an exception".into();
            }
            format!("validate: {error}")
        })
    }
}
