//! Checks a configuration for inconsistent options, and completes it: the volumes' shares of the
//! cache, the mode of TLS.

use std::time::Duration;

use undercroft_flash::HEAD_BYTES;
use undercroft_level::placement::Placement;
use undercroft_policy::Awareness;
use undercroft_text::Bytes;

use super::volume::spare_frames;
use super::{Address, CacheShare, ClientRule, ServerConfig, VolumeConfig};

const DEFAULT_LISTEN: &str = "127.0.0.1:10809";

/// Longest allowed busy poll; more would waste a processor without benefit.
const BUSY_POLL_MAX: Duration = Duration::from_millis(10);

/// Shortest and longest time without references after which a volume may count as idle.
const IDLE_LEAST: Duration = Duration::from_secs(1);
const IDLE_MOST: Duration = Duration::from_secs(3600);

impl ServerConfig {
    /// Checks and completes a configuration.
    ///
    /// # Errors
    /// The options that are wrong, and what was expected, in a line each.
    pub fn validate(self) -> Result<ServerConfig, String> {
        self.validated().map_err(|wrong| wrong.join("\n"))
    }

    /// As `validate`, with each mistake by itself.
    pub(super) fn validated(mut self) -> Result<ServerConfig, Vec<String>> {
        if self.volumes.is_empty() {
            return Err(vec![
                "nothing to serve: give a volume, as --volume demo=file:./demo.img,size=1GiB"
                    .to_owned(),
            ]);
        }
        let mut wrong = Vec::new();
        if self.listen.is_empty() {
            wrong.extend(DEFAULT_LISTEN.parse().map(|address| self.listen.push(address)).err());
        }
        if self.http_token_file.is_some() && self.http.is_none() {
            wrong.push(
                "http-token-file: there is no HTTP listener; give its address (http), or leave the \
                 token out"
                    .to_owned(),
            );
        }
        self.validate_volumes(&mut wrong);
        wrong.extend(self.divide_flash().err());
        match self.tls.validate() {
            Ok(()) => {
                let access = self.volumes.iter().map(|volume| self.validate_access(volume));
                wrong.extend(access.filter_map(Result::err));
            }
            Err(what) => wrong.push(what),
        }
        wrong.extend(self.validate_hosts().err());
        if !self.administrators.is_empty() && !self.tls.asks_for_certificates() {
            wrong.push(
                "administrators are known by their certificates: give the roots of these \
                 (client-roots)"
                    .to_owned(),
            );
        }
        let limits = &mut self.limits;
        if limits.busy_poll > BUSY_POLL_MAX {
            wrong.push(format!(
                "limits.busy-poll-us {}: expected 0 (never) to {}",
                limits.busy_poll.as_micros(),
                BUSY_POLL_MAX.as_micros()
            ));
        }
        for count in [&mut limits.connections, &mut limits.negotiating, &mut limits.requests] {
            *count = (*count).max(1);
        }
        for time in [&mut limits.stall, &mut limits.handshake, &mut self.state_interval] {
            *time = (*time).max(Duration::from_secs(1));
        }
        if wrong.is_empty() { Ok(self) } else { Err(wrong) }
    }

    /// Checks the names under which the HTTP listener answers.
    fn validate_hosts(&self) -> Result<(), String> {
        if !self.http_hosts.is_empty() && self.http.is_none() {
            return Err("http-hosts: there is no HTTP listener; give its address (http)".to_owned());
        }
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = |name: &&String| !name.is_empty() && name.bytes().all(is_part);
        match self.http_hosts.iter().find(|name| !is_name(name)) {
            None => Ok(()),
            Some(wrong) => Err(format!(
                "http-hosts '{wrong}': expected a name as browsers show it, without a port, as \
                 status.example.org"
            )),
        }
    }

