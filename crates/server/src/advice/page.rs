//! The JSON of `/advice`: for each volume sentences, and the figures that they are made of.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use undercroft_adviser::{
    Advice, Assumption, CellFigure, Figures, Finding, FlashFigure, GROUPS, Measured, State, Words,
    advise, between,
};

use crate::advice::{Findings, Stage};
use crate::config::VolumeConfig;
use crate::exports::ExportEntry;
use crate::process::pending_volume::PendingVolume;
use crate::volume::Volume;

/// The object of `/advice` for these volumes: `{"volumes": {NAME: {...}}, "total": {...}}`.
pub(crate) fn json(exports: &[Arc<ExportEntry>], pending: &[Arc<PendingVolume>]) -> Value {
    let mut volumes = Map::new();
    let mut all = Vec::new();
    for entry in exports {
        let config = entry.volume().now();
        let (advice, known) = of_volume(entry.volume(), &config);
        volumes.insert(config.name.clone(), advice);
        all.extend(known.map(|known| (config.name.clone(), known.figures, known.measured)));
    }
    for pending in pending {
        volumes.insert(pending.config().name.clone(), off(&pending.why()));
    }
    let all: Vec<(&str, &Figures, Measured)> =
        all.iter().map(|(name, figures, measured)| (name.as_str(), figures, *measured)).collect();
    let total: Vec<_> = between(&all).iter().map(said).collect();
    json!({ "volumes": volumes, "total": { "sentences": total } })
}

/// What is said of a finding that rests on no figures of a volume.
fn said(finding: &Finding) -> String {
    Words::of_server(&Measured::default()).finding(finding)
}

/// No advice, and why.
fn off(why: &str) -> Value {
    let said = said(&Finding::Off { why: why.to_owned() });
    json!({ "state": "off", "why": why, "sentences": [said], "assumptions": [] })
}

fn learning(why: &str) -> Value {
    let said = said(&Finding::NotYet { why: why.to_owned() });
    json!({ "state": "learning", "why": why, "sentences": [said], "assumptions": [] })
}

/// What is advised for a volume, and the figures if they are ready.
fn of_volume(volume: &Volume, config: &VolumeConfig) -> (Value, Option<Findings>) {
    let inner = volume.advice.lock();
    let known = match &inner.stage {
        Stage::Disabled(_, why) => return (off(why), None),
        Stage::New if !volume.advice.tap.was_used() => {
            return (learning("no client has asked for anything so far"), None);
        }
        Stage::New | Stage::Running(_, None) => {
            return (learning("the simulated caches are being made"), None);
        }
        Stage::Running(_, Some(known)) | Stage::Idle(_, _, known) => known.clone(),
    };
    drop(inner);
    let Findings { figures, measured, read_hit_ratio } = &known;
    let words = Words::of_server(measured);
    let Advice { findings, mut assumptions } = advise(figures);
    if figures.state != State::Learning {
        assumptions.extend(passed_over(config));
    }
    let sentences: Vec<_> = findings.iter().map(|one| words.finding(one)).collect();
    let changes: Vec<_> = findings.iter().filter_map(|one| words.change(one)).collect();
    let assumptions: Vec<_> = assumptions.iter().map(|one| words.assumption(one)).collect();
    let cells: Vec<_> = figures.cells.iter().map(|one| cell(one, measured)).collect();
    let flash: Vec<_> = figures.flash.iter().map(|one| flash(one, measured)).collect();
    let mut advice = json!({
        "state": figures.state,
        "sentences": sentences,
        "changes": changes,
        "assumptions": assumptions,
        "cells": cells,
        "flash": flash,
        "sample": {
            "rate": figures.rate,
            "references": figures.references,
            "reads": figures.reads,
            "skipped_share": figures.skipped_share,
            "bytes": figures.bytes,
            "groups": GROUPS,
        },
    });
    if let Some(why) = &figures.why {
        advice["why"] = json!(why);
    }
    if let Some(today) = figures.today() {
        advice["today"] = json!({
            "policy": today.policy,
            "placement": config.placement.to_string(),
            "cache_bytes": bytes(today.blocks, measured),
            "read_hit_ratio": read_hit_ratio,
            "estimated_read_hit_ratio": today.hits.value,
            "error": today.hits.error,
            "reads_per_s": measured.reads_per_s,
            "miss_costs_s": measured.miss_costs_s,
        });
    }
    (advice, Some(known))
}

/// What the volume does that the simulated caches do not.
pub(super) fn passed_over(config: &VolumeConfig) -> impl Iterator<Item = Assumption> {
    [
        (config.stream_cutoff_bytes > 0, Assumption::StreamsPass),
        (config.read_ahead_bytes > 0, Assumption::ReadsAhead),
        (config.estimate, Assumption::GuessesEvictions),
    ]
    .into_iter()
    .filter_map(|(applies, assumption)| applies.then_some(assumption))
}

fn cell(cell: &CellFigure, measured: &Measured) -> Value {
    json!({
        "policy": cell.policy,
        "placement": cell.placement,
        "cache_bytes": bytes(cell.blocks, measured),
        "read_hit_ratio": cell.hits.value,
        "error": cell.hits.error,
        "gain": cell.gain.value,
        "gain_error": cell.gain.error,
        "disk_reads_per_s": (cell.disk.value * measured.reads_per_s).max(0.0),
        "is_today": cell.is_today,
        "is_filled": cell.is_full,
    })
}

fn flash(flash: &FlashFigure, measured: &Measured) -> Value {
    json!({
        "flash_bytes": bytes(flash.blocks, measured),
        "gain": flash.gain.value,
        "gain_error": flash.gain.error,
        "written_per_hit": flash.written_per_hit,
        "is_filled": flash.is_filled,
    })
}

fn bytes(blocks: u32, measured: &Measured) -> u64 {
    u64::from(blocks) * u64::from(measured.block_bytes)
}
