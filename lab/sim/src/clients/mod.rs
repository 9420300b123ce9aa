//! Several clients of one trace: which references are whose, what data they share, and what is
//! reported of them. Not here: their caches (`crate::tree`).

mod population;
mod report;

pub(crate) use population::{ClientRef, OfClient};
pub use population::{Data, Population};
pub use report::{ClientReport, ClientsReport};
