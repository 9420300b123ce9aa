//! A history, taken apart into sectors; and the promises that are of sessions, not of sectors.

use std::collections::BTreeMap;

use crate::checker::register::Register;
use crate::history::{Action, End, Event, Operation, State, Step};

/// What happens to one sector at one step.
#[derive(Clone, Copy, Debug)]
pub enum Happening<'a> {
    Call(u32, &'a Operation),
    End(u32, &'a Operation),
    Event(&'a Event),
}

/// All that was promised and not kept. For each volume: whether its store may do late what it
/// refused.
pub fn check(history: &State, are_late: &[bool]) -> Vec<String> {
    let mut faults = Vec::new();
    for (volume, is_late) in are_late.iter().enumerate() {
        check_volume(history, (volume, *is_late), &mut faults);
    }
    check_told(history, &mut faults);
    check_access(history, &mut faults);
    faults
}

/// Whoever has no right to a volume any more is not served.
fn check_access(history: &State, faults: &mut Vec<String>) {
    for &(volume, from, to) in &history.shut {
        let is_served = |o: &Operation| {
            let end = o.end.filter(|(step, end)| *step <= to && *end == End::Done);
            o.place.volume == volume && o.call > from && end.is_some()
        };
        let served = history.operations.iter().find(|(_, o)| is_served(o));
        faults.extend(served.map(|(number, o)| {
            format!("#{number} (s{}) was served, and had no right to v{volume}", o.session)
        }));
    }
}

fn check_volume(history: &State, (volume, is_late): (usize, bool), faults: &mut Vec<String>) {
    let mut steps: Vec<(Step, Happening<'_>)> = Vec::new();
    let mut flushes = Vec::new();
    let of_volume = history.operations.iter().filter(|(_, o)| o.place.volume == volume);
    for (&number, operation) in of_volume {
        match (&operation.action, operation.end) {
            (Action::Flush, Some((step, End::Done))) => flushes.push((operation.call, step)),
            (Action::Flush | Action::Other(_), _) => {}
            // What it found is not known.
            (Action::Read(_), None | Some((_, End::Failed | End::Unknown))) => {}
            (Action::Read(_) | Action::Write | Action::Zero | Action::Trim, end) => {
                steps.push((operation.call, Happening::Call(number, operation)));
                if let Some((step, _)) = end {
                    steps.push((step, Happening::End(number, operation)));
                }
            }
        }
    }
    for (step, of, event) in &history.events {
        if *of == volume {
            steps.push((*step, Happening::Event(event)));
            if *event == Event::Closed {
                flushes.push((*step, *step));
            }
        }
    }
    steps.sort_by_key(|(step, _)| *step);
    let mut sectors: BTreeMap<u64, Vec<(Step, Happening<'_>)>> = BTreeMap::new();
    for &(step, happening) in &steps {
        if let Happening::Call(_, o) | Happening::End(_, o) = happening {
            for sector in o.sees() {
                sectors.entry(sector).or_default().push((step, happening));
            }
        }
    }
    let events: Vec<_> =
        steps.iter().filter(|(_, h)| matches!(h, Happening::Event(_))).copied().collect();
    // Neighbours mostly fail together: one of them says it.
    let mut last = None;
    for (sector, mut happenings) in sectors {
        happenings.extend(&events);
        happenings.sort_by_key(|(step, _)| *step);
        let mut flushes = flushes.clone();
        // What is not among the losses of an end is durable.
        flushes.extend(events.iter().filter_map(|(step, happening)| match happening {
            Happening::Event(Event::LostWithin(lost)) => {
                let is_lost = lost.iter().any(|range| range.contains(&sector));
                (!is_lost).then_some((*step, *step))
            }
            _ => None,
        }));
        if let Err(fault) = Register::new(sector, &happenings, &flushes, is_late).check() {
            if last.is_none_or(|last| last + 1 != sector) {
                faults.push(format!("v{volume} sector {sector}: {fault}"));
            }
            last = Some(sector);
        }
    }
}

/// Each session that was open when something was lost below hears of it by its next FLUSH or FUA.
fn check_told(history: &State, faults: &mut Vec<String>) {
    for &(session, since) in &history.owed {
        let asks = history.operations.iter().filter(|(_, o)| {
            let makes_durable = o.durable || matches!(o.action, Action::Flush);
            o.session == session && makes_durable
        });
        let answers = asks.filter_map(|(number, o)| Some((o.end?, number, o)));
        // A TRIM may be nothing to do, and then nobody is asked.
        let is_empty = |(end, _, o): &((Step, End), &u32, &Operation)| {
            o.action == Action::Trim && end.1 == End::Done
        };
        let after = |((end, _), ..): &((Step, End), &u32, &Operation)| *end > since;
        let answers = answers.filter(|answer| after(answer) && !is_empty(answer));
        let mut answers: Vec<_> = answers.collect();
        answers.sort_by_key(|((step, _), ..)| *step);
        // The first that was asked for since and answered; of those that were under way together,
        // any may tell.
        let first = answers.iter().find(|(_, _, o)| o.call > since);
        let Some(((step, End::Done), number, operation)) = first else { continue };
        let told = answers.iter().any(|((_, end), _, o)| *end != End::Done && o.call < *step);
        if !told {
            let what = &operation.action;
            faults.push(format!(
                "s{session} was not told of a loss below: #{number} {what:?} succeeded"
            ));
        }
    }
}
