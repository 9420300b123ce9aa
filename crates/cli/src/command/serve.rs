//! `undercroft serve`: the storage server. Reads the settings, starts it, waits for signals.

use std::io::{IsTerminal, Write, stderr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use undercroft_server::serve::{Plan, Running, Settings, TlsPaths, TlsPlan, VolumeSettings};
use undercroft_store::StoreSpec;

use crate::descriptors;
use crate::error::Error;
use crate::table::bytes;

/// The file that is read if it is there and no other is named.
const CONFIG: &str = "undercroft.toml";

/// How long the end waits for threads that do not come back.
const LEFT_BEHIND: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Configuration file [default: undercroft.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen: 127.0.0.1:10809, [::1]:10809, unix:PATH; may be repeated
    /// [default: 127.0.0.1:10809]
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,
    /// A volume: NAME=STORE[,key=value]...; may be repeated. Keys: size, block, cache (SIZE or
    /// off), policy, placement, evictions (told or estimate), reloads (idle or at-once), report
    /// (nothing, evictions or demotions, to a server below), write, read-only, shards, read-ahead,
    /// description, dirty-age-s, dirty-percent, store-timeout-s, connections, requests-per-second,
    /// tls-required, client, writer (the last two name certificates and may be repeated). STORE:
    /// file:PATH, file(direct):PATH, mem:, nbd://HOST/EXPORT, s3://BUCKET/PREFIX, concat(A;B),
    /// delay(5ms):STORE, ...
    #[arg(long, value_name = "VOLUME", value_parser = VolumeSettings::parse)]
    volume: Vec<VolumeSettings>,
    /// Memory of all caches together [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    cache: Option<String>,
    /// Replacement policy, as mq or lirs,hirs=0.02 [default: mq]
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// When a block comes into the cache: access, eviction[,on-hit=...], gl [default: access]
    #[arg(long, value_name = "PLACEMENT")]
    placement: Option<String>,
    /// When a write is answered: through (the store has it), back (it is cached), around (the
    /// store has it, and it is not cached) [default: through]
    #[arg(long, value_name = "MODE")]
    write: Option<String>,
    /// Block size, 4KiB to 64KiB [default: 4KiB]
    #[arg(long, value_name = "SIZE")]
    block: Option<String>,
    /// Parts of each cache with a policy and a lock of their own [default: 1]
    #[arg(long, value_name = "N")]
    shards: Option<u32>,
    /// Serve /stats, /metrics and /healthz here, as 127.0.0.1:10880 [default: nowhere]
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// Keep here what makes a restart warm [default: nowhere, restarts are cold]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Keep here what a store does not take by the end, for `undercroft unwritten` [default:
    /// nowhere, it is named and lost]
    #[arg(long, value_name = "DIR")]
    unwritten: Option<PathBuf>,
    /// Seconds that the end waits for a store that does not take what is dirty [default: 30]
    #[arg(long, value_name = "SECONDS")]
    close_s: Option<u64>,
    /// The server's certificate and the ones above it, PEM: TLS is offered
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The private key that belongs to it, PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Roots of client certificates, PEM: clients must show one, and so nothing without TLS
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_client_roots: Option<PathBuf>,
    /// Nothing without TLS
    #[arg(long, requires = "tls_certificate")]
    tls_required: bool,
    /// Whom stores at nbds:// are trusted by: roots of their certificates, PEM
    #[arg(long, value_name = "FILE")]
    tls_upstream_roots: Option<PathBuf>,
    /// The certificate to show to them, PEM
    #[arg(long, value_name = "FILE", requires = "tls_upstream_key")]
    tls_upstream_certificate: Option<PathBuf>,
    /// The private key that belongs to it, PEM
    #[arg(long, value_name = "FILE", requires = "tls_upstream_certificate")]
    tls_upstream_key: Option<PathBuf>,
    /// More of what happens, on standard error; RUST_LOG says it in detail
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

impl Args {
    fn settings(&self) -> Settings {
        let mut settings = Settings {
            listen: self.listen.clone(),
            volumes: self.volume.clone(),
            cache: self.cache.clone(),
            policy: self.policy.clone(),
            placement: self.placement.clone(),
            write: self.write.clone(),
            block: self.block.clone(),
            shards: self.shards,
            http: self.http.clone(),
            state: self.state.clone(),
            unwritten: self.unwritten.clone(),
            ..Settings::default()
        };
        settings.limits.close_s = self.close_s;
        settings.tls.certificate = self.tls_certificate.clone();
        settings.tls.key = self.tls_key.clone();
        settings.tls.client_roots = self.tls_client_roots.clone();
        settings.tls.upstream_roots = self.tls_upstream_roots.clone();
        settings.tls.upstream_certificate = self.tls_upstream_certificate.clone();
        settings.tls.upstream_key = self.tls_upstream_key.clone();
        settings.tls.mode = self.tls_required.then(|| "required".to_owned());
        settings
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    log(args.verbose);
    let descriptors = descriptors::raise();
    let mut plan = plan(args).map_err(Error::Usage)?;
    if let Some(what) = descriptors::fit(&mut plan, descriptors) {
        tracing::warn!("{what}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(serve(args, &plan, descriptors));
    // What a thread still waits for, a file on a disk that does not answer say, has had its time.
    runtime.shutdown_timeout(LEFT_BEHIND);
    ended
}

/// What flags, file and environment ask for, as they are now.
fn plan(args: &Args) -> Result<Plan, String> {
    let file = match &args.config {
        Some(path) => Settings::from_file(path)?,
        None if Path::new(CONFIG).exists() => Settings::from_file(Path::new(CONFIG))?,
        None => Settings::default(),
    };
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let environment = Settings::from_environment(variables)?;
    Plan::new(&args.settings().or(file).or(environment))
}

/// What they ask for now.
fn again(args: &Args, descriptors: Option<u64>) -> Result<Plan, String> {
    let mut plan = plan(args)?;
    // As at the start, where it was said.
    let _ = descriptors::fit(&mut plan, descriptors);
    Ok(plan)
}

async fn serve(args: &Args, plan: &Plan, descriptors: Option<u64>) -> Result<(), Error> {
    // Before anything is opened, so that no signal is missed.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut running = tokio::select! {
        started = Running::start(plan) => started?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    announce(&running)?;
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hang_up.recv() => {}
        }
        // A store that does not answer holds up what is reloaded, and not the end.
        tokio::select! {
            () = running.reload(again(args, descriptors)) => {}
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    Ok(running.stop().await?)
}

/// Says what is served, and what one could do next.
fn announce(running: &Running) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    let version = env!("CARGO_PKG_VERSION");
    writeln!(out, "undercroft {version}  serving {}", running.addresses().join(" "))?;
    let (plan, volumes) = (running.plan(), running.volumes());
    for (number, planned) in plan.volumes.iter().enumerate() {
        let name = &planned.config.name;
        let Some(volume) = volumes.iter().find(|v| v.config().name == *name) else { continue };
        let (store, wrappers) = unwrapped(&planned.store);
        let (size, write) = (bytes(volume.size()), planned.config.write.name());
        write!(out, "  volume  {name}  {size}  {store}  write-{write}")?;
        write!(out, "{}", if volume.is_read_only() { "  read-only" } else { "" })?;
        // What clients get who name no export.
        writeln!(out, "{}", if number == 0 { "  default export" } else { "" })?;
        if !wrappers.is_empty() {
            writeln!(out, "          for tests  {}", wrappers.join("  "))?;
        }
        let config = volume.config();
        let block = bytes(u64::from(config.block_bytes));
        let cache = u64::from(config.cache_blocks) * u64::from(config.block_bytes);
        match cache {
            0 => writeln!(out, "          not cached")?,
            cache => writeln!(
                out,
                "          cache {}  block {block}  policy {}  placement {}",
                bytes(cache),
                config.policy,
                config.placement_name()
            )?,
        }
    }
    match &plan.tls {
        TlsPlan::Off => {}
        TlsPlan::Offered(paths) => {
            writeln!(out, "  tls     offered{}", certificates(paths))?;
            if paths.client_roots.is_some() {
                writeln!(out, "          without it  {}", open_to_all(plan))?;
            }
        }
        TlsPlan::Required(paths) => writeln!(out, "  tls     required{}", certificates(paths))?,
    }
    if let Some(address) = running.http() {
        writeln!(out, "  live    http://{address}/stats  metrics http://{address}/metrics")?;
    }
    out.flush()?;
    Ok(())
}

/// A store without what slows it or makes it fail, and that, outermost first.
fn unwrapped(mut store: &StoreSpec) -> (&StoreSpec, Vec<String>) {
    let mut wrappers = Vec::new();
    while let StoreSpec::Delay(_, inner) | StoreSpec::Fail(_, inner) = store {
        let (all, rest) = (store.to_string(), inner.to_string());
        wrappers.push(all.strip_suffix(&format!(":{rest}")).unwrap_or(&all).to_owned());
        store = inner;
    }
    (store, wrappers)
}

fn certificates(paths: &TlsPaths) -> &'static str {
    if paths.client_roots.is_some() { ", clients show a certificate" } else { "" }
}

/// What connections may do that show no certificate, where TLS is only offered.
fn open_to_all(plan: &Plan) -> String {
    let mut open = Vec::new();
    for planned in &plan.volumes {
        let (name, access) = (&planned.config.name, &planned.access);
        if !access.tls_required && access.clients.is_empty() {
            let writable = access.writers.is_empty() && !planned.config.read_only;
            open.push(format!("{name} {}", if writable { "read and write" } else { "read" }));
        }
    }
    if open.is_empty() { "nothing".to_owned() } else { open.join(", ") }
}

/// Structured logs on standard error, one line an event, coloured for a person only.
fn log(verbose: u8) {
    use tracing_subscriber::EnvFilter;
    let default = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
    logs.with_ansi(stderr().is_terminal()).init();
}
