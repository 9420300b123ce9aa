//! A volume as an export of the protocol, and the innermost layers of its sessions.
//!
//! Not here: rights, limits and hints, which are layers around these.

use std::sync::Arc;

use undercroft_nbd::{Context, Export, ExportInfo, Flags, Peer, Refusal, Request, Session};

use crate::answer::BASE_ALLOCATION;
use crate::layers::losses::LossReports;
use crate::layers::read_ahead::ReadAhead;
use crate::volume::Volume;
use crate::volume::clients::Member;

/// Most bytes of one payload, as of other servers. Clients that do not ask assume half of it, or
/// nothing at all.
const PAYLOAD_BYTES_MAX: u32 = 64 << 20;

/// A volume as an export.
pub struct VolumeExport(pub Arc<Volume>);

impl Export for VolumeExport {
    fn info(&self, _: &Peer, _: &[Context]) -> ExportInfo {
        let volume = &self.0;
        let config = volume.config();
        let (cached, alignment) = (config.cache_blocks > 0, volume.geometry.alignment as u32);
        ExportInfo {
            name: config.name.clone(),
            description: config.description.clone(),
            size: volume.size(),
            flags: Flags {
                read_only: volume.is_read_only(),
                trim: true,
                write_zeroes: true,
                fast_zero: true,
                // One cache and one store: what one connection was answered, all connections see.
                multi_conn: true,
                cache: cached,
                rotational: false,
            },
            // The cache accepts requests of any alignment; the store alone does not.
            min_block: if cached { 1 } else { alignment },
            preferred_block: config.block_bytes.max(alignment),
            max_block: PAYLOAD_BYTES_MAX,
        }
    }

    fn contexts(&self, query: &str) -> Vec<Context> {
        let name = "base:allocation";
        if matches!(query, "" | "base:" | "base:allocation") {
            vec![Context { name: name.to_string(), key: BASE_ALLOCATION, kept: None }]
        } else {
            Vec::new()
        }
    }

    fn connect(&self, _: &Peer, _: &[Context]) -> Result<Box<dyn Session>, Refusal> {
        let member = self.0.join(None).map_err(|wrong| Refusal::Denied(wrong.to_string()))?;
        connect(&self.0, member)
    }
}

/// Begins a session with a volume: the layers that it needs, and the volume itself. `member`: the
/// client, if the volume distinguishes clients.
///
/// # Errors
/// The volume is being closed.
pub(crate) fn connect(
    volume: &Arc<Volume>,
    member: Option<Arc<Member>>,
) -> Result<Box<dyn Session>, Refusal> {
    if volume.answers.is_closing() {
        return Err(Refusal::ShuttingDown);
    }
    let ours = Arc::clone(volume);
    let mut session: Box<dyn Session> = Box::new(VolumeSession { volume: ours, member });
    if volume.config().read_ahead_bytes > 0 {
        session = Box::new(ReadAhead::new(volume, session));
    }
    let losses = &volume.losses;
    if losses.are_possible() && !losses.confirms {
        session = Box::new(LossReports::new(losses, session));
    }
    Ok(session)
}

/// The last layer: the volume itself.
struct VolumeSession {
    volume: Arc<Volume>,
    /// The client of the connection, if the volume distinguishes clients.
    member: Option<Arc<Member>>,
}

impl Session for VolumeSession {
    fn serve(&mut self, requests: &mut Vec<Request>) -> u64 {
        let caller = self.member.as_ref().map(|member| member.caller()).unwrap_or_default();
        self.volume.serve(requests, caller)
    }
}