    /// Makes the cache as large as the volumes' own shares, where that is more than the default;
    /// volumes without a share then divide the default.
    pub(super) fn raise_cache(&mut self) {
        let shares = self.volumes.iter().map(|volume| volume.cache.own());
        let fixed = shares.clone().flatten().fold(0, u64::saturating_add);
        if fixed > self.cache_bytes {
            let rest = if shares.clone().any(|own| own.is_none()) { self.cache_bytes } else { 0 };
            self.cache_bytes = fixed.saturating_add(rest);
        }
    }

    /// Checks the volumes and divides the cache among them.
    fn validate_volumes(&mut self, wrong: &mut Vec<String>) {
        let shares = self.volumes.iter().filter_map(|volume| volume.cache.own());
        let fixed = shares.fold(0, u64::saturating_add);
        let cache_bytes = self.cache_bytes;
        if fixed > cache_bytes {
            wrong.push(format!(
                "the volumes' shares add up to {} of cache, and the server's is {}: give it more \
                 (cache), or leave its size out",
                Bytes(fixed),
                Bytes(cache_bytes)
            ));
        }
        let sharing = self.volumes.iter().filter(|volume| volume.cache.own().is_none()).count();
        let rest = cache_bytes.saturating_sub(fixed).checked_div(sharing as u64).unwrap_or(0);
        // What a cache of nothing leads to is no mistake of its own.
        let rest = if fixed > cache_bytes { cache_bytes } else { rest };
        for index in 0..self.volumes.len() {
            let (before, others) = self.volumes.split_at_mut(index);
            let volume = &mut others[0];
            volume.close_patience = self.limits.close;
            let what = volume.validate(rest).err();
            wrong.extend(what.map(|what| format!("volume '{}': {what}", volume.name)));
            if before.iter().any(|other| other.name == volume.name) {
                wrong.push(format!("volume '{}' is there twice", volume.name));
            }
        }
    }

    /// Gives the volumes with a cache their shares of flash.
    fn divide_flash(&mut self) -> Result<(), String> {
        let shares = self.volumes.iter().map(|volume| volume.flash.own());
        let fixed = shares.flatten().fold(0, u64::saturating_add);
        let all = self.flash.as_ref().map_or(0, |flash| flash.bytes.saturating_sub(HEAD_BYTES));
        if fixed > all {
            return Err(format!(
                "flash: the volumes' shares add up to {}, and the server has {}: give it more \
                 (flash=PATH,size=SIZE; a MiB of it is its own), or the volumes less",
                Bytes(fixed),
                Bytes(all)
            ));
        }
        let shares_rest =
            |one: &&mut VolumeConfig| one.flash.own().is_none() && one.cache != CacheShare::Off;
        let count = self.volumes.iter_mut().filter(shares_rest).count() as u64;
        let rest = (all - fixed).checked_div(count).unwrap_or(0);
        for volume in &mut self.volumes {
            let has_cache = volume.cache != CacheShare::Off;
            let bytes = volume.flash.own().unwrap_or(if has_cache { rest } else { 0 });
            volume.flash_bytes = VolumeConfig::whole_flash_bytes(bytes);
            if bytes > 0 && !has_cache {
                return Err(format!(
                    "volume '{}': flash lies below a cache, and there is none (cache=off)",
                    volume.name
                ));
            }
        }
        Ok(())
    }

    /// Refuses a volume that nobody could open, or whose lists of clients could not be checked.
    pub(crate) fn validate_access(&self, volume: &VolumeConfig) -> Result<(), String> {
        let name = &volume.name;
        if volume.tls_required && self.tls.files().is_none() {
            return Err(format!(
                "volume '{name}': tls-required, and there is no TLS: give a certificate and a key"
            ));
        }
        let listens = |is_meant: fn(&Address) -> bool| self.listen.iter().any(is_meant);
        for rule in volume.clients.iter().chain(&volume.writers) {
            let missing = match rule {
                ClientRule::Certificate(_) => (!self.tls.asks_for_certificates()).then_some(
                    "nobody shows a certificate: give the roots of those of clients (client-roots)",
                ),
                ClientRule::Address(_) => (!listens(|at| matches!(at, Address::Tcp(_))))
                    .then_some("nobody has an address: listen at HOST:PORT, too"),
                ClientRule::User(_) | ClientRule::Group(..) => {
                    (!listens(|at| matches!(at, Address::Unix(_)))).then_some(
                        "users and groups are known on unix sockets only: listen at unix:PATH, too",
                    )
                }
            };
            if let Some(why) = missing {
                return Err(format!("volume '{name}': client or writer '{rule}': {why}"));
            }
        }
        Ok(())
    }
}

