//! Tests of the syntax: parsing and writing returns the same text, and errors point at their place.

use undercroft_random::SplitMix64;

use super::*;

fn parsed(text: &str) -> StoreSpec {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn what_is_parsed_is_written_the_same() {
    for text in [
        "file:/srv/demo.img",
        "file:\"relative, with (everything); else\"",
        "file(direct):/dev/sdb",
        "file(direct,threads=32,size=1GiB):/srv/a",
        "mem:",
        "mem(1000):",
        "mem(3MiB):",
        "s3://bucket",
        "s3://my-bucket.1/a/b c",
        "s3(object=8MiB,size=1TiB)://bucket/volumes/one",
        "gs(lease=off)://bucket/one",
        "gs://bucket/a",
        "az://container/a",
        "object-file:/tmp/objects",
        "object-file(object=64KiB):x",
        "object-memory(size=1MiB):",
        "nbd://localhost/",
        "nbd://localhost:10810/demo",
        "nbds://[fe80::1%25eth0]/name%20with%20spaces",
        "nbd+unix:///demo?socket=/run/undercroft.sock",
        "nbds+unix:///?socket=/a%3Fb",
        "concat(file:/a;file(direct):\"/b (1;\";mem(1GiB):)",
        "stripe(64KiB;file:/a;stripe(512;mem(1MiB):;mem(1MiB):))",
        "log(/nvme/log,size=1GiB):file:/a",
        "log(\"/a,b\",size=8MiB,unmarked):delay(5ms):nbd://localhost/",
        "delay(5ms):file:/a",
        "delay(200us,queue=4):mem(1GiB):",
        "delay(2ms..8ms,queue=4,seed=7):concat(file:/a;file:/b)",
        "fail:mem(1MiB):",
        "fail(read,n=3):file:/a",
        "fail(write,p=0.01,seed=7,short=enospc):delay(1s):file:/a",
        "fail(flush,every=2,stall=1500ms):file:/a",
        "fail(from=10,error=enomem):file:/a",
        "fail(extents,stall):file:/a",
        "fail(zero,short):fail(trim,p=0.5):file:/a",
    ] {
        let spec = parsed(text);
        assert_eq!(spec.to_string(), text);
        assert_eq!(parsed(&spec.to_string()), spec);
    }
}

#[test]
fn other_ways_to_say_it_come_out_in_one_form() {
    for (text, form) in [
        ("mem(1024KiB):", "mem(1MiB):"),
        ("file():/a", "file:/a"),
        ("file:\"/a\"", "file:/a"),
        ("file:/a,b", "file:\"/a,b\""),
        ("object-file:\"/a;b\"", "object-file:\"/a;b\""),
        ("s3://bucket/a/", "s3://bucket/a"),
        ("s3://bucket/", "s3://bucket"),
        ("nbd://localhost:10809", "nbd://localhost/"),
        ("delay(1000us):mem:", "delay(1ms):mem:"),
        ("delay(5ms..5ms,seed=0):mem:", "delay(5ms):mem:"),
        ("delay(0s):mem:", "delay(0ms):mem:"),
        ("fail(any,from=1,error=eio):mem:", "fail:mem:"),
        ("fail(seed=1,p=0.250,read):mem:", "fail(read,p=0.25,seed=1):mem:"),
    ] {
        assert_eq!(parsed(text).to_string(), form);
    }
}

#[test]
fn values_are_what_the_text_says() {
    // Equal values write equal texts; opening is tested with each kind.
    for (text, said) in [
        (
            "delay(2ms..1000ms,queue=04):mem:",
            "delay: Delay { min: 2ms, max: 1s, queue: Some(4), seed: 0 }",
        ),
        (
            "fail(trim,every=3,short):mem:",
            "kind: Some(Trim), trigger: Every(3), failure: Short(Io)",
        ),
        ("nbds://[::1]:99/a%2fb", r#"endpoint: Tcp("::1", 99), export: "a/b", tls: true"#),
        ("gs://bucket/a/b", r#"place: Bucket(Gs, "bucket", "a/b")"#),
    ] {
        let debug = format!("{:?}", parsed(text).0);
        assert!(debug.contains(said), "{debug}");
    }
}

#[test]
fn what_a_store_is_made_of() {
    let spec = parsed("delay(5ms):fail(read,n=3):concat(file:/a;stripe(64KiB;file:/b;mem:))");
    let (inner, wrappers) = spec.unwrapped();
    assert_eq!(wrappers, ["delay(5ms)", "fail(read,n=3)"]);
    assert_eq!(inner.to_string(), "concat(file:/a;stripe(64KiB;file:/b;mem:))");
    assert_eq!(spec.files(), [Path::new("/a"), Path::new("/b")]);
    let logged = parsed("log(/log,size=1GiB):file:/a");
    assert_eq!((logged.files(), logged.unwrapped().1.len()), (vec![Path::new("/a")], 0));
    assert!(
        parsed("nbd://host/a").is_upstream() && !parsed("delay(1ms):nbd://host/a").is_upstream()
    );
}

/// The text, the position of the error, and a word of what was expected.
#[test]
fn errors_point_at_the_place() {
    for (text, at, expected) in [
        ("", 0, "a store: file:PATH"),
        ("fiel:/a", 0, "a store: file:PATH"),
        ("/srv/demo.img", 0, "a store: file:PATH"),
        ("file", 4, "`:`"),
        ("file:", 5, "a path"),
        ("file(direct:/a", 14, "`)`"),
        ("file(dirct):/a", 5, "direct, threads=N"),
        ("file(direct=1):/a", 5, "direct, threads=N"),
        ("file(threads=0):/a", 13, "1 to 1024"),
        ("file(size=1XB):/a", 10, "a size, such as"),
        ("mem:1GiB", 4, "mem(1GiB):"),
        ("mem(0):", 4, "a size"),
        ("mem(9999999999TiB):", 4, "a size"),
        ("mem(1GiB,2GiB):", 4, "nothing else"),
        ("s3:bucket", 2, "://"),
        ("s3://", 5, "the name of a bucket"),
        ("s3://buck et/a", 5, "the name of a bucket"),
        ("s3://bucket/../b", 12, "a prefix"),
        ("s3(object=5MiB)://bucket", 10, "a power of two"),
        ("s3(lease=maybe)://bucket", 9, "on or off"),
        ("object-memory:x", 14, "nothing after"),
        ("concat", 6, "`(` and stores"),
        ("concat(file:/a;):", 16, "nothing after"),
        ("concat(file:/a;)", 15, "a store"),
        ("concat()", 7, "a store"),
        ("stripe(file:/a;file:/b)", 7, "a size"),
        ("stripe(64KiB)", 12, "`;` and a store"),
        ("delay:file:/a", 6, "a time, as in"),
        ("delay(5):file:/a", 6, "a time"),
        ("delay(5ms..2ms):file:/a", 11, "not below"),
        ("delay(2h):file:/a", 6, "a time"),
        ("delay(3601s):file:/a", 6, "an hour"),
        ("delay(5ms,queue=0):file:/a", 16, "1 to 65536"),
        ("delay(5ms):fle:/a", 11, "a store"),
        ("fail(reed):file:/a", 5, "read, write"),
        ("fail(n=0):file:/a", 7, "from 1"),
        ("fail(p=1.5):file:/a", 7, "probability"),
        ("fail(p=NaN):file:/a", 7, "probability"),
        ("fail(read,seed=1):file:/a", 10, "together with p"),
        ("fail(error=oops):file:/a", 11, "eio, enospc"),
        ("nbd:localhost", 3, "://"),
        ("nbd://", 6, "the host is missing"),
        ("delay(5ms):nbd://host/a?b=c", 17, "the one parameter that is known"),
        ("nbd(x)://host", 4, "no options"),
        ("concat(mem(1KiB):;\u{e9}:/a)", 18, "a store"),
        ("mem:\n", 4, "control"),
    ] {
        let error = text.parse::<StoreSpec>().expect_err(text);
        assert_eq!(error.at, at, "{text}: {error}");
        assert!(error.expected.contains(expected), "{text}: {error}");
        let place = format!("at character {}: expected ", at + 1);
        assert!(error.to_string().contains(&place), "{error}");
    }
}

#[test]
fn no_text_goes_too_deep_or_grows_without_bound() {
    let deep = "delay(1ms):".repeat(16) + "mem:";
    assert!(deep.parse::<StoreSpec>().unwrap_err().expected.contains("at most 16"));
    assert!(("delay(1ms):".repeat(15) + "mem:").parse::<StoreSpec>().is_ok());
    let deep = "concat(".repeat(10_000);
    assert!(deep.parse::<StoreSpec>().is_err());
    let long = format!("file:{}", "x".repeat(70_000));
    let error = long.parse::<StoreSpec>().unwrap_err();
    assert!(error.to_string().len() < 400, "{error}");
}

/// Random texts are refused, or parse to a form that stays the same.
#[test]
fn random_texts_never_panic() {
    let mut random = SplitMix64::new(undercroft_random::testing::seed_or(1));
    let words = "file mem s3 concat stripe delay fail nbd nbd+unix ( ) : ; , = / // 1KiB 5ms .. \
                 read n 3 %41 ?socket= \u{e9} [ ] object-memory p 0.5";
    let words: Vec<&str> = words.split(' ').chain([""]).collect();
    let mut accepted = 0;
    for _ in 0..200_000 {
        let count = random.next_u64() % 12;
        let pick = |_| words[(random.next_u64() % words.len() as u64) as usize];
        let text: String = (0..count).map(pick).collect();
        if let Ok(spec) = text.parse::<StoreSpec>() {
            accepted += 1;
            assert_eq!(spec.to_string().parse(), Ok(spec), "{text}");
        }
    }
    assert!(accepted > 100, "only {accepted} texts were right");
}
