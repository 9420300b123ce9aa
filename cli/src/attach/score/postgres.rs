//! What PostgreSQL says of its shared buffers: the extension `pg_buffercache`, which comes with it.

use std::path::{Path, PathBuf};

use super::{Page, Pool, number, query};

/// The number of a tablespace is also the folder; these two have their own.
const DEFAULT_TABLESPACE: u64 = 1663;
const GLOBAL_TABLESPACE: u64 = 1664;

const SETTINGS: &str = "select current_setting('data_directory'), \
    current_setting('block_size'), pg_size_bytes(current_setting('segment_size')), \
    coalesce((select pg_ls_dir from pg_ls_dir('pg_tblspc/' || (select min(oid) from pg_tablespace \
    where oid > 1664)) limit 1), '')";

const PAGES: &str = "select bufferid, coalesce(reltablespace, 0), coalesce(reldatabase, 0), \
    coalesce(relfilenode, 0), coalesce(relforknumber, 0), coalesce(relblocknumber, 0) \
    from pg_buffercache";

pub(super) fn pool(client: &[String]) -> Result<Pool, String> {
    let options = ["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "-F", "\t", "-c"];
    let ask = |sql| query(client, &options, sql);
    if ask("select 1 from pg_extension where extname = 'pg_buffercache'")?.is_empty() {
        return Err("the database has no extension pg_buffercache, which tells what is in its \
                    buffers: make it there, in the database that the client opens, with `create \
                    extension pg_buffercache`"
            .to_owned());
    }
    let settings = ask(SETTINGS)?;
    let settings = settings.first().filter(|row| row.len() == 4);
    let settings = settings.ok_or("the database does not say where its files are")?;
    let layout = Layout {
        data: Path::new(&settings[0]).to_owned(),
        page_bytes: number(settings, 1)?.max(super::GRANULE),
        segment_bytes: number(settings, 2)?.max(super::GRANULE),
        version_folder: settings[3].clone(),
    };
    let files = layout.files();
    let mut pool = Pool { frame_bytes: layout.page_bytes, files, ..Pool::default() };
    for row in ask(PAGES)? {
        let field = |column| number(&row, column);
        let frame = field(0)?;
        if field(3)? == 0 {
            pool.free.insert(frame);
            continue;
        }
        let (file, offset) = layout.place([field(1)?, field(2)?, field(3)?, field(4)?], field(5)?);
        // What it makes is written at once, to make the file longer.
        let bytes = layout.page_bytes;
        let (is_unwritten, is_temporary) = (false, false);
        pool.pages.push(Page { file, offset, bytes, frame, is_unwritten, is_temporary });
    }
    Ok(pool)
}

/// Where relations are.
struct Layout {
    data: PathBuf,
    page_bytes: u64,
    /// Of a file; what is longer has several.
    segment_bytes: u64,
    /// In tablespaces, as `PG_15_202209061`.
    version_folder: String,
}

impl Layout {
    fn place(&self, [space, database, relation, fork]: [u64; 4], block: u64) -> (PathBuf, u64) {
        let folder = match space {
            GLOBAL_TABLESPACE => self.data.join("global"),
            DEFAULT_TABLESPACE => self.data.join("base").join(database.to_string()),
            _ => {
                let space = self.data.join("pg_tblspc").join(space.to_string());
                space.join(&self.version_folder).join(database.to_string())
            }
        };
        let fork = ["", "_fsm", "_vm", "_init"].get(fork as usize).copied().unwrap_or("");
        let byte = block * self.page_bytes;
        let segment = match byte / self.segment_bytes {
            0 => String::new(),
            number => format!(".{number}"),
        };
        (folder.join(format!("{relation}{fork}{segment}")), byte % self.segment_bytes)
    }

    /// All files of relations: their names begin with a number. Its other files, as that of the
    /// states of transactions, are not in shared buffers.
    fn files(&self) -> Vec<PathBuf> {
        let inside = |folder: PathBuf| {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let spaces = inside(self.data.join("pg_tblspc"));
        let elsewhere = spaces.into_iter().map(|space| space.join(&self.version_folder));
        let databases = elsewhere.chain([self.data.join("base")]).flat_map(inside);
        let folders = databases.chain([self.data.join("global")]);
        let is_relation = |file: &PathBuf| {
            let name = file.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(|first: char| first.is_ascii_digit()))
        };
        let mut files: Vec<_> = folders.flat_map(inside).filter(is_relation).collect();
        files.sort_unstable();
        files
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn all_relations_are_found_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        let names = [
            "base/5/77",
            "base/5/77_fsm.1",
            "base/5/pg_filenode.map",
            "global/1262",
            "global/pg_control",
            "pg_xact/0000",
            "pg_tblspc/99/PG_15_1/5/88",
        ];
        for name in names {
            let file = data.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        let layout = Layout {
            data: data.to_owned(),
            page_bytes: 8192,
            segment_bytes: 1 << 30,
            version_folder: "PG_15_1".into(),
        };
        assert_eq!(layout.files(), [0, 1, 3, 6].map(|at| data.join(names[at])));
    }

    #[test]
    fn relations_are_in_files_of_one_gibibyte() {
        let layout = Layout {
            data: "/pg".into(),
            page_bytes: 8192,
            segment_bytes: 1 << 30,
            version_folder: "PG_15_1".into(),
        };
        let place = |space, fork, block| {
            let (file, offset) = layout.place([space, 5, 77, fork], block);
            (file.to_str().unwrap().to_owned(), offset)
        };
        assert_eq!(place(1663, 0, 3), ("/pg/base/5/77".into(), 3 * 8192));
        assert_eq!(place(1663, 1, 131_073), ("/pg/base/5/77_fsm.1".into(), 8192));
        assert_eq!(place(1664, 0, 0), ("/pg/global/77".into(), 0));
        assert_eq!(place(99, 2, 0), ("/pg/pg_tblspc/99/PG_15_1/5/77_vm".into(), 0));
    }

    /// In the place of psql stands a program that writes down what it is asked.
    #[test]
    fn no_extension_is_made_without_asking() {
        let folder = tempfile::tempdir().unwrap();
        let (client, asked) = (folder.path().join("psql"), folder.path().join("asked"));
        fs::write(&client, format!("#!/bin/sh\necho \"$@\" >> '{}'\n", asked.display())).unwrap();
        fs::set_permissions(&client, Permissions::from_mode(0o755)).unwrap();
        let said = pool(&[client.display().to_string()]).err().unwrap();
        assert!(said.contains("with `create extension pg_buffercache`"), "{said}");
        let asked = fs::read_to_string(asked).unwrap();
        assert!(asked.contains("from pg_extension") && !asked.contains("create"), "{asked}");
    }
}