impl VolumeConfig {
    /// Checks the options of a volume, and gives it its share of the cache. `rest`: bytes for a
    /// volume without a share of its own.
    pub(crate) fn validate(&mut self, rest: u64) -> Result<(), String> {
        let name = &self.name;
        let is_long = name.is_empty() || name.len() > 255;
        let is_folder = [".", ".."].contains(&name.as_str());
        if is_long || is_folder || name.starts_with('@') || name.contains(['/', '\0']) {
            return Err("expected a name of 1 to 255 bytes without '/', not beginning with '@', \
                        and other than '.' and '..'"
                .to_owned());
        }
        let (bytes, block) = (self.cache.own().unwrap_or(rest), self.block_bytes);
        let blocks = bytes / u64::from(block.max(1));
        if blocks == 0 && self.cache != CacheShare::Off {
            return Err(format!(
                "a cache of {} holds no block of {}: give it more, or cache=off",
                Bytes(bytes),
                Bytes(block.into())
            ));
        }
        let blocks = u32::try_from(blocks).ok().filter(|&blocks| blocks < 1 << 31);
        let blocks = blocks.ok_or("cache: more than 2147483647 blocks; choose larger blocks")?;
        (self.cache_blocks, self.spare_frames) = (blocks, spare_frames(blocks));
        if self.placement == Placement::Access && (self.estimate || self.reload_at_once) {
            let why =
                "with placement access nobody asks what clients evict, and nothing is reloaded";
            return Err(format!(
                "evictions, reloads: {why}; choose placement=eviction, or leave these keys out"
            ));
        }
        self.shards = self.shards.max(1);
        self.dirty_age = self.dirty_age.max(Duration::from_secs(1));
        self.validate_lending(bytes)?;
        self.validate_share()?;
        self.validate_dirty()?;
        self.validate_streams()?;
        self.validate_report()
    }

    /// Checks that the cache can have the sizes between which it is to change by itself. `bytes`:
    /// its share.
    fn validate_lending(&self, bytes: u64) -> Result<(), String> {
        if !(IDLE_LEAST..=IDLE_MOST).contains(&self.cache_idle) {
            let (least, most) = (IDLE_LEAST.as_secs(), IDLE_MOST.as_secs());
            return Err(format!(
                "cache-idle-s {}: expected {least} to {most}",
                self.cache_idle.as_secs()
            ));
        }
        let (least, most) = (self.cache_min, self.cache_max);
        let Some(key) = least.map(|_| "cache-min").or(most.map(|_| "cache-max")) else {
            return Ok(());
        };
        if self.cache == CacheShare::Off {
            return Err(format!("{key}: there is no cache (cache=off); leave it out"));
        }
        let fewest = u64::from(self.shards) * u64::from(self.block_bytes);
        if least.is_some_and(|least| least > bytes || least < fewest) {
            return Err(format!(
                "cache-min {}: expected {} to {}, which is its cache",
                Bytes(least.unwrap_or(0)),
                Bytes(fewest),
                Bytes(bytes)
            ));
        }
        if let Some(most) = most.filter(|&most| most < bytes) {
            return Err(format!(
                "cache-max {}: less than its cache of {}; it is the most that the cache has with \
                 what it borrows",
                Bytes(most),
                Bytes(bytes)
            ));
        }
        Ok(())
    }

