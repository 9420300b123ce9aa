//! Traces of these tests, and a caching client that plays one.

use bytes::Bytes;
use undercroft_client::CachedClient;
use undercroft_trace::{BlockOptions, BlockStream, DenseTrace, GeneratorSpec, Reader};

use crate::support::BLOCK;

/// All of a trace.
pub(crate) fn load(reader: Box<dyn Reader>) -> DenseTrace {
    let options = BlockOptions { block_bytes: BLOCK as u32, ..BlockOptions::default() };
    let stream = BlockStream::new(reader, &options).expect("a trace");
    DenseTrace::load(stream, |_| ()).expect("a readable trace")
}

pub(crate) fn zipf(parameters: &str) -> DenseTrace {
    load(GeneratorSpec::parse("zipf", parameters).expect("a generator").reader())
}

/// One request after the other; what is read is what was written.
pub(crate) async fn play(client: &CachedClient, trace: &DenseTrace) {
    let mut model = vec![0_u8; trace.unique() as usize];
    let mut chunks = trace.forward();
    let mut step = 0_u64;
    while let Some((_, chunk)) = chunks.next().expect("a readable trace") {
        for r in chunk {
            step += 1;
            let (block, offset) = (r.block() as usize, u64::from(r.block()) * BLOCK);
            if r.is_write() {
                model[block] = step as u8;
                let data = Bytes::from(vec![step as u8; BLOCK as usize]);
                client.write(offset, data, false).await.expect("a write");
            } else {
                let data = client.read(offset, BLOCK as usize).await.expect("a read");
                assert!(data.iter().all(|&byte| byte == model[block]), "block {block}");
            }
        }
    }
}
