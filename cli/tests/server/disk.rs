//! A volume as a file or the machine's own disk, on machines without an NBD driver too.

use std::process::Child;
use std::time::{Duration, Instant};

use super::support::{PATIENCE, Place, text};

/// A volume as a disk of this machine: a file by FUSE, a loop device on it. Taken apart with the
/// test, however it ends.
pub(crate) struct Disk<'a> {
    place: &'a Place,
    /// Unmounted last.
    _file: Mounted<'a>,
    device: Option<String>,
    mounted: bool,
}

impl<'a> Disk<'a> {
    /// # Errors
    /// Says what this machine does not allow.
    pub(crate) fn new(place: &'a Place, uri: &str) -> Result<Disk<'a>, String> {
        Self::through(place, "fuse", uri)
    }

    /// Another one of the same place, whose file is in this folder.
    ///
    /// # Errors
    /// Says what this machine does not allow.
    pub(crate) fn through(
        place: &'a Place,
        folder: &'static str,
        uri: &str,
    ) -> Result<Disk<'a>, String> {
        let _file = Mounted::new(place, folder, uri)?;
        let mut disk = Disk { place, _file, device: None, mounted: false };
        // Without direct I/O the loop device would be a cache of its own.
        let file = format!("{folder}/nbd");
        let arguments = ["--find", "--show", "--direct-io=on", &file];
        let output = place.command("losetup", &arguments).output().unwrap();
        if !output.status.success() {
            return Err("losetup may not make a device".to_owned());
        }
        disk.device = Some(text(&output.stdout).trim().to_owned());
        Ok(disk)
    }

    pub(crate) fn device(&self) -> &str {
        self.device.as_deref().unwrap()
    }

    /// Mounts its file system at `files`.
    pub(crate) fn mount(&mut self, kind: &str) -> Result<(), String> {
        std::fs::create_dir_all(self.place.path("files")).unwrap();
        let mount = self.place.command("mount", &["-t", kind, self.device(), "files"]).output();
        self.mounted = mount.unwrap().status.success();
        if self.mounted { Ok(()) } else { Err("mounting is not allowed".to_owned()) }
    }

    /// A program that another test begins at that moment has this test's open files until it runs
    /// by itself, so a file that was just closed can keep the mount busy for a while.
    pub(crate) fn unmount(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let output = self.place.command("umount", &["files"]).output().unwrap();
            let said = text(&output.stderr);
            if output.status.success() {
                break;
            }
            assert!(said.contains("busy") && Instant::now() < deadline, "umount files: {said}");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.mounted = false;
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        // An error of any of these leaves the next ones to do.
        if self.mounted {
            let _ = self.place.command("umount", &["--lazy", "files"]).output();
        }
        if let Some(device) = &self.device {
            let _ = self.place.command("losetup", &["--detach", device]).output();
        }
    }
}

/// A volume as a file, `nbd` in a folder.
pub(crate) struct Mounted<'a>(&'a Place, &'static str, Child);

impl<'a> Mounted<'a> {
    /// # Errors
    /// Says what this machine does not allow.
    pub(crate) fn new(
        place: &'a Place,
        folder: &'static str,
        uri: &str,
    ) -> Result<Mounted<'a>, String> {
        std::fs::create_dir_all(place.path(folder)).unwrap();
        let child = place.command("nbdfuse", &[folder, uri]).spawn().unwrap();
        let mut mounted = Mounted(place, folder, child);
        let deadline = Instant::now() + PATIENCE;
        while !place.path(folder).join("nbd").exists() {
            if mounted.2.try_wait().unwrap().is_some() || Instant::now() > deadline {
                return Err("nbdfuse may not mount".to_owned());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(mounted)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = self.0.command("umount", &["--lazy", self.1]).output();
        let deadline = Instant::now() + PATIENCE;
        while matches!(self.2.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.2.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