    /// Checks that a share that is to move can: that there is a cache, and advice about it.
    fn validate_share(&self) -> Result<(), String> {
        let why = if !self.is_share_auto {
            return Ok(());
        } else if self.cache == CacheShare::Off {
            "there is no cache (cache=off)".to_owned()
        } else if !self.adviser {
            "the server moves what its adviser says, which is turned off (adviser=no)".to_owned()
        } else if Awareness::of(&self.policy).is_some() {
            format!("there is no advice for a content-aware policy ({})", self.policy)
        } else {
            return Ok(());
        };
        Err(format!("share=auto: {why}; say share=fixed for this volume"))
    }

    /// Checks that the flusher begins before writes must wait.
    fn validate_dirty(&self) -> Result<(), String> {
        if self.dirty_max_share < self.dirty_share {
            return Err(format!(
                "dirty-max-percent: less than dirty-percent, at which the server begins to write \
                 out: {} and {}; choose more, or less of dirty-percent",
                100.0 * self.dirty_max_share,
                100.0 * self.dirty_share
            ));
        }
        if self.dirty_max_age.is_some_and(|most| most <= self.dirty_age) {
            return Err(format!(
                "dirty-max-age-s: not more than dirty-age-s, after which the server begins to \
                 write out ({} s); choose more, or less of dirty-age-s",
                self.dirty_age.as_secs()
            ));
        }
        Ok(())
    }

