//! Whether the memory that the caches are promised exists, with what comes with them (index,
//! policy, advice): it is compared with the machine's, and with what the control groups of this
//! process allow.

use std::fs;
use std::path::{Path, PathBuf};

use undercroft_text::Bytes;

use crate::advice::feeder::AdviceBytes;
use crate::config::VolumeConfig;
use crate::process::error::ServeError;

/// Bytes that index and policy need for a block, about.
const BLOCK_OVERHEAD: u64 = 100;

/// Bytes that index, order, checks and ghosts need for a block on flash.
const FLASH_OVERHEAD: u64 = 9;

/// Memory that this process can have.
#[derive(Debug, PartialEq, Eq)]
struct Limit {
    bytes: u64,
    /// Who sets the limit, for messages.
    whose: String,
}

/// Refuses volumes whose caches are larger than the memory that this process can have, and logs it
/// if they are larger than what is free now.
pub(crate) fn check(volumes: &[VolumeConfig]) -> Result<(), ServeError> {
    check_below(Path::new("/"), volumes)
}

/// Whether the cache of a volume as it is to be fits beside those of the others among `volumes`.
/// `total`: what all caches may have together, if that is given.
pub(crate) fn has_room(
    volumes: &[VolumeConfig],
    after: &VolumeConfig,
    total: Option<u64>,
) -> Result<(), String> {
    let others = volumes.iter().filter(|volume| volume.name != after.name);
    let taken = others.map(VolumeConfig::cache_bytes).sum();
    let Some(total) = total else { return Ok(()) };
    let (free, own) = (total.saturating_sub(taken), after.cache_bytes());
    if own <= free {
        return Ok(());
    }
    Err(format!(
        "it asks for {} of cache, and {} of {} are free for it: give the server a larger cache, or \
         other volumes a smaller one",
        Bytes(own),
        Bytes(free),
        Bytes(total)
    ))
}

fn check_below(root: &Path, volumes: &[VolumeConfig]) -> Result<(), ServeError> {
    let overhead = |volume: &VolumeConfig| {
        let on_flash = volume.flash_bytes / u64::from(volume.block_bytes.max(1));
        u64::from(volume.cache_blocks) * BLOCK_OVERHEAD + on_flash * FLASH_OVERHEAD
    };
    let mut advice = AdviceBytes::default();
    let needs = volumes.iter().map(|volume| {
        let frames = volume.memory_bytes();
        frames.saturating_add(overhead(volume)).saturating_add(advice.of(volume))
    });
    let needed = needs.fold(0, u64::saturating_add);
    let caches = volumes.iter().fold(0, |sum: u64, one| sum.saturating_add(one.cache_bytes()));
    // In the unit of the caches, so that the two are easily compared.
    let unit = unit(caches);
    let (caches, shown) = (shown(caches, unit, false), shown(needed, unit, true));
    if let Some(Limit { bytes, whose }) = limit(root).filter(|limit| needed > limit.bytes) {
        return Err(ServeError::Plan(format!(
            "caches of {caches} need {shown} of memory, and {whose} {}: give them less (cache, flash)",
            there_are(bytes)
        )));
    }
    let available = of_meminfo(root, "MemAvailable:");
    if let Some(available) = available.filter(|&available| needed > available) {
        tracing::warn!(
            "caches of {caches} need {shown} of memory, and {} are available now: while other \
             programs hold the rest, the caches cannot be filled",
            there_are(available)
        );
    }
    Ok(())
}

