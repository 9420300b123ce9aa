//! The memory limit of a process's control groups. Pages of the segment in a memory file system
//! count there, and a group that exceeds its limit is killed.

use std::path::Path;

/// The mount point of control groups.
const ROOT: &str = "/sys/fs/cgroup";

/// The lowest memory limit in bytes among the groups of this process, if there is one.
pub(crate) fn memory_limit() -> Option<u64> {
    limit(Path::new(ROOT), &std::fs::read_to_string("/proc/self/cgroup").ok()?)
}

/// `groups` is the content of `/proc/self/cgroup`: lines of a number, controllers and a path. In a
/// container the path may be the one outside; then only its upper part exists.
fn limit(root: &Path, groups: &str) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        let places: &[(&str, &str)] = if controllers.is_empty() {
            &[("", "memory.max"), ("unified", "memory.max")]
        } else if controllers.split(',').any(|name| name == "memory") {
            &[("memory", "memory.limit_in_bytes")]
        } else {
            &[]
        };
        let path = Path::new(path.trim_start_matches('/'));
        places.iter().flat_map(move |(below, file)| {
            let folders = path.ancestors().map(move |group| root.join(below).join(group));
            folders.filter_map(move |folder| {
                // The value may be "max", or the file may not exist.
                std::fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok()
            })
        })
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let root = tempfile::tempdir().unwrap();
        let set = |group: &str, file: &str, text: &str| {
            let folder = root.path().join(group);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(file), text).unwrap();
        };
        let of = |groups| limit(root.path(), groups);
        assert_eq!(of("0::/system/db\n"), None);
        set("system/db", "memory.max", "max\n");
        assert_eq!(of("0::/system/db\n"), None);
        set("system", "memory.max", "5000\n");
        set("memory/a/b", "memory.limit_in_bytes", "9223372036854771712\n");
        set("memory/a", "memory.limit_in_bytes", "4000\n");
        set("memory", "memory.limit_in_bytes", "7000\n");
        assert_eq!(of("0::/system/db\n"), Some(5000));
        assert_eq!(of("0::/system/db:odd\n"), Some(5000));
        assert_eq!(of("9:cpu,memory:/a/b\n0::/system/db\n"), Some(4000));
        assert_eq!(of("9:cpu:/a/b\n"), None);
        // The path as seen outside of the container.
        assert_eq!(of("4:memory:/docker/77\n"), Some(7000));
        assert_eq!(of("nonsense\n\n"), None);
    }
}
