//! A kind of store in one file: `zeroes(1GiB):` reads as zeroes, forgets what is written, and
//! counts the bytes. It shows what a new store needs (`docs/developer/add-a-store.md`).
//!
//! ```text
//! cargo run -p undercroft-store --example zeroes
//! ```

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use undercroft_store::{
    Answer, Buffer, Description, Extent, Facts, Kind, OpenOptions, Parsed, Store, StoreSpec, Words,
    Zeroing, write_options,
};

/// The line of the table of kinds.
static KINDS: [Kind; 1] = [Kind {
    name: "zeroes",
    form: "zeroes(SIZE):",
    summary: "zeroes, and nothing that is written stays",
    parse,
}];

/// `zeroes(SIZE):` as a person wrote it, with its bytes.
#[derive(Debug)]
struct ZeroesSpec(u64);

fn parse(words: &Words<'_>) -> Parsed<StoreSpec> {
    let place = words.place()?;
    if !place.text().is_empty() {
        return place.fail("nothing after `zeroes(SIZE):`");
    }
    match words.options()[..] {
        [(size, None)] => Ok(StoreSpec::new(ZeroesSpec(size.size()?))),
        _ => words.rest.fail("a size, as in zeroes(1GiB):"),
    }
}

impl Description for ZeroesSpec {
    fn open(&self, options: OpenOptions) -> Answer<io::Result<Arc<dyn Store>>> {
        let size = options.one_size(Some(self.0), self);
        let name = self.to_string();
        ready(size.map(|size| {
            let (size, read_only) = (size.unwrap_or(0), options.read_only);
            let facts = Facts { size, alignment: 1, read_only, zeroes_fast: true, name };
            Arc::new(Zeroes { facts, forgotten: AtomicU64::new(0) }) as _
        }))
    }
}

/// The text that [`parse`] reads as the same.
impl fmt::Display for ZeroesSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("zeroes")?;
        write_options(f, [Some(undercroft_text::Bytes(self.0).to_string())])?;
        f.write_str(":")
    }
}

/// The store.
struct Zeroes {
    facts: Facts,
    /// Bytes that were written.
    forgotten: AtomicU64,
}

fn ready<T: Send + 'static>(answer: T) -> Answer<T> {
    Box::pin(std::future::ready(answer))
}

impl Zeroes {
    /// Whether a range may be asked for, and changed.
    fn check(&self, offset: u64, length: u64, changes: bool) -> io::Result<()> {
        if changes && self.facts.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        match offset.checked_add(length) {
            Some(end) if end <= self.facts.size => Ok(()),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

impl Store for Zeroes {
    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn read(&self, offset: u64, mut into: Vec<Buffer>) -> Answer<(Vec<Buffer>, io::Result<()>)> {
        let mut length = 0;
        for buffer in &mut into {
            let bytes = (**buffer).as_mut();
            bytes.fill(0);
            length += bytes.len() as u64;
        }
        let result = self.check(offset, length, false);
        ready((into, result))
    }

    fn write(&self, offset: u64, data: Vec<Bytes>, _durable: bool) -> Answer<io::Result<()>> {
        let length = data.iter().map(|piece| piece.len() as u64).sum();
        let result = self.check(offset, length, true);
        if result.is_ok() {
            self.forgotten.fetch_add(length, Ordering::Relaxed);
        }
        ready(result)
    }

    fn zero(&self, offset: u64, length: u64, _: Zeroing, _: bool) -> Answer<io::Result<()>> {
        ready(self.check(offset, length, true))
    }

    fn trim(&self, offset: u64, length: u64, _durable: bool) -> Answer<io::Result<()>> {
        ready(self.check(offset, length, true))
    }

    fn flush(&self) -> Answer<io::Result<()>> {
        ready(Ok(()))
    }

    fn extents(&self, offset: u64, length: u64) -> Answer<io::Result<Vec<Extent>>> {
        let all = Extent { length, hole: true, zero: true };
        ready(self.check(offset, length, false).map(|()| vec![all]))
    }

    fn reload(&self) -> Answer<io::Result<u64>> {
        ready(Ok(self.facts.size))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Until the table has the line, the kind is given beside it. Wrappers take it at once.
    let spec = StoreSpec::parse_with("delay(1ms):zeroes(1GiB):", &KINDS)?;
    let store = spec.open(OpenOptions::default()).await?;
    store.write(0, vec![Bytes::from_static(b"forgotten")], false).await?;
    let (mut buffers, result) = store.read(0, vec![Box::new(vec![1_u8; 9])]).await;
    result?;
    assert_eq!((*buffers[0]).as_mut(), [0; 9]);
    println!("{spec} has {} bytes, all of them zero", store.facts().size);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_comes_back() {
        for text in ["zeroes(4KiB):", "concat(zeroes(1000):;zeroes(1GiB):)"] {
            assert_eq!(StoreSpec::parse_with(text, &KINDS).unwrap().to_string(), text);
        }
        assert!("zeroes(4KiB):".parse::<StoreSpec>().is_err());
        let wrong = StoreSpec::parse_with("zeros(4KiB):", &KINDS).unwrap_err();
        assert!(wrong.expected.ends_with("or zeroes(SIZE):"), "{wrong}");
    }

    #[tokio::test]
    async fn it_reads_as_zeroes_within_its_size() {
        let spec = StoreSpec::parse_with("zeroes(8KiB):", &KINDS).unwrap();
        let store = spec.open(OpenOptions::default()).await.unwrap();
        store.write(4096, vec![Bytes::from(vec![7; 4096])], true).await.unwrap();
        let (mut buffers, result) = store.read(4096, vec![Box::new(vec![1_u8; 4096])]).await;
        result.unwrap();
        assert!((*buffers[0]).as_mut().iter().all(|&byte| byte == 0));
        assert!(store.write(8192, vec![Bytes::from_static(b"x")], false).await.is_err());
        let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
        let store = spec.open(read_only).await.unwrap();
        assert!(store.trim(0, 4096, false).await.is_err());
    }
}
