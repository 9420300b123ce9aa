//! `undercroft serve`: the storage server. Reads the settings, starts it, waits for signals.

use std::io::{IsTerminal, Write, stderr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use undercroft_server::VolumeConfig;
use undercroft_server::process::{Address, Running, ServerConfig, Settings, TlsMode, check};

use super::keys;
use crate::descriptors;
use crate::error::Error;
use crate::service::Service;
use crate::signals::EndSignals;
use crate::table::bytes;

/// The file that is read if it is there and no other is named.
const CONFIG: &str = "undercroft.toml";

/// How often a server looks whether a volume has come.
const LOOK: Duration = Duration::from_secs(1);

/// How long the end waits for threads that do not come back.
const LEFT_BEHIND: Duration = Duration::from_secs(1);

/// Flags. Those that serde sees are options of the server, by the names of the file.
#[derive(clap::Args, serde::Serialize)]
#[command(after_help = format!("{}\n\n{}", keys::names(), stores()))]
#[command(after_long_help = format!("{}\n\n{}", keys::all(), stores()))]
pub(crate) struct Args {
    /// Configuration file [default: undercroft.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// Say what would be served, or what is wrong; open and change nothing
    #[arg(long)]
    #[serde(skip)]
    check: bool,
    #[arg(long, value_name = "ADDR", help = keys::help("listen"))]
    listen: Vec<String>,
    /// A volume: NAME=STORE[,key=value]...; may be repeated. The keys and the stores stand below.
    /// STORE: file:PATH, file(direct):PATH, mem:, nbd://HOST/EXPORT, s3://BUCKET/PREFIX,
    /// concat(A;B), delay(5ms):STORE, ...
    #[arg(long, value_name = "VOLUME", value_parser = Settings::volume)]
    volume: Vec<toml::Table>,
    #[arg(long, value_name = "SIZE", help_heading = "Cache", help = keys::help("cache"))]
    cache: Option<String>,
    #[arg(long, value_name = "FLASH", help_heading = "Cache", help = keys::help("flash"))]
    flash: Option<String>,
    #[arg(long, value_name = "POLICY", help_heading = "Cache", help = keys::help("policy"))]
    policy: Option<String>,
    #[arg(long, value_name = "PLACEMENT", help_heading = "Cache", help = keys::help("placement"))]
    placement: Option<String>,
    #[arg(long, value_name = "MODE", help_heading = "Cache", help = keys::help("write"))]
    write: Option<String>,
    #[arg(long, value_name = "SIZE", help_heading = "Cache", help = keys::help("block"))]
    block: Option<String>,
    #[arg(long, value_name = "N", help_heading = "Cache", help = keys::help("shards"))]
    shards: Option<u32>,
    #[arg(long, value_name = "YES|NO", help_heading = "Cache", help = keys::help("adviser"))]
    adviser: Option<String>,
    #[arg(long, value_name = "FIXED|AUTO", help_heading = "Cache", help = keys::help("share"))]
    share: Option<String>,
    #[arg(long, value_name = "ADDR", help = keys::help("http"))]
    http: Option<String>,
    #[arg(long, value_name = "FILE", help_heading = "Files", help = keys::help("http-token-file"))]
    #[serde(rename = "http-token-file")]
    http_token_file: Option<PathBuf>,
    #[arg(long = "http-host", value_name = "NAME", help = keys::help("http-hosts"))]
    #[serde(rename = "http-hosts")]
    http_hosts: Vec<String>,
    #[arg(long, value_name = "DIR", help_heading = "Files", help = keys::help("state"))]
    state: Option<PathBuf>,
    #[arg(long, value_name = "DIR", help_heading = "Files", help = keys::help("unwritten"))]
    unwritten: Option<PathBuf>,
    /// More of what happens, on standard error; RUST_LOG says it in detail
    #[arg(short, long, action = clap::ArgAction::Count)]
    #[serde(skip)]
    verbose: u8,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    tls: TlsArgs,
}

#[derive(clap::Args, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Limits")]
struct LimitArgs {
    #[arg(long, value_name = "SECONDS", help = keys::help("limits.close-s"))]
    close_s: Option<u64>,
}

#[derive(clap::Args, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "TLS")]
struct TlsArgs {
    #[arg(long, value_name = "FILE", requires = "tls_key", help = keys::help("tls.certificate"))]
    #[serde(rename = "certificate")]
    tls_certificate: Option<PathBuf>,
    #[arg(long, value_name = "FILE", requires = "tls_certificate", help = keys::help("tls.key"))]
    #[serde(rename = "key")]
    tls_key: Option<PathBuf>,
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    #[arg(help = keys::help("tls.client-roots"))]
    #[serde(rename = "client-roots")]
    tls_client_roots: Option<PathBuf>,
    /// Nothing without TLS
    #[arg(long, requires = "tls_certificate")]
    #[serde(rename = "mode", serialize_with = "required", skip_serializing_if = "is_not")]
    tls_required: bool,
    #[arg(long, value_name = "FILE", help = keys::help("tls.upstream-roots"))]
    #[serde(rename = "upstream-roots")]
    tls_upstream_roots: Option<PathBuf>,
    #[arg(long, value_name = "FILE", requires = "tls_upstream_key")]
    #[arg(help = keys::help("tls.upstream-certificate"))]
    #[serde(rename = "upstream-certificate")]
    tls_upstream_certificate: Option<PathBuf>,
    #[arg(long, value_name = "FILE", requires = "tls_upstream_certificate")]
    #[arg(help = keys::help("tls.upstream-key"))]
    #[serde(rename = "upstream-key")]
    tls_upstream_key: Option<PathBuf>,
}

/// The kinds of stores, for the help.
fn stores() -> String {
    let kinds = undercroft_store::kinds().filter(|kind| !kind.form.is_empty());
    let lines = kinds.map(|kind| format!("  {:<30} {}", kind.form, kind.summary));
    format!("Stores:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

fn is_not(flag: &bool) -> bool {
    !flag
}

fn required<S: serde::Serializer>(_: &bool, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str("required")
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    log(args.verbose);
    let descriptors = descriptors::raise();
    let mut config = configuration(args).map_err(Error::Usage)?;
    if let Some(what) = descriptors::fit(&mut config, descriptors) {
        tracing::warn!("{what}");
    }
    if args.check {
        return announce_checked(args, &config);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(serve(args, &config, descriptors));
    // What a thread still waits for, a file on a disk that does not answer say, has had its time.
    runtime.shutdown_timeout(LEFT_BEHIND);
    ended
}

/// The configuration file.
fn file(args: &Args) -> Option<&Path> {
    args.config.as_deref().or(Some(Path::new(CONFIG)).filter(|path| path.exists()))
}

/// What flags, file and environment ask for.
fn configuration(args: &Args) -> Result<ServerConfig, String> {
    let file = match file(args) {
        Some(path) => {
            tracing::info!(file = %path.display(), "reads its configuration");
            Settings::from_file(path)?
        }
        None => Settings::default(),
    };
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let environment = Settings::from_environment(variables)?;
    let flags = Settings::of(args).map_err(|error| error.to_string())?;
    flags.or(file).or(environment).config()
}

/// What flags, file and environment ask for now, for a reload.
fn read_again(args: &Args, descriptors: Option<u64>) -> Result<ServerConfig, String> {
    let mut config = configuration(args)?;
    // As at the start, where it was said.
    let _ = descriptors::fit(&mut config, descriptors);
    Ok(config)
}

async fn serve(args: &Args, config: &ServerConfig, descriptors: Option<u64>) -> Result<(), Error> {
    // Before anything is opened, so that no signal is missed.
    let mut end = EndSignals::new()?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut running = tokio::select! {
        started = Running::start(config) => started?,
        () = end.next() => return Ok(()),
    };
    announce(args, &running)?;
    let mut service = Service::default();
    service.ready(&running);
    loop {
        tokio::select! {
            () = end.next() => break,
            _ = hang_up.recv() => {}
            asked = running.asked() => {
                tokio::select! {
                    () = running.set(asked) => continue,
                    () = end.next() => break,
                }
            }
            // A volume may have come.
            () = tokio::time::sleep(LOOK), if !running.pending_volumes().is_empty() => {
                service.look(&running);
                continue;
            }
        }
        service.reloading();
        // A store that does not answer holds up what is reloaded, and not the end.
        let problems = tokio::select! {
            problems = running.reload(read_again(args, descriptors)) => problems,
            () = end.next() => break,
        };
        service.reloaded(&running, &problems);
    }
    service.stopping();
    Ok(running.stop().await?)
}

/// Says what is served, and what one could do next.
fn announce(args: &Args, running: &Running) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    let version = env!("CARGO_PKG_VERSION");
    writeln!(out, "undercroft {version}  serving {}", running.addresses().join(" "))?;
    let (server, volumes, pending) =
        (running.config(), running.volumes(), running.pending_volumes());
    for (number, config) in server.volumes.iter().enumerate() {
        let name = &config.name;
        if let Some((_, why)) = pending.iter().find(|(pending, _)| pending == name) {
            writeln!(out, "  volume  {name}  not served yet: {why}")?;
            continue;
        }
        let Some(volume) = volumes.iter().find(|v| v.config().name == *name) else { continue };
        let (size, is_read_only) = (Some(volume.size()), volume.is_read_only());
        describe(&mut out, config, size, is_read_only, number == 0)?;
    }
    describe_flash(&mut out, server)?;
    describe_tls(&mut out, server)?;
    describe_file(&mut out, args)?;
    describe_http(&mut out, running.http(), server)?;
    out.flush()?;
    Ok(())
}

/// Says what a configuration would serve, as far as that can be known without opening anything.
fn announce_checked(args: &Args, server: &ServerConfig) -> Result<(), Error> {
    let checked = check(server)?;
    let mut out = std::io::stdout().lock();
    let addresses: Vec<_> = server.listen.iter().map(ToString::to_string).collect();
    let version = env!("CARGO_PKG_VERSION");
    writeln!(out, "undercroft {version}  would serve at {}", addresses.join(" "))?;
    for (number, (config, checked)) in server.volumes.iter().zip(checked).enumerate() {
        describe(&mut out, config, checked.size, config.read_only, number == 0)?;
        for remark in checked.remarks {
            writeln!(out, "          {remark}")?;
        }
    }
    describe_flash(&mut out, server)?;
    describe_tls(&mut out, server)?;
    describe_file(&mut out, args)?;
    describe_http(&mut out, server.http.as_ref(), server)?;
    out.flush()?;
    Ok(())
}

/// The lines about a volume.
fn describe(
    out: &mut impl Write,
    config: &VolumeConfig,
    size: Option<u64>,
    is_read_only: bool,
    is_default: bool,
) -> Result<(), Error> {
    let (store, wrappers) = config.store.unwrapped();
    let (name, write) = (&config.name, config.write);
    let shown = size.map_or_else(|| "size of its store".to_owned(), bytes);
    write!(out, "  volume  {name}  {shown}  {store}  write-{write}")?;
    write!(out, "{}", if is_read_only { "  read-only" } else { "" })?;
    // What clients get who name no export.
    writeln!(out, "{}", if is_default { "  default export" } else { "" })?;
    if !wrappers.is_empty() {
        writeln!(out, "          for tests  {}", wrappers.join("  "))?;
    }
    match config.cache_bytes() {
        0 => writeln!(out, "          not cached")?,
        cache => writeln!(
            out,
            "          cache {}  block {}  policy {}  placement {}",
            bytes(cache),
            bytes(config.block_bytes.into()),
            config.policy,
            config.placement
        )?,
    }
    if config.flash_bytes > 0 {
        writeln!(out, "          flash {}", bytes(config.flash_bytes))?;
    }
    if let Some(terms) = config.lending() {
        writeln!(out, "          {terms}")?;
    }
    if size.is_some_and(|size| config.cache_bytes() > size) {
        writeln!(out, "          the cache is larger than the volume: less would do")?;
    }
    Ok(())
}

/// The line about the level on flash.
fn describe_flash(out: &mut impl Write, server: &ServerConfig) -> Result<(), Error> {
    if let Some(flash) = &server.flash {
        writeln!(out, "  flash   {flash}")?;
    }
    Ok(())
}

/// The line about the HTTP listener.
fn describe_http(
    out: &mut impl Write,
    address: Option<&Address>,
    server: &ServerConfig,
) -> Result<(), Error> {
    let token = if server.http_token_file.is_some() { "  with the token" } else { "" };
    match address {
        None => {}
        Some(Address::Tcp(host)) => {
            writeln!(out, "  live    http://{host}/  metrics http://{host}/metrics{token}")?;
        }
        Some(unix) => writeln!(out, "  live    {unix}  / /stats /metrics /healthz{token}")?,
    }
    Ok(())
}

/// The line about the configuration file, which may be one that nobody named.
fn describe_file(out: &mut impl Write, args: &Args) -> Result<(), Error> {
    let Some(path) = file(args) else { return Ok(()) };
    let whole = std::path::absolute(path)?;
    let why = if args.config.is_none() { "  found here" } else { "" };
    writeln!(out, "  config  {}{why}", whole.display())?;
    Ok(())
}

/// The lines about TLS.
fn describe_tls(out: &mut impl Write, server: &ServerConfig) -> Result<(), Error> {
    let asks = server.tls.asks_for_certificates();
    let certificates = if asks { ", clients show a certificate" } else { "" };
    match server.tls.mode {
        TlsMode::Required => writeln!(out, "  tls     required{certificates}")?,
        TlsMode::Offered => {
            writeln!(out, "  tls     offered{certificates}")?;
            if asks {
                writeln!(out, "          without it  {}", open_to_all(server))?;
            }
        }
        TlsMode::Auto | TlsMode::Off => {}
    }
    Ok(())
}

/// What connections may do that show no certificate, where TLS is only offered.
fn open_to_all(server: &ServerConfig) -> String {
    let is_open = |volume: &&VolumeConfig| !volume.tls_required && volume.clients.is_empty();
    let open = server.volumes.iter().filter(is_open).map(|volume| {
        let writable = volume.writers.is_empty() && !volume.read_only;
        format!("{} {}", volume.name, if writable { "read and write" } else { "read" })
    });
    let open: Vec<_> = open.collect();
    if open.is_empty() { "nothing".to_owned() } else { open.join(", ") }
}

/// Passes on the lines of the log that are events, whatever is printed.
struct Events;

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Events {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        undercroft_server::keep_event(event);
    }
}

/// Structured logs on standard error, one line an event, coloured for a person only. `RUST_LOG` has
/// levels, also by module (`undercroft_server=debug`); there are no spans to choose by.
fn log(verbose: u8) {
    use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
    use tracing_subscriber::prelude::*;
    let usual = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let told = std::env::var("RUST_LOG").ok().filter(|text| !text.trim().is_empty());
    let told = told.and_then(|text| text.parse::<Targets>().ok());
    let filter = told.unwrap_or_else(|| Targets::new().with_default(usual));
    let logs = tracing_subscriber::fmt::layer().with_writer(stderr);
    let logs = logs.with_ansi(stderr().is_terminal()).with_filter(filter);
    let is_event = filter_fn(undercroft_server::is_event).with_max_level_hint(LevelFilter::INFO);
    let events = Events.with_filter(is_event);
    tracing_subscriber::registry().with(logs).with(events).init();
}