    /// Checks that streams can pass the cache.
    fn validate_streams(&self) -> Result<(), String> {
        let is_aware = Awareness::of(&self.policy).is_some();
        let is_access = self.placement == Placement::Access;
        if self.stream_cutoff_bytes > 0 && (is_aware || !is_access) {
            return Err(
                "stream-cutoff: streams pass a cache that places blocks when they are read or \
                        written, and does not go by what its clients hold; leave it out, or choose \
                        placement=access and another policy"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Checks `report`: it needs a store that is a server's export, and a cache.
    fn validate_report(&self) -> Result<(), String> {
        let Some(report) = self.report.filter(|report| !report.is_nothing()) else {
            return Ok(());
        };
        let store = &self.store;
        if !store.is_upstream() {
            return Err(format!(
                "report={report}: nobody listens at {store}: the store must be another server's \
                 export, as nbd://HOST/EXPORT, with nothing in front"
            ));
        }
        if self.cache == CacheShare::Off {
            return Err(format!("report={report}: nothing leaves a cache that is off"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn settings(volumes: &[&str]) -> Result<Settings, String> {
        let volumes = volumes.iter().map(|text| Settings::volume(text));
        let volumes = volumes.collect::<Result<Vec<_>, _>>()?;
        Ok(Settings::default().set("volume", volumes))
    }

    fn config(volumes: &[&str], cache: &str) -> Result<ServerConfig, String> {
        settings(volumes)?.set("cache", cache).config()
    }

    #[test]
    fn shares_of_flash() {
        let with = |volumes: &[&str], flash: &str| settings(volumes)?.set("flash", flash).config();
        let all = ["a=mem:,flash=1MiB", "b=mem:", "c=mem:,cache=off", "d=mem:,flash=off", "e=mem:"];
        let config = with(&all, "/flash,size=8MiB").unwrap();
        let shares: Vec<_> = config.volumes.iter().map(|volume| volume.flash_bytes >> 20).collect();
        assert_eq!(shares, [1, 3, 0, 0, 3]);
        assert_eq!(config.flash.unwrap().to_string(), "/flash,size=8MiB,budget=8MiB/day");
        for (volume, flash, why) in [
            ("a=mem:,flash=8MiB", "/flash,size=8MiB", "add up to 8MiB"),
            ("a=mem:,cache=off,flash=1MiB", "/flash,size=8MiB", "there is none"),
            ("a=mem:", "/flash", "the size is missing"),
            ("a=mem:", "/flash,size=8MiB,sequential=1MiB", "stream-cutoff"),
            ("a=mem:", "/flash,size=8MiB,rule=best", "rule=evidence"),
            ("a=mem:", ",size=8MiB", "the path is missing"),
        ] {
            let wrong = with(&[volume], flash).unwrap_err();
            assert!(wrong.contains(why), "{wrong}");
        }
        let none = super::tests::config(&["a=mem:,flash=1MiB"], "1MiB").unwrap_err();
        assert!(none.contains("the server has 0"), "{none}");
    }

    #[test]
    fn shares_of_the_cache() {
        let volumes = ["a=mem:,cache=1MiB", "b=mem:", "c=mem:,block=64KiB", "d=mem:,cache=off"];
        let config = config(&volumes, "3MiB").unwrap();
        let blocks: Vec<_> = config.volumes.iter().map(|volume| volume.cache_blocks).collect();
        assert_eq!(blocks, [256, 256, 16, 0]);
    }

    #[test]
    fn shares_raise_a_cache_that_is_not_given() {
        let with =
            |volumes: &[&str]| settings(volumes).unwrap().config().unwrap().cache_bytes >> 20;
        assert_eq!(with(&["a=mem:,cache=1GiB"]), 1024);
        assert_eq!(with(&["a=mem:,cache=1GiB", "b=mem:"]), 1024 + 256);
        assert_eq!(with(&["a=mem:,cache=1MiB", "b=mem:,cache=off"]), 256);
        let wrong = config(&["a=mem:,cache=1GiB"], "256MiB").unwrap_err();
        let wanted = "the volumes' shares add up to 1GiB of cache, and the server's is 256MiB";
        assert!(wrong.starts_with(wanted), "{wrong}");
    }

    #[test]
    fn busy_polling_is_bounded() {
        let with = |us: Option<i64>| {
            let mut settings = settings(&["a=mem:,size=1MiB"]).unwrap();
            if let Some(us) = us {
                settings = settings.set("limits.busy-poll-us", us);
            }
            settings.config().map(|config| config.limits.busy_poll)
        };
        assert_eq!(with(None), Ok(Duration::from_micros(50)));
        assert_eq!(with(Some(0)), Ok(Duration::ZERO));
        assert!(with(Some(10_001)).is_err_and(|text| text.contains("busy-poll-us 10001")));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for volume in [
            "a=mem:,cache=2MiB",
            "a=mem:,write=sideways",
            "a=mem:,policy=fancy",
            "a=mem:,placement=sideways",
            "a=mem:,placement=eviction,down=auto",
            "a=mem:,placement=access,reloads=at-once",
            "a=mem:,placement=eviction,evictions=guessed",
            "a=nothing:",
            "@a=mem:",
            "a=mem:,dirty-percent=0",
            "a=mem:,stream-cutoff=1MiB,placement=eviction",
            "a=mem:,stream-cutoff=1MiB,policy=lru-ca",
            "a=mem:,cache-min=2MiB",
            "a=mem:,cache-min=4KiB,shards=2",
            "a=mem:,cache-max=4KiB",
            "a=mem:,cache-min=4KiB,cache-idle-s=0",
            "a=mem:,cache-idle-s=3601",
            "a=mem:,cache-max=2MiB,cache=off",
            "a=mem:,share=sideways",
            "a=mem:,share=auto,cache=off",
            "a=mem:,share=auto,adviser=no",
            "a=mem:,share=auto,policy=lru-ca",
            "a=mem:,share=auto,cache-min=2MiB",
            "a=mem:,report=evictions",
            "a=delay(1ms):nbd://h/d,report=evictions",
            "a=nbd://h/d,report=sideways",
            "a=nbd://h/d,report=demotions,batch=65",
            "a=nbd://h/d,report=demotions,cache=off",
            "a=mem:,placement=d-hfa",
        ] {
            assert!(config(&[volume], "1MiB").is_err(), "{volume}");
        }
        // The block size is checked when the volume is opened.
        let good =
            ["a=mem:,report=nothing", "b=nbd://h/d,report=demotions,batch=64", "c=mem:,block=3"];
        assert!(good.iter().all(|volume| config(&[volume], "1MiB").is_ok()));
        assert!(config(&[], "1MiB").is_err());
        assert!(config(&["a=mem:", "a=mem:"], "1MiB").is_err());
    }

    #[test]
    fn addresses_say_what_they_lack() {
        for (address, part) in [
            ("10809", "the host is missing"),
            (":10809", "the host is missing"),
            ("unix:", "the path is missing"),
            ("host:99999", "the port is not a number"),
            ("host:http", "the port is not a number"),
            ("localhost", "the port is missing"),
            ("localhost:", "the port is not a number"),
            ("::1", "the port is missing, and brackets"),
            ("[::1]", "the port is missing"),
            ("2001:db8::1:10809:x", "an IPv6 address stands in brackets"),
        ] {
            for (option, value) in
                [("listen", toml::Value::from(vec![address])), ("http", toml::Value::from(address))]
            {
                let settings = settings(&["a=mem:,size=1MiB"]).unwrap();
                let wrong = settings.set(option, value).config().unwrap_err();
                assert!(wrong.starts_with(&format!("{option} '{address}': {part}")), "{wrong}");
                assert!(wrong.ends_with("as 127.0.0.1:10809 or [::1]:10809, or unix:PATH"));
            }
        }
        for address in ["[::1]:10809", "localhost:0", "unix:a b"] {
            assert_eq!(address.parse::<Address>().unwrap().to_string(), address);
        }
    }

    #[test]
    fn rules_for_clients_need_a_way_on_which_these_come() {
        let with = |listen: &str, rule: &str| {
            let volume = format!("a=mem:,size=1MiB,client={rule}");
            settings(&[&volume]).unwrap().set("listen", vec![listen]).config().map(drop)
        };
        for (listen, rule, part) in [
            ("unix:s", "db", "'certificate:db': nobody shows a certificate"),
            ("unix:s", "address:::1", "'address:::1/128': nobody has an address"),
            ("[::1]:1", "user:0", "'user:0': users and groups are known on unix sockets only"),
            ("[::1]:1", "group:0", "'group:0': users and groups"),
            ("[::1]:1", "adress:10.0.0.1", "clients 'adress:10.0.0.1': a name with a colon"),
        ] {
            let wrong = with(listen, rule).unwrap_err();
            assert!(wrong.starts_with("volume 'a': ") && wrong.contains(part), "{wrong}");
        }
        assert_eq!(with("unix:s", "user:0"), Ok(()));
        assert_eq!(with("[::1]:1", "address:10.0.0.0/8"), Ok(()));
    }

    #[test]
    fn a_wrong_value_is_named_with_its_option() {
        for (volume, expected) in [
            (
                "a=mem:,size=lots",
                "volume 'a': size 'lots': expected a size, as 64KiB, 512M or 1.5GiB (1MB is 1000000 bytes)",
            ),
            (
                "a=mem:,cache=lots",
                "volume 'a': cache 'lots': expected a size, as 64KiB, 512M or 1.5GiB (1MB is 1000000 bytes)",
            ),
            ("a=mem:,block=8GiB", "volume 'a': block: too large"),
            ("a=mem:,write=up", "volume 'a': write 'up': expected through, back or around"),
            ("a=mem:,reloads=no", "volume 'a': reloads 'no': expected idle or at-once"),
            ("a=mem:,evictions=x", "volume 'a': evictions 'x': expected told or estimate"),
            ("a=mem:,dirty-percent=0", "volume 'a': dirty-percent 0: expected 1 to 100"),
            ("a=mem:,report=x", "volume 'a': report 'x': expected nothing, evictions or demotions"),
        ] {
            assert_eq!(config(&[volume], "1MiB").unwrap_err(), expected);
        }
        let wrong = config(&["a=mem:"], "lots").unwrap_err();
        assert_eq!(
            wrong,
            "cache 'lots': expected a size, as 64KiB, 512M or 1.5GiB (1MB is 1000000 bytes)"
        );
        let wrong = settings(&["a=mem:"]).unwrap().set("limits.bytes", "x").config().unwrap_err();
        assert_eq!(
            wrong,
            "limits.bytes 'x': expected a size, as 64KiB, 512M or 1.5GiB (1MB is 1000000 bytes)"
        );
    }
}
