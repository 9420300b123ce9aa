//! What InnoDB says of its buffer pool: `INNODB_BUFFER_PAGE`, of MariaDB since 10.6.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Page, Pool, number, query};

const SETTINGS: &str = "select @@datadir, ifnull(@@innodb_data_home_dir, @@datadir), \
    @@innodb_data_file_path, @@innodb_page_size, @@innodb_temp_data_file_path";

/// Number of the tablespace of temporary tables, which is in no list.
const TEMPORARY: u64 = 0xffff_fffe;

const FILES: &str =
    "select SPACE, FILENAME from information_schema.INNODB_SYS_TABLESPACES where SPACE > 0";

/// Frames before files: a file may come while we ask, and its pages then are in none.
const PAGES: &str = "select BLOCK_ID, SPACE, PAGE_NUMBER, PAGE_STATE, PAGE_TYPE, \
    OLDEST_MODIFICATION from information_schema.INNODB_BUFFER_PAGE";

pub(super) fn pool(client: &[String]) -> Result<Pool, String> {
    let ask = |sql| query(client, &["--batch", "--skip-column-names", "--raw", "-e"], sql);
    let settings = ask(SETTINGS)?;
    let settings = settings.first().filter(|row| row.len() == 5);
    let settings = settings.ok_or("the database does not say where its files are")?;
    let data = Path::new(&settings[0]);
    let page_bytes = number(settings, 3)?.max(super::GRANULE);
    let home = data.join(&settings[1]);
    let system = System::new(&home, &settings[2], page_bytes)?;
    let temporary = System::new(&home, &settings[4], page_bytes)?;
    let frames = ask(PAGES)?;
    let mut files = BTreeMap::new();
    for row in ask(FILES)? {
        let name = row.get(1).map_or("", String::as_str);
        files.insert(number(&row, 0)?, data.join(name));
    }
    let own = system.files.iter().chain(&temporary.files).map(|(file, _)| file);
    let all = files.values().chain(own).cloned().collect();
    let mut pool = Pool { frame_bytes: page_bytes, files: all, ..Pool::default() };
    for row in &frames {
        let (frame, space, page) = (number(row, 0)?, number(row, 1)?, number(row, 2)?);
        // Memory that the pool lends to others looks like page 0 of the system's file.
        let lent = row[4] == "UNKNOWN" && space == 0 && page == 0;
        if row[3] != "FILE_PAGE" || lent {
            pool.free.insert(frame);
            continue;
        }
        let place = match space {
            0 => system.place(page),
            TEMPORARY => temporary.place(page),
            _ => files.get(&space).map(|file| (file.clone(), page)),
        };
        // One of a file that has come since, or is in no list, counts as being on no volume.
        let (file, page) = place.unwrap_or_default();
        // 1 is a page that was written and is still in the list of those to write.
        let (offset, is_unwritten) = (page * page_bytes, number(row, 5)? > 1);
        let (bytes, is_temporary) = (page_bytes, space == TEMPORARY);
        pool.pages.push(Page { file, offset, bytes, frame, is_unwritten, is_temporary });
    }
    Ok(pool)
}

/// The system tablespace: several files or raw disks, one behind the other.
struct System {
    /// Each with its pages; the last grows.
    files: Vec<(PathBuf, u64)>,
}

impl System {
    /// `ibdata1:12M:autoextend`, `/dev/sdb:100Graw;ibdata2:1G:autoextend:max:2G`.
    fn new(home: &Path, path: &str, page_bytes: u64) -> Result<System, String> {
        let one = |part: &str| {
            let mut fields = part.split(':');
            let (name, size) = (fields.next()?, fields.next()?);
            let digits = size.trim_end_matches("newraw").trim_end_matches("raw");
            let unit = match digits.chars().last()?.to_ascii_uppercase() {
                'K' => 1 << 10,
                'M' => 1 << 20,
                'G' => 1 << 30,
                _ => 1,
            };
            let amount: u64 = digits.trim_end_matches(char::is_alphabetic).parse().ok()?;
            Some((home.join(name), amount.checked_mul(unit)? / page_bytes))
        };
        let files: Option<Vec<_>> = path.split(';').map(one).collect();
        let files = files.filter(|files| !files.is_empty());
        let mut files = files.ok_or_else(|| format!("innodb_data_file_path '{path}': unclear"))?;
        if let Some((_, pages)) = files.last_mut() {
            *pages = u64::MAX;
        }
        Ok(System { files })
    }

    fn place(&self, mut page: u64) -> Option<(PathBuf, u64)> {
        for (file, pages) in &self.files {
            if page < *pages {
                return Some((file.clone(), page));
            }
            page -= pages;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tablespace_may_have_several_parts() {
        let home = Path::new("/data");
        let path = "ibdata1:12M;/dev/sdb:1Graw;ibdata2:10M:autoextend:max:20M";
        let system = System::new(home, path, 16384).unwrap();
        assert_eq!(system.place(767), Some(("/data/ibdata1".into(), 767)));
        assert_eq!(system.place(768), Some(("/dev/sdb".into(), 0)));
        assert_eq!(system.place(768 + 65536 + 9), Some(("/data/ibdata2".into(), 9)));
        for wrong in ["", "ibdata1", "ibdata1:M", "a:12X34M"] {
            assert!(System::new(home, wrong, 16384).is_err(), "{wrong}");
        }
    }
}
