//! The load generator against a server of ours.

use std::sync::Arc;
use std::time::Duration;

use undercroft_nbd::{ClientOptions, Listener, Server, ServerOptions, Uri};
use undercroft_tools::Load;

use crate::export::Ram;

#[tokio::test(flavor = "multi_thread")]
async fn a_load_of_each_kind_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let server = Server::new(Arc::new(Ram::new("ram", 8 << 20)), ServerOptions::default());
    let listener = Listener::unix(&socket).unwrap();
    let listening = server.clone();
    tokio::spawn(async move { listening.listen(listener).await });
    let uri: Uri = format!("nbd+unix:///?socket={}", socket.display()).parse().unwrap();
    for (sequential, read_percent, connections, depth, block_bytes) in
        [(false, 100, 1, 64, 4096), (true, 0, 2, 7, 100_000), (false, 50, 3, 32, 512)]
    {
        let duration = Duration::from_millis(50);
        let load = Load {
            depth,
            connections,
            block_bytes,
            sequential,
            read_percent,
            duration,
            ..Load::default()
        };
        let uri = uri.clone();
        let report = tokio::task::spawn_blocking(move || load.run(&uri, &ClientOptions::default()))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(report.errors, 0);
        assert!(report.elapsed >= duration && report.requests_per_second() > 1.0);
        assert_eq!(report.reads.count() > 0, read_percent > 0);
        assert_eq!(report.writes.count() > 0, read_percent < 100);
        let both = [&report.reads, &report.writes];
        let some = both.into_iter().find(|kind| kind.count() > 0).expect("there was a load");
        let (median, most) = (some.percentile_us(50.0), some.max_us());
        assert!(0.0 < median && median <= most && some.mean_us() <= most);
    }
    while server.connections() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let refused =
        |load: Load, uri: &Uri| load.run(uri, &ClientOptions::default()).unwrap_err().to_string();
    let none: Uri = format!("nbd+unix:///none?socket={}", socket.display()).parse().unwrap();
    let told = tokio::task::spawn_blocking(move || {
        let depth = refused(Load { depth: 0, ..Load::default() }, &none);
        (depth, refused(Load::default(), &none))
    });
    let (depth, export) = told.await.unwrap();
    assert!(depth.contains("depth: 1 to 65536"), "{depth}");
    assert!(export.contains("there is no export 'none'"), "{export}");
}
