//! The format of hints, and of the context that opens the mailbox. `UNDERCROFT_SEED` repeats a
//! run of the random ones.

use bytes::{BufMut, Bytes, BytesMut};
use undercroft_hints::{
    Abilities, BLOCKS_MAX, BlockRun, ClientId, ClientStat, DIGEST_PART_BYTES, EvictFlags, Follow,
    Following, Grant, Hint, MESSAGE_BYTES_MAX, PolicyName, Query, Told, Tracking, parse,
    parse_evictions, parse_told, put_end,
};

pub(crate) use undercroft_random::SplitMix64 as Random;

fn run(random: &mut Random) -> BlockRun {
    let (first, count) = (random.below(BLOCKS_MAX), 1 + random.below(1 << 16) as u32);
    BlockRun::new(first, count).expect("within the ranges")
}

fn runs(random: &mut Random) -> Vec<BlockRun> {
    (0..random.below(5)).map(|_| run(random)).collect()
}

fn hint(random: &mut Random) -> Hint {
    match random.below(8) {
        0 => Hint::Evict {
            age_us: random.next_u64() as u32,
            sequence: random.next_u64() as u32,
            flags: EvictFlags {
                was_dirty: random.one_in(2),
                late: random.one_in(2),
                rides: random.one_in(2),
            },
            runs: runs(random),
        },
        1 => {
            let length = 1 + random.below(100) as usize;
            let (block, rides) = (random.below(BLOCKS_MAX), random.one_in(2));
            Hint::Demote { block, rides, data: random.bytes(length).into() }
        }
        2 => Hint::Promote(runs(random)),
        3 => Hint::Hold(runs(random)),
        4 => {
            let bits = 1 + random.below(500) as u32;
            let (hashes, seed) = (1 + random.below(255) as u8, random.next_u64() as u8);
            let filter = random.bytes(bits.div_ceil(8) as usize).into();
            Hint::Digest { bits, hashes, seed, part: 0, filter }
        }
        5 => {
            let (bits, hashes) = (1 + random.next_u64() as u32 / 2, 1 + random.below(255) as u8);
            let length = random.below(40) as usize;
            let (seed, sequence) = (random.next_u64() as u8, random.next_u64() as u32);
            let positions = random.bytes(length).into();
            Hint::Changes { bits, hashes, seed, sequence, positions }
        }
        6 => Hint::Follow(Follow {
            what: [Following::Nothing, Following::Blocks, Following::Digest]
                [random.below(3) as usize],
            filter_bits: random.next_u64() as u8,
            hashes: random.next_u64() as u8,
            publish_ppm: random.next_u64() as u32,
            capacity_blocks: random.next_u64(),
        }),
        _ => Hint::ClientStat(Box::new(ClientStat {
            reads: random.next_u64(),
            read_hits: random.next_u64(),
            writes: random.next_u64(),
            write_hits: random.next_u64(),
            evictions: random.next_u64(),
            capacity_blocks: random.next_u64(),
            read_us_total: random.next_u64(),
            tracking: random.one_in(2).then(|| Tracking {
                late_evictions: random.next_u64(),
                untold_evictions: random.next_u64(),
                precision_ppm: random.next_u64(),
                recall_ppm: random.next_u64(),
            }),
            policy: PolicyName::new(["", "lru", "w-tinylfu"][random.below(3) as usize]),
        })),
    }
}

fn message(hints: &[Hint]) -> Bytes {
    let mut out = BytesMut::new();
    hints.iter().for_each(|hint| hint.put(&mut out));
    out.freeze()
}

fn record(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u16(kind);
    out.put_u16(flags);
    out.put_u32(payload.len() as u32);
    out.extend_from_slice(payload);
    out.resize(out.len().next_multiple_of(8), 0);
    out
}

/// What a server tells has zeroes behind it, or says that there is more.
#[test]
fn what_a_server_tells_ends_where_it_says() {
    let mut random = Random::seeded();
    for _ in 0..300 {
        let hints: Vec<Hint> = (0..random.below(4)).map(|_| hint(&mut random)).collect();
        let more = if random.one_in(2) { 1 + random.below(1 << 20) as u32 } else { 0 };
        let mut out = BytesMut::from(&message(&hints)[..]);
        let bytes = out.len();
        put_end(&mut out, more);
        out.resize(out.len() + 8 * random.below(9) as usize, 0);
        assert_eq!(parse_told(&out.freeze()), Ok(Told { hints, bytes, more }));
    }
    let told = parse_told(&Bytes::from(vec![0; 64]));
    assert_eq!(told, Ok(Told { hints: Vec::new(), bytes: 0, more: 0 }));
    assert_eq!(parse_told(&Bytes::new()), Ok(Told::default()));
}