/// A unit of sizes, and its bytes.
type Unit = (&'static str, u64);

/// The largest unit that a size has once; below, MiB.
fn unit(bytes: u64) -> Unit {
    let units = [("TiB", 1 << 40), ("GiB", 1 << 30)];
    units.into_iter().find(|(_, unit)| bytes >= *unit).unwrap_or(("MiB", 1 << 20))
}

/// A size in a unit, rounded up or down: to tenths below ten units, otherwise to whole ones.
fn shown(bytes: u64, (name, unit): Unit, up: bool) -> String {
    let parts = if bytes / unit < 10 { 10 } else { 1 };
    let scaled = u128::from(bytes) * parts;
    let unit = u128::from(unit);
    let number = if up { scaled.div_ceil(unit) } else { scaled / unit };
    match number % parts {
        0 => format!("{}{name}", number / parts),
        tenths => format!("{}.{tenths}{name}", number / parts),
    }
}

/// Memory that there is, rounded down, while what is needed is rounded up.
fn there_are(bytes: u64) -> String {
    shown(bytes, unit(bytes), false)
}

/// The lowest limit that is known.
fn limit(root: &Path) -> Option<Limit> {
    let machine = of_meminfo(root, "MemTotal:");
    let machine = machine.map(|bytes| Limit { bytes, whose: "this machine has".to_owned() });
    machine.into_iter().chain(group_limits(root)).min_by_key(|limit| limit.bytes)
}

fn of_meminfo(root: &Path, name: &str) -> Option<u64> {
    let told = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = told.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// The limits of this process's control groups, of version 2 and 1, and of those above them.
fn group_limits(root: &Path) -> Vec<Limit> {
    let told = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut limits = Vec::new();
    for line in told.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mount, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            some if some.split(',').any(|one| one == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // In a container only the group itself may be mounted, in place of the root.
        let groups = Path::new(path.trim_start_matches('/')).ancestors();
        for group in groups {
            let path = root.join(mount).join(group).join(file);
            let Ok(text) = fs::read_to_string(&path) else { continue };
            // "max", or the largest number, is no limit.
            let Ok(bytes) = text.trim().parse() else { continue };
            let group = PathBuf::from("/").join(group);
            limits
                .push(Limit { bytes, whose: format!("control group {} allows", group.display()) });
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn caches(size: &str) -> Vec<VolumeConfig> {
        let volumes = ["a=mem:", "b=mem:,cache=1MiB"].map(|text| Settings::volume(text).unwrap());
        let settings = Settings::default().set("volume", volumes.to_vec()).set("cache", size);
        settings.config().unwrap().volumes
    }

    #[test]
    fn caches_are_compared_with_the_machine_and_its_control_groups() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let check =
            |size| check_below(folder.path(), &caches(size)).map_err(|error| error.to_string());
        // Nothing is known: nothing is refused.
        assert_eq!(check("4TiB"), Ok(()));
        write("proc/meminfo", "MemTotal:       33554432 kB\nMemAvailable:   1048576 kB\n");
        let said = check("500GiB").unwrap_err();
        let needed = said.strip_prefix("caches of 500GiB need ").unwrap().split("GiB").next();
        // 513 GiB without advice, which may take 2 % of the caches.
        let needed = needed.unwrap().parse().unwrap();
        assert!((521..=524).contains(&needed), "{said}");
        assert!(
            said.ends_with("and this machine has 32GiB: give them less (cache, flash)"),
            "{said}"
        );
        let said = check("4TiB").unwrap_err();
        assert!(said.starts_with("caches of 4TiB need 4.2TiB of memory"), "{said}");
        let mut without = caches("500GiB");
        without.iter_mut().for_each(|volume| volume.adviser = false);
        let said = check_below(folder.path(), &without).unwrap_err().to_string();
        assert!(said.starts_with("caches of 500GiB need 513GiB of memory"), "{said}");
        assert_eq!(check("30GiB"), Ok(()));
        assert!(check("32GiB").is_err(), "frames are not all that is needed");
        // 9 bytes for each of the blocks on flash.
        without = caches("1GiB");
        without.iter_mut().for_each(|volume| volume.adviser = false);
        without[0].flash_bytes = 13 << 40;
        assert!(check_below(folder.path(), &without).is_ok());
        without[1].flash_bytes = 2 << 40;
        let said = check_below(folder.path(), &without).unwrap_err().to_string();
        assert!(said.starts_with("caches of 1GiB need 35GiB of memory"), "{said}");
        write("proc/self/cgroup", "5:cpu,memory:/old\n0::/a.slice/b.service\n");
        write("sys/fs/cgroup/a.slice/b.service/memory.max", "max\n");
        write("sys/fs/cgroup/memory/old/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(check("30GiB"), Ok(()));
        write("sys/fs/cgroup/a.slice/memory.max", "1073741824\n");
        assert_eq!(check("512MiB"), Ok(()));
        let said = check("1GiB").unwrap_err();
        assert!(said.contains("control group /a.slice allows 1GiB"), "{said}");
        write("sys/fs/cgroup/memory/old/memory.limit_in_bytes", "104857600\n");
        assert!(check("512MiB").unwrap_err().contains("control group /old allows 100MiB"));
    }
}
