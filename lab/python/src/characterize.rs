//! What a trace asks for, and miss ratio curves.

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use serde::Serialize;
use undercroft_policy::Spec;
use undercroft_sim::characterize::{Characterization, Config, TraceFacts, level, watch};
use undercroft_sim::curve::{check_rate, curve};
use undercroft_sim::{Error, EvictionsFrom, LevelSpec, Size, load};
use undercroft_trace::BlockOptions;

use crate::errors::{raise, wrong};
use crate::trace::Trace;
use crate::watch::{Stop, Watch};

#[derive(Serialize)]
struct Output {
    trace: TraceFacts,
    block_bytes: u32,
    #[serde(flatten)]
    found: Characterization,
}

/// Describes a trace. Returns what `undercroft characterize --json` prints.
#[pyfunction]
pub(crate) fn characterize(
    py: Python<'_>,
    trace: &Trace,
    l1: Option<&str>,
    caches: Vec<String>,
    max_blocks: u32,
    rate: f64,
    stop: Option<&Stop>,
) -> PyResult<String> {
    if !(rate > 0.0 && rate <= 1.0) {
        return Err(wrong("rate", format!("{rate}: expected above 0, at most 1")));
    }
    let level = |text: &str| text.parse::<LevelSpec>().map_err(raise);
    let upper = l1.map(level).transpose()?;
    let caches = caches.iter().map(|text| level(text)).collect::<PyResult<Vec<_>>>()?;
    let watch = Watch::new(stop);
    let describe = || {
        let mut rate = rate;
        loop {
            let found = describe(trace, &watch, upper.as_ref(), &caches, max_blocks, rate)?;
            match found {
                Some(output) => break Ok(output),
                None if upper.is_some() => {
                    break Err(Error::Request(format!(
                        "more than {max_blocks} distinct blocks: give a larger max_blocks"
                    )));
                }
                None => rate /= 4.0,
            }
        }
    };
    watch.end(py.detach(describe))
}

/// Reads the trace once. `None`: it has too many distinct blocks.
fn describe(
    trace: &Trace,
    looks: &Watch,
    upper: Option<&LevelSpec>,
    caches: &[LevelSpec],
    max_blocks: u32,
    rate: f64,
) -> Result<Option<String>, Error> {
    let (reader, requests) = watch(trace.reader(looks)?);
    let options = BlockOptions { sample_rate: rate, origins: true, ..BlockOptions::default() };
    let options = BlockOptions { evictions: true, ..options };
    let (mut stream, block_bytes) = trace.input().stream(reader, options)?;
    let level = |spec| level(spec, block_bytes);
    let config = Config {
        block_bytes,
        unit_bytes: trace.input().unit,
        rate,
        max_blocks,
        caches: caches.iter().map(level).collect::<Result<_, _>>()?,
        upper: upper.map(level).transpose()?,
    };
    let meta = stream.meta().clone();
    let found =
        undercroft_sim::characterize::characterize(&mut stream, &requests, &config, |_| ())?;
    let Some(found) = found else { return Ok(None) };
    let trace = TraceFacts::new(trace.path(), &meta, &requests)?;
    let output = Output { trace, block_bytes, found };
    let text = serde_json::to_string(&output).map_err(|e| Error::Request(e.to_string()))?;
    Ok(Some(text))
}

/// Capacities in blocks, and the read hit ratio of each.
type Curve<'py> = (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<f64>>);

/// The curve of a policy, and the reads of the trace. The arrays own what is computed here.
#[pyfunction]
pub(crate) fn miss_ratio_curve<'py>(
    py: Python<'py>,
    trace: &Trace,
    policy: &str,
    rate: f64,
    sizes: Option<&str>,
    stop: Option<&Stop>,
) -> PyResult<(Curve<'py>, u64)> {
    let policy = Spec::parse(policy).map_err(|error| raise(error.into()))?;
    check_rate(&policy, rate).map_err(|why| wrong("rate", why))?;
    let sizes = sizes.map(Size::parse_list).transpose().map_err(raise)?;
    let watch = Watch::new(stop);
    let compute = || {
        let sizes = sizes.as_deref();
        if rate == 1.0 {
            let all = trace.prepared(&watch, EvictionsFrom::Exact)?;
            let references = all.trace();
            let points = curve(references, all.block_bytes(), rate, &policy, sizes, true)?;
            return Ok((points, references.seen().reads));
        }
        let options = BlockOptions { sample_rate: rate, ..BlockOptions::default() };
        let (stream, block_bytes) = trace.stream(&watch, options)?;
        let sample = load(stream, trace.path(), |_| ())?;
        Ok((curve(&sample, block_bytes, rate, &policy, sizes, true)?, sample.seen().reads))
    };
    let (points, reads) = watch.end(py.detach(compute))?;
    let capacities: Vec<u32> = points.iter().map(|point| point.capacity).collect();
    let ratios: Vec<f64> = points.iter().map(|point| point.read_hit_ratio).collect();
    Ok(((capacities.into_pyarray(py), ratios.into_pyarray(py)), reads))
}