#[test]
fn hints_come_back_as_they_were() {
    let mut random = Random::seeded();
    for _ in 0..2000 {
        let hints: Vec<_> = (0..random.below(8)).map(|_| hint(&mut random)).collect();
        let message = message(&hints);
        assert_eq!(message.len() % 8, 0);
        assert_eq!(parse(&message).as_ref(), Ok(&hints));
    }
}

/// A message that is cut is a shorter message or none: never one with a part of a record.
#[test]
fn a_cut_message_has_whole_records_or_nothing() {
    let mut random = Random::seeded();
    for _ in 0..50 {
        let hints: Vec<_> = (0..1 + random.below(6)).map(|_| hint(&mut random)).collect();
        let whole = message(&hints);
        let ends: Vec<_> = (0..=hints.len()).map(|n| message(&hints[..n]).len()).collect();
        for cut in 0..whole.len() {
            let parsed = parse(&whole.slice(..cut));
            match ends.iter().position(|&end| end == cut) {
                Some(count) => assert_eq!(parsed.as_deref(), Ok(&hints[..count])),
                None => assert!(parsed.is_err(), "cut at {cut} of {}", whole.len()),
            }
        }
    }
}

#[test]
fn damage_is_refused_or_means_something_else() {
    let mut random = Random::seeded();
    let mut refused = 0;
    for _ in 0..5000 {
        let hints: Vec<_> = (0..1 + random.below(6)).map(|_| hint(&mut random)).collect();
        let mut bytes = message(&hints).to_vec();
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next_u64() as u8;
        }
        let message = Bytes::from(bytes);
        check_evictions(&message);
        match parse(&message) {
            Ok(hints) => assert_eq!(parse(&self::message(&hints)), Ok(hints)),
            Err(malformed) => {
                assert!(malformed.byte <= message.len(), "{malformed}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
}

/// Evictions read where they lie are what [`parse`] makes of a message that is one record of them.
/// Whether it is such a message.
fn check_evictions(message: &Bytes) -> bool {
    let alone = match parse(message).as_deref() {
        Ok([one @ Hint::Evict { .. }]) => Some(one.clone()),
        _ => None,
    };
    let found = parse_evictions(message);
    let is_one = found.is_some();
    // Beside records of unknown types it may be left to the other.
    if let Some(evictions) = found {
        let (age_us, sequence, flags) = (evictions.age_us, evictions.sequence, evictions.flags);
        let runs = evictions.runs().collect();
        assert_eq!(Some(Hint::Evict { age_us, sequence, flags, runs }), alone);
    }
    is_one
}

#[test]
fn evictions_are_read_where_they_lie() {
    let mut random = Random::seeded();
    for _ in 0..2000 {
        let hint = hint(&mut random);
        let is_one = matches!(hint, Hint::Evict { .. });
        let whole = message(&[hint]);
        assert_eq!(check_evictions(&whole), is_one);
        assert_eq!(check_evictions(&[&whole[..], &[0; 8], &[9; 5]].concat().into()), is_one);
        assert!(!check_evictions(&[&whole[..], &whole].concat().into()), "two records");
        assert!(!check_evictions(&whole.slice(..whole.len() - 1)), "cut");
    }
    assert!(!check_evictions(&Bytes::new()));
    let longest = [&record(1, 0, &[0; 8])[..], &[0; MESSAGE_BYTES_MAX - 16]].concat();
    assert!(check_evictions(&longest.clone().into()));
    assert!(!check_evictions(&[longest, vec![0]].concat().into()), "too long");
}

#[test]
fn the_bytes_of_an_eviction_are_these() {
    let flags = EvictFlags { rides: true, ..EvictFlags::default() };
    let runs = vec![BlockRun::new(0x1_0203, 2).unwrap()];
    let bytes = message(&[Hint::Evict { age_us: 5, sequence: 6, flags, runs }]);
    let expected = [
        [0, 1, 0, 4, 0, 0, 0, 16], // type, flags, length
        [0, 0, 0, 5, 0, 0, 0, 6],  // age, sequence
        [0, 0, 0, 1, 2, 3, 0, 1],  // 48 bits of block, 16 of run less one
    ];
    assert_eq!(bytes, expected.concat());
}

#[test]
fn unknown_types_are_skipped_and_type_0_ends() {
    let hold = Hint::Hold(vec![BlockRun::new(7, 1).unwrap()]);
    let known = message(std::slice::from_ref(&hold));
    let unknown = record(999, 3, &[1; 13]);
    let end = [0; 8];
    let with = |rest: &[u8]| Bytes::from([&unknown, &known[..], &end, rest].concat());
    assert_eq!(parse(&with(&[])), Ok(vec![hold.clone()]));
    // Whatever comes after the end is padding.
    assert_eq!(parse(&with(&[0xff; 9])), Ok(vec![hold]));
    assert_eq!(parse(&Bytes::new()), Ok(Vec::new()));
    // Unknown flags mean nothing.
    let flags = match parse(&Bytes::from(record(1, 0xfff8, &[0; 8]))).unwrap().pop() {
        Some(Hint::Evict { flags, .. }) => flags,
        other => panic!("not an eviction: {other:?}"),
    };
    assert_eq!(flags, EvictFlags::default());
}

#[test]
fn what_breaks_the_format_says_where() {
    let far = [&(BLOCKS_MAX).to_be_bytes()[..], &[0; 16]].concat();
    let digest = |bits: u32, hashes, part: u16, length| {
        let head = [&bits.to_be_bytes()[..], &[hashes, 0], &part.to_be_bytes()].concat();
        [head, vec![0; length]].concat()
    };
    let cases: [(u16, &[u8], usize); 9] = [
        (1, &[0; 7], 12),
        (1, &[0; 12], 16),
        (2, &[0; 16], 24),
        (2, &far, 8),
        (3, &[0; 9], 16),
        (7, &digest(0, 1, 0, 0), 8),
        (7, &digest(9, 1, 0, 1), 8),
        (7, &digest(9, 1, 1, 2), 8),
        (8, &[0; 55], 56),
    ];
    let good = message(&[Hint::Hold(vec![BlockRun::new(7, 1).unwrap()])]);
    for (kind, payload, byte) in cases {
        let bytes = [&good[..], &record(kind, 0, payload), &good].concat();
        let malformed = parse(&Bytes::from(bytes)).expect_err("not understood");
        assert_eq!(malformed.byte, good.len() + byte, "type {kind}: {malformed}");
    }
    let too_long = Bytes::from(vec![0; MESSAGE_BYTES_MAX + 1]);
    assert!(parse(&too_long).is_err());
    assert!(parse(&too_long.slice(1..)).is_ok_and(|hints| hints.is_empty()));
    // A length that reaches beyond all memory.
    assert!(parse(&Bytes::from(vec![0, 3, 0, 0, 0xff, 0xff, 0xff, 0xff])).is_err());
}

#[test]
fn a_later_stat_is_longer() {
    let mut payload: Vec<u8> = (1..=7_u64).flat_map(u64::to_be_bytes).collect();
    payload.extend_from_slice(&[0xff; 11]);
    let stat = ClientStat {
        reads: 1,
        read_hits: 2,
        writes: 3,
        write_hits: 4,
        evictions: 5,
        capacity_blocks: 6,
        read_us_total: 7,
        tracking: None,
        policy: PolicyName::default(),
    };
    let message = Bytes::from(record(8, 0, &payload));
    assert_eq!(parse(&message), Ok(vec![Hint::ClientStat(Box::new(stat))]));
}

#[test]
fn the_parts_of_a_filter_make_the_whole() {
    let bits = (DIGEST_PART_BYTES as u32 + 3) * 8 - 1;
    let part = |part, length| Hint::Digest {
        bits,
        hashes: 4,
        seed: 1,
        part,
        filter: Bytes::from(vec![9; length]),
    };
    let hints = vec![part(0, DIGEST_PART_BYTES), part(1, 3)];
    assert_eq!(parse(&message(&hints)), Ok(hints));
}

#[test]
fn parsing_takes_little_memory_and_copies_no_data() {
    // Eight bytes of a message are a record at least.
    assert!(size_of::<Hint>() <= 64);
    let message = message(&[Hint::Demote { block: 1, rides: false, data: vec![7; 4096].into() }]);
    match parse(&message).unwrap().pop() {
        Some(Hint::Demote { data, .. }) => assert_eq!(data.as_ptr(), message[24..].as_ptr()),
        other => panic!("not a block: {other:?}"),
    }
}

#[test]
fn runs_keep_to_their_ranges() {
    let run = BlockRun::new(BLOCKS_MAX - 1, BlockRun::COUNT_MAX).unwrap();
    assert_eq!(run.blocks(), BLOCKS_MAX - 1..BLOCKS_MAX + 65_535);
    assert_eq!((run.first(), run.count()), (BLOCKS_MAX - 1, 65_536));
    for (first, count) in [(BLOCKS_MAX, 1), (0, 0), (0, 65_537)] {
        assert_eq!(BlockRun::new(first, count), None);
    }
}

/// What levels of schemes said to each other in earlier versions: an older client goes on without.
#[test]
fn records_and_abilities_of_earlier_versions_are_passed_over() {
    let mut message = BytesMut::new();
    for kind in [5, 11, 12] {
        message.put_u16(kind);
        message.put_u16(0);
        message.put_u32(32);
        message.put_bytes(0xff, 32);
    }
    let hint = Hint::Hold(vec![BlockRun::new(7, 3).unwrap()]);
    hint.put(&mut message);
    assert_eq!(parse(&message.freeze()), Ok(vec![hint]));
    assert_eq!(Abilities::parse("evict,freq").to_string(), "evict");
}

#[test]
fn a_policy_is_a_name_and_nothing_else() {
    assert_eq!(PolicyName::new("w-tinylfu").as_str(), "w-tinylfu");
    assert_eq!(PolicyName::new("lru\u{1b}[31m").as_str(), "lru");
    assert_eq!(PolicyName::new(&"x".repeat(100)).as_str(), "x".repeat(24));
    assert_eq!(PolicyName::default(), PolicyName::new(""));
}

#[test]
fn contexts_are_written_and_read() {
    let all = "evict,demote,promote,digest,hold,stat";
    assert_eq!(Abilities::parse(all).to_string(), all);
    let some = Abilities::parse("stat,teleport,,evict");
    assert_eq!(some, Abilities { evict: true, stat: true, ..Abilities::default() });
    assert_eq!(some.and(Abilities::parse("evict,demote")).to_string(), "evict");

    let query = Query { client: Some(0xabc.into()), want: some };
    let text = "x-undercroft:coop;v=1;client=00000000000000000000000000000abc;want=evict,stat";
    assert_eq!(query.to_string(), text);
    assert_eq!(Query::parse(text), Some(query));
    let id = ClientId { number: 0xabc, key: Some(0xdef) };
    let (with_key, key) =
        (Query { client: Some(id), ..query }, format!(";key={:032x};want", 0xdef));
    assert_eq!(with_key.to_string(), text.replace(";want", &key));
    assert_eq!(Query::parse(&with_key.to_string()), Some(with_key));
    assert_eq!(Query::parse("x-undercroft:coop;key=1"), Some(Query::default()));
    for (text, parsed) in [(id.to_string().as_str(), id), ("abc:DEF", id), ("abc", 0xabc.into())] {
        assert_eq!(text.parse(), Ok(parsed), "{text}");
    }
    for wrong in ["", ":", "1:", ":1", "1:2:3", "+1", "1:-1", "x"] {
        assert!(wrong.parse::<ClientId>().is_err(), "{wrong}");
    }
    assert!(!format!("{with_key:?}").contains("def"), "keys are not for logs");
    assert_eq!(Query::parse("x-undercroft:coop"), Some(Query::default()));
    assert_eq!(Query::parse("x-undercroft:coop;later=1;want=evict,stat").unwrap().want, some);
    let others = [
        "x-undercroft:",
        "x-undercroft:cooperation",
        "x-undercroft:coop;v=2",
        "x-undercroft:coop;want=evict;v=2",
        "x-undercroft:coop;client=",
        "x-undercroft:coop;client=+1",
        "x-undercroft:coop;client=1;key=+1",
        "x-undercroft:coop;client=100000000000000000000000000000000",
        "base:allocation",
        "",
    ];
    assert_eq!(others.map(Query::parse), [None; 10]);

    let grant = Grant {
        epoch: 0x1f,
        block_bytes: 4096,
        window_base: 1 << 20,
        window_bytes: 65536,
        news: None,
        grant: some,
    };
    let text = "x-undercroft:coop;v=1;epoch=1f;block=4096;window=1048576+65536;grant=evict,stat";
    assert_eq!(grant.to_string(), text);
    assert_eq!(Grant::parse(text), Some(grant));
    let (news, text_with_news) = (Some((1 << 21, 4096)), format!("{text};news=2097152+4096"));
    assert_eq!(Grant { news, ..grant }.to_string(), text_with_news);
    assert_eq!(Grant::parse(&text_with_news), Some(Grant { news, ..grant }));
    assert_eq!(Grant::parse(&format!("{text};news=18446744073709551615+1")), None);
    for (good, bad) in [
        ("epoch=1f;", ""),
        ("block=4096;", ""),
        ("window=1048576+65536;", ""),
        ("block=4096", "block=4095"),
        ("block=4096", "block=4294967296"),
        ("+65536", "+18446744073709551615"),
        ("+65536", ""),
        ("v=1", "v=2"),
    ] {
        assert_eq!(Grant::parse(&text.replace(good, bad)), None, "{bad} for {good}");
    }
}
