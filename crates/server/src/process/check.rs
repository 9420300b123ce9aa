//! Looks at what a configuration names, and changes nothing: no store is opened, nothing is
//! created, no address is taken, no other server is asked. What only a start can find remains: an
//! address or a file in use, a service that is away, an export of another size.

use std::fs;
use std::path::Path;

use rustix::fs::{Access, access};

use crate::config::{ServerConfig, VolumeConfig};
use crate::http::token;
use crate::process::error::ServeError;
use crate::process::flash_file::{fits, is_below_dev};
use crate::process::memory_limit;

/// What is known of a volume without opening its store.
#[derive(Debug, Default)]
pub struct Checked {
    /// Bytes of the store, where they are known.
    pub size: Option<u64>,
    /// What an operator should know.
    pub remarks: Vec<String>,
}

/// Checks a valid configuration against the machine; the result has an entry for each volume.
///
/// # Errors
/// Everything that a start would refuse, in one text.
pub fn check(config: &ServerConfig) -> Result<Vec<Checked>, ServeError> {
    let (mut found, mut wrong, mut is_plan) = (Vec::new(), Vec::new(), false);
    let mut note = |error: ServeError| {
        is_plan |= matches!(error, ServeError::Plan(_));
        wrong.push(error.to_string());
    };
    for general in [memory_limit::check(&config.volumes), files(config), flash(config)] {
        general.unwrap_or_else(&mut note);
    }
    for volume in &config.volumes {
        match look_at(volume) {
            Ok(checked) => found.push(checked),
            Err(error) => note(error),
        }
    }
    if let Some(last) = found.last_mut().filter(|_| wrong.is_empty()) {
        last.remarks.extend(lacks_a_side(config).map(str::to_owned));
        last.remarks.extend(lacks_flash(config));
    }
    match (wrong.is_empty(), is_plan) {
        (true, _) => Ok(found),
        (false, true) => Err(ServeError::Plan(wrong.join("; "))),
        (false, false) => Err(ServeError::Work(wrong.join("; "))),
    }
}

/// Which key has no effect, since no other volume is on the other side.
pub(crate) fn lacks_a_side(config: &ServerConfig) -> Option<&'static str> {
    let all = &config.volumes;
    all.iter().find_map(|one| {
        let others = |does: fn(&VolumeConfig) -> bool| {
            all.iter().any(|other| other.name != one.name && does(other))
        };
        let (lends, borrows) = (others(VolumeConfig::lends), others(VolumeConfig::borrows));
        if one.is_share_auto {
            let none = "share=auto has no effect: no other volume has it, cache-min or cache-max";
            (!lends && !borrows).then_some(none)
        } else if one.cache_min.is_some() && !borrows {
            Some("cache-min has no effect: no other volume has cache-max or share=auto")
        } else if one.cache_max.is_some() && !lends {
            Some("cache-max has no effect: no other volume has cache-min or share=auto")
        } else {
            None
        }
    })
}

/// A file for flash that a start would make.
fn flash(config: &ServerConfig) -> Result<(), ServeError> {
    let new = config.flash.iter().find(|flash| !flash.path.exists());
    new.map_or(Ok(()), |flash| fits(flash.bytes).map_err(ServeError::Plan))
}

/// Which device for flash is not there. A start goes on without it, so it is a remark.
fn lacks_flash(config: &ServerConfig) -> Option<String> {
    let path = &config.flash.as_ref()?.path;
    let is_missing = is_below_dev(path) && !path.exists();
    let what = "there is no such device: the volumes would be served without it";
    is_missing.then(|| format!("flash {}: {what}", path.display()))
}

/// Reads the files of TLS, and the token.
fn files(config: &ServerConfig) -> Result<(), ServeError> {
    let work = |error: &dyn std::fmt::Display| ServeError::Work(format!("tls: {error}"));
    if let Some(files) = config.tls.files() {
        files.load().map_err(|error| work(&error))?;
        config.tls.warn_of_dates();
    }
    if let Some(files) = config.tls.upstream_files() {
        files.load().map_err(|error| work(&error))?;
    }
    let token = config.http_token_file.as_deref().map(token::read).transpose();
    token.map(drop).map_err(ServeError::Work)
}

fn look_at(config: &VolumeConfig) -> Result<Checked, ServeError> {
    let (store, _) = config.store.unwrapped();
    let (text, files) = (store.to_string(), store.files());
    let mut checked = Checked { size: config.size, remarks: Vec::new() };
    for file in &files {
        let bytes = look_at_file(config, file, &text, &mut checked.remarks)?;
        // The size of several files together depends on how they are combined.
        if text.starts_with("file") {
            checked.size = bytes.or(config.size);
        }
    }
    if files.is_empty() && !text.starts_with("mem") {
        checked.remarks.push(format!("{text} was not looked at: it may be away, or not fit"));
    }
    // Without a store its unit is taken for granted.
    let plan = |error| ServeError::Plan(format!("{error}"));
    config.check(checked.size.unwrap_or(0), 1).map_err(plan)?;
    Ok(checked)
}

/// The size of an existing file; `None` for a device, and for a file that would be created.
fn look_at_file(
    config: &VolumeConfig,
    file: &Path,
    store: &str,
    remarks: &mut Vec<String>,
) -> Result<Option<u64>, ServeError> {
    let (name, path) = (&config.name, file.display());
    let work = |what: &str| Err(ServeError::Work(format!("volume {name}: {path}: {what}")));
    let found = match fs::metadata(file) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let has_size = config.size.is_some() || store.contains("size=");
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            let has_folder = folder.is_none_or(Path::is_dir);
            let may_be_made = config.create && !config.read_only && has_size && has_folder;
            if !may_be_made || is_below_dev(file) {
                return work(&error.to_string());
            }
            remarks.push(format!("{path} does not exist and would be created, of zeroes"));
            return Ok(None);
        }
        Err(error) => return work(&error.to_string()),
    };
    if found.is_dir() {
        return work("is a folder");
    }
    let rights =
        if config.read_only { Access::READ_OK } else { Access::READ_OK | Access::WRITE_OK };
    if let Err(error) = access(file, rights) {
        return work(&std::io::Error::from(error).to_string());
    }
    let bytes = found.is_file().then_some(found.len());
    match (bytes, config.size) {
        (Some(bytes), Some(told)) if bytes != told && store.starts_with("file") => {
            let what = format!("has {bytes} bytes, not {told}");
            Err(ServeError::Plan(format!("volume {name}: {path}: {what}")))
        }
        _ => Ok(bytes),
    }
}
