//! Settings from three sources; flags take precedence over the file `undercroft.toml`, and the file
//! over the environment. This file reads and merges the sources, and makes a configuration of them.
//! The fields of the configuration define the options.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use toml::de::DeTable;
use toml::{Table, Value};
use undercroft_policy::Spec;
use undercroft_text::{list, unquoted};

use super::mistakes::{Mistake, is_of_shape, mistakes, note_places, read};
use super::{Key, Reporting, ServerConfig, VolumeConfig, forms};

/// Options of the server that can be set in the environment, as variables with the prefix
/// `UNDERCROFT_`.
const VARIABLES: [&str; 11] = [
    "LISTEN",
    "VOLUME",
    "CACHE",
    "POLICY",
    "PLACEMENT",
    "WRITE",
    "BLOCK",
    "SHARDS",
    "HTTP",
    "STATE",
    "UNWRITTEN",
];

/// The settings of one source, or several merged: a tree with the keys of the file, whose values
/// have not been checked.
///
/// ```
/// use undercroft_server::process::Settings;
///
/// let volume = Settings::volume("demo=mem:,size=1MiB,policy=lru")?;
/// let settings = Settings::default().set("volume", vec![volume]).set("cache", "2MiB");
/// assert_eq!(settings.config()?.volumes[0].cache_blocks, 512);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Settings {
    options: Table,
    /// Where an option was set, by its path, as `cache`, `limits.close-s`, `volume.0.policy`: a
    /// line of a file, or a variable. Options of flags have none.
    places: BTreeMap<String, String>,
}

impl Settings {
    /// The settings that a serializable value contains, such as the flags of a program.
    ///
    /// # Errors
    /// The value does not serialize to a table.
    pub fn of(flags: &impl serde::Serialize) -> Result<Settings, toml::ser::Error> {
        Ok(Settings { options: Table::try_from(flags)?, places: BTreeMap::new() })
    }

    /// Sets an option by its path, such as `cache` or `limits.close-s`.
    #[must_use]
    pub fn set(mut self, path: &str, value: impl Into<Value>) -> Settings {
        let (part, key) = path.split_once('.').unwrap_or(("", path));
        let table = if part.is_empty() {
            Some(&mut self.options)
        } else {
            self.options.entry(part).or_insert_with(|| Table::new().into()).as_table_mut()
        };
        if let Some(table) = table {
            table.insert(key.to_owned(), value.into());
        }
        self
    }

    /// Reads the settings of a file. Relative paths of stores count from the server's working
    /// directory.
    ///
    /// # Errors
    /// The file cannot be read, is no TOML, or has an unknown option or a value of the wrong type;
    /// then all that is wrong is said. Values alone are checked after all sources are merged.
    pub fn from_file(path: &Path) -> Result<Settings, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("configuration {}: {error}", path.display()))?;
        let line = |at: usize| {
            let line = 1 + text.get(..at).unwrap_or_default().matches('\n').count();
            format!("{}, line {line}", path.display())
        };
        let in_line = |error: toml::de::Error| {
            let what = error.message().lines().collect::<Vec<_>>().join("; ");
            format!("{}: {what}", line(error.span().map_or(0, |span| span.start)))
        };
        let tree = DeTable::parse(&text).map_err(in_line)?;
        let mut places = BTreeMap::new();
        note_places(tree.get_ref(), "", &mut |path, at| {
            places.insert(path, line(at));
        });
        let options = text.parse::<Table>().map_err(in_line)?;
        let settings = Settings { options, places };
        let wrong = mistakes(&settings.options);
        let is_certain = wrong.iter().any(|mistake| is_of_shape(&mistake.what));
        if is_certain { Err(settings.told(&wrong)) } else { Ok(settings) }
    }

    /// Reads the settings of the environment: `UNDERCROFT_LISTEN` and `UNDERCROFT_VOLUME` (several
    /// separated by blanks), `UNDERCROFT_CACHE`, `_POLICY`, `_PLACEMENT`, `_WRITE`, `_BLOCK`,
    /// `_SHARDS`, `_HTTP`, `_STATE`, `_UNWRITTEN`.
    ///
    /// # Errors
    /// The variable that is invalid.
    pub fn from_environment(
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Settings, String> {
        let all: BTreeMap<String, String> = variables.into_iter().collect();
        let mut settings = Settings::default();
        for name in VARIABLES {
            let variable = format!("UNDERCROFT_{name}");
            let Some(text) = all.get(&variable).filter(|text| !text.is_empty()) else { continue };
            let words = text.split_whitespace();
            let value = match name {
                "LISTEN" => words.map(Value::from).collect::<Vec<_>>().into(),
                "VOLUME" => {
                    let volumes = words.map(Settings::volume).collect::<Result<Vec<_>, _>>();
                    volumes.map_err(|what| format!("{variable}: {what}"))?.into()
                }
                "SHARDS" => {
                    let number = text.parse::<u32>();
                    number.map_err(|_| format!("{variable}: '{text}' is no number"))?.into()
                }
                _ => Value::from(text.as_str()),
            };
            settings = settings.set(&name.to_lowercase(), value);
            settings.places.insert(name.to_lowercase(), variable);
        }
        Ok(settings)
    }

    /// Parses `NAME=STORE[,key=value]...`. Behind a policy, a placement and a report, a key that no
    /// option has belongs to these. Commas within double quotes separate nothing.
    ///
    /// # Errors
    /// The part that is invalid.
    pub fn volume(text: &str) -> Result<Table, String> {
        let wrong = |what: String| format!("volume '{text}': {what}");
        let (name, rest) = text
            .split_once('=')
            .ok_or_else(|| wrong("expected NAME=STORE, as demo=file:./demo.img".to_owned()))?;
        if name.contains(',') {
            return Err(wrong(format!("'{name}': a name has no comma; NAME=STORE comes first")));
        }
        // The type of an option's value is that of its serialized default.
        let defaults = serde_json::to_value(VolumeConfig::default()).unwrap_or_default();
        let is_list = |key: &str| list_of(key) != key;
        let is_option = |key: &str| of_flag(|_| true).any(|known| known.flag() == key);
        let mut parts = Vec::<(&str, String)>::new();
        for piece in list(rest, ',') {
            let (key, value) = piece.split_once('=').unwrap_or((piece, ""));
            match parts.last_mut() {
                None => parts.push(("store", piece.to_owned())),
                Some(_) if is_option(key) => {
                    let has_value = piece.len() > key.len() || defaults[key].is_boolean();
                    if !has_value {
                        return Err(wrong(format!("{key}: the value is missing, as {key}=...")));
                    }
                    let again = !is_list(key) && parts.iter().any(|(before, _)| *before == key);
                    if again {
                        return Err(wrong(format!("{key} is there twice")));
                    }
                    parts.push((key, value.to_owned()));
                }
                Some((option, before)) => {
                    let longer = format!("{before},{piece}");
                    if let Err(what) = check_parameters(option, &longer) {
                        let what = what.map_or(String::new(), |what| format!(" ({what})"));
                        let keys = known_keys(|_| true);
                        let end = similar(key, keys.split(", "))
                            .map_or(".".to_owned(), |near| format!("; did you mean {near}?"));
                        return Err(wrong(format!(
                            "'{piece}' is not known here{what}{end} The keys of a volume are \
                             {keys}. A path with a comma stands in quotes: {name}=file:\"a,b.img\""
                        )));
                    }
                    *before = longer;
                }
            }
        }
        let mut volume = Table::from_iter([("name".to_owned(), Value::from(name))]);
        for (key, text) in parts {
            let text = unquoted(&text).to_owned();
            if is_list(key) {
                let list = volume.entry(list_of(key)).or_insert_with(|| Value::Array(Vec::new()));
                list.as_array_mut().into_iter().for_each(|list| list.push(text.clone().into()));
                continue;
            }
            let is_number = defaults[key].is_number() || defaults[key].is_null();
            let value = match (key, text.as_str()) {
                (_, number) if is_number => {
                    let number = number.parse::<i64>().ok().map(Value::from);
                    let fits = |number: &Value| {
                        let one = Table::from_iter([(key.to_owned(), number.clone())]);
                        !read::<VolumeConfig>(one).is_err_and(|(_, what)| is_of_shape(&what))
                    };
                    let number = number.filter(fits);
                    number
                        .ok_or_else(|| wrong(format!("{key}: '{text}' is no number that fits")))?
                }
                (_, "" | "true" | "yes") if defaults[key].is_boolean() => true.into(),
                (_, "false" | "no") if defaults[key].is_boolean() => false.into(),
                (_, other) if defaults[key].is_boolean() => {
                    return Err(wrong(format!("{key}: '{other}': expected yes or no")));
                }
                _ => text.into(),
            };
            volume.insert(key.to_owned(), value);
        }
        Ok(volume)
    }

    /// The configuration of a served volume with some options changed: `KEY=VALUE` each, as in a
    /// volume's flag; `KEY=default` takes back what the settings say of it. A size that is not
    /// told stays.
    ///
    /// # Errors
    /// The option that is unknown, cannot change while the volume is served, or is wrong.
    pub(crate) fn changed(now: &VolumeConfig, options: &[&str]) -> Result<VolumeConfig, String> {
        let can_change = || {
            let keys = known_keys(|key| key.changes.is_live());
            format!("what can change while a volume is served: {keys}")
        };
        let mut given = now.given.clone();
        let mut pieces = vec!["v=mem:"];
        for option in options {
            let Some((flag, value)) = option.split_once('=') else {
                return Err(format!("'{option}': expected KEY=VALUE; {}", can_change()));
            };
            let known = of_flag(|_| true).find(|key| key.flag() == flag);
            let Some(key) = known.filter(|key| key.changes.is_live()) else {
                let what = known.map_or("is no key of a volume", |_| "needs a restart");
                return Err(format!("'{flag}' {what}; {}", can_change()));
            };
            match value {
                "default" => _ = given.remove(key.name),
                _ => pieces.push(option),
            }
        }
        let text = pieces.join(",");
        let short = |what: String| what.replace(&format!("volume '{text}': "), "");
        let changes = Settings::volume(&text).map_err(short)?;
        let of_options = |key: &String| !["name", "store"].contains(&key.as_str());
        given.extend(changes.into_iter().filter(|(key, _)| of_options(key)));
        let mut next = volume_of(given)?;
        next.close_patience = now.close_patience;
        next.validate(now.cache_bytes())?;
        Ok(next)
    }

    /// Merges: adds the settings of `then` that are not set here. A list is taken as a whole; an
    /// empty one counts as not set.
    #[must_use]
    pub fn or(mut self, then: Settings) -> Settings {
        let own = self.options.clone();
        let is_own = |path: &str| {
            let path = if path.starts_with("volume.") { "volume" } else { path };
            let (part, key) = path.split_once('.').unwrap_or(("", path));
            let table = if part.is_empty() { Some(&own) } else { own.get(part)?.as_table() };
            let value = table?.get(key)?;
            value.as_array().is_none_or(|list| !list.is_empty()).then_some(())
        };
        let fresh = then.places.into_iter().filter(|(path, _)| is_own(path).is_none());
        self.places.extend(fresh);
        join(&mut self.options, then.options);
        self
    }

    /// The configuration that results from the settings, [valid](ServerConfig::validate).
    ///
    /// # Errors
    /// Each value that is wrong, and the options that do not fit together, in a line each.
    pub fn config(self) -> Result<ServerConfig, String> {
        let wrong = mistakes(&self.options);
        let mut server = self.options.clone();
        let mut inherited = Table::new();
        for key in VolumeConfig::KEYS.iter().filter(|key| key.is_inherited) {
            let value = server.remove(key.name);
            // One mistake, and not one of each volume.
            let value = value.filter(|_| !wrong.iter().any(|mistake| mistake.path == key.name));
            inherited.extend(value.map(|value| (key.name.to_owned(), value)));
        }
        let volumes = server.remove("volume").unwrap_or_else(|| Value::Array(Vec::new()));
        let tables = Vec::<Table>::deserialize(volumes).map_err(|e| e.message().to_owned())?;
        let tables = tables.into_iter().map(|mut table| {
            join(&mut table, inherited.clone());
            table.entry("store").or_insert_with(|| "".into());
            let name = table.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            volume_of(table).map_err(|what| format!("volume '{name}': {what}"))
        });
        let is_cache_given = server.contains_key("cache");
        if !wrong.is_empty() {
            // The others are checked as far as they stand alone.
            let alone = tables.flatten().filter_map(|mut volume| {
                let what = volume.validate(ServerConfig::default().cache_bytes).err()?;
                Some(format!("volume '{}': {what}", volume.name))
            });
            let alone: Vec<_> = alone.map(|what| self.placed(&what)).collect();
            let mut all: Vec<_> = wrong.into_iter().chain(alone).collect();
            all.sort();
            return Err(self.told(&all));
        }
        let volumes = tables.collect::<Result<Vec<_>, _>>()?;
        let config = read::<ServerConfig>(server);
        let config = config.map_err(|(option, what)| forms::named(&option, &what))?;
        let mut config = ServerConfig { volumes, is_cache_given, ..config };
        if !is_cache_given {
            config.raise_cache();
        }
        config.validated().map_err(|wrong| {
            let wrong: Vec<_> = wrong.iter().map(|what| self.placed(what)).collect();
            self.told(&wrong)
        })
    }

    /// What is wrong with options that do not fit together, and where the one is that it names
    /// first.
    fn placed(&self, what: &str) -> Mistake {
        let volumes = self.options.get("volume").and_then(Value::as_array).into_iter().flatten();
        let named = volumes.enumerate().find_map(|(at, volume)| {
            let name = volume.get("name")?.as_str()?;
            let rest = what.strip_prefix(&format!("volume '{name}'"))?;
            Some((format!("volume.{at}"), rest.trim_start_matches([':', ' '])))
        });
        let (volume, rest) = named.unwrap_or((String::new(), what));
        let is_key = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        let key = rest.split(|c| !is_key(c)).next().unwrap_or_default();
        let path = format!("{volume}.{key}").trim_start_matches('.').to_owned();
        let path = if self.places.contains_key(&path) { path } else { volume };
        Mistake { path, what: what.to_owned() }
    }

    /// All mistakes with their places, for people.
    fn told(&self, wrong: &[Mistake]) -> String {
        let lines = wrong.iter().map(|mistake| match self.places.get(&mistake.path) {
            Some(place) => format!("{place}: {}", mistake.what),
            None => mistake.what.clone(),
        });
        let lines: Vec<_> = lines.collect();
        match &lines[..] {
            [one] => one.clone(),
            lines => format!("{} mistakes:\n  {}", lines.len(), lines.join("\n  ")),
        }
    }
}

/// The configuration of a volume that a table gives, not checked as a whole.
fn volume_of(table: Table) -> Result<VolumeConfig, String> {
    let volume = read::<VolumeConfig>(table.clone());
    let volume = volume.map_err(|(option, what)| forms::named(&option, &what))?;
    Ok(VolumeConfig { given: table, ..volume })
}

/// The option that a key of a flag sets.
fn list_of(flag: &str) -> &str {
    VolumeConfig::KEYS.iter().find(|key| key.flag() == flag).map_or(flag, |key| key.name)
}

/// The keys of a kind that may follow the store in a volume's flag.
fn of_flag(is_meant: impl Fn(&Key) -> bool) -> impl Iterator<Item = &'static Key> {
    let of_flag = |key: &&Key| !["name", "store"].contains(&key.name);
    VolumeConfig::KEYS.iter().filter(of_flag).filter(move |key| is_meant(key))
}

/// Their names, with ", " between them.
fn known_keys(is_meant: impl Fn(&Key) -> bool) -> String {
    of_flag(is_meant).map(Key::flag).collect::<Vec<_>>().join(", ")
}

/// The key that is most likely meant by one that does not exist: at most one typing error for each
/// three characters away.
fn similar<'a>(wrong: &str, keys: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let away = |key| (strsim::damerau_levenshtein(wrong, key), key);
    let (errors, key) = keys.map(away).min()?;
    (errors * 3 <= wrong.len() && errors > 0).then_some(key)
}

/// Checks the parameters that belong to an option; the error says what is wrong with them, and
/// nothing if the option has none.
fn check_parameters(option: &str, text: &str) -> Result<(), Option<String>> {
    let checked = match option {
        "policy" => text.parse::<Spec>().map(drop).map_err(|error| error.to_string()),
        "placement" => forms::parse_placement(text).map(drop),
        "report" => text.parse::<Reporting>().map(drop),
        _ => return Err(None),
    };
    checked.map_err(Some)
}

/// Adds the entries that the first table does not have.
fn join(first: &mut Table, then: Table) {
    for (key, value) in then {
        match (first.get_mut(&key), value) {
            (Some(Value::Table(first)), Value::Table(then)) => join(first, then),
            (Some(Value::Array(first)), value) if first.is_empty() => {
                first.extend(value.as_array().into_iter().flatten().cloned());
            }
            (Some(_), _) => {}
            (None, value) => {
                first.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Changes;

    #[test]
    fn commas_belong_to_policies_parentheses_and_quotes() {
        let volume = Settings::volume(
            "db=delay(2ms,queue=4):file(direct,size=1GiB):\"/srv/a,b.img\",size=1GiB,policy=mq,m=4,\
             qout=2,read-only",
        );
        let volume = volume.unwrap();
        assert_eq!(volume["name"].as_str(), Some("db"));
        let store = "delay(2ms,queue=4):file(direct,size=1GiB):\"/srv/a,b.img\"";
        assert_eq!(volume["store"].as_str(), Some(store));
        let whole = Settings::volume("v=\"file:a,b\",description=\"x, y\",create=no").unwrap();
        assert_eq!(whole["store"].as_str(), Some("file:a,b"));
        assert_eq!(whole["description"].as_str(), Some("x, y"));
        assert_eq!(whole["create"].as_bool(), Some(false));
        let volume: VolumeConfig = read(volume).unwrap();
        assert_eq!(volume.size, Some(1 << 30));
        assert_eq!(volume.policy.to_string(), "mq,m=4,qout=2");
        assert!(volume.read_only);
        assert!(Settings::volume("demo").is_err());
        let wrong = Settings::volume("demo=mem:,shards=many").unwrap_err();
        assert_eq!(wrong, "volume 'demo=mem:,shards=many': shards: 'many' is no number that fits");
        let wrong = Settings::volume("v=mem:,read-only=perhaps").unwrap_err();
        assert!(wrong.ends_with("read-only: 'perhaps': expected yes or no"), "{wrong}");
        let lists = Settings::volume("v=mem:,client=a,client=b,writer=a").unwrap();
        let lists: VolumeConfig = read(lists).unwrap();
        assert_eq!((lists.clients.len(), lists.writers.len()), (2, 1));
    }

    #[test]
    fn what_is_no_key_of_a_volume_is_refused_wherever_it_stands() {
        for (text, piece) in [
            ("v=file:./db.img,wirte=back,size=1MiB", "wirte=back"),
            ("v=file:./db.img,size=1MiB,read-onyl", "read-onyl"),
            ("v=file:/srv/a,b.img", "b.img"),
            ("v=file:\"/srv/a,size=1MiB,b.img", "b.img"),
            ("v=mem:,policy=mq,wirte=back", "wirte=back"),
            ("v=mem:,policy=mq,read-onyl", "read-onyl"),
            ("v=mem:,placement=eviction,on-hit=keep,wirte=back", "wirte=back"),
            ("v=mem:,placement=d-hfa,wirte=back", "wirte=back"),
            ("v=nbd://h/d,report=evictions,wirte=back", "wirte=back"),
            ("v=mem:,name=w", "name=w"),
            ("v=mem:,store=mem:", "store=mem:"),
            ("v=mem:,clients=a", "clients=a"),
            ("v=mem:,", ""),
        ] {
            let wrong = Settings::volume(text).unwrap_err();
            assert!(wrong.contains(&format!("'{piece}' is not known here")), "{text}: {wrong}");
            assert!(wrong.contains(" keys of a volume are ") && wrong.contains(" write, "));
            let meant = [("wirte", "write"), ("read-onyl", "read-only"), ("clients", "client")];
            let meant = meant.iter().find(|(key, _)| piece.starts_with(key));
            let said = wrong.split_once("did you mean ").map(|(_, rest)| rest);
            match meant {
                Some((_, key)) => {
                    assert!(said.unwrap().starts_with(&format!("{key}? ")), "{wrong}")
                }
                None => assert!(said.is_none(), "{wrong}"),
            }
        }
        for (text, part) in [
            ("v=mem:,size=1MiB,size=2MiB", "size is there twice"),
            ("v=mem:,size", "size: the value is missing, as size=..."),
            (
                "read-onyl,v=file:./db.img,size=1MiB",
                "'read-onyl,v': a name has no comma; NAME=STORE comes first",
            ),
        ] {
            let wrong = Settings::volume(text).unwrap_err();
            assert!(wrong.ends_with(part), "{wrong}");
        }
    }

    #[test]
    fn flags_go_before_the_file_and_the_file_before_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("undercroft.toml");
        let text = "cache = '1GiB'\nlisten = ['[::1]:1']\n[[volume]]\nname = 'a'\nstore = 'mem:'\n";
        std::fs::write(&path, text).unwrap();
        let file = Settings::from_file(&path).unwrap();
        let variables = [("UNDERCROFT_CACHE", "2GiB"), ("UNDERCROFT_POLICY", "arc")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let environment = Settings::from_environment(variables).unwrap();
        let flags = Settings::default().set("listen", vec!["unix:x"]);
        let all = flags.or(file).or(environment).config().unwrap();
        assert_eq!(all.listen[0].to_string(), "unix:x");
        assert_eq!(all.cache_bytes, 1 << 30);
        assert_eq!(all.volumes[0].policy.to_string(), "arc");
        assert_eq!(all.volumes[0].store.to_string(), "mem:");
        std::fs::write(&path, "chache = '1GiB'").unwrap();
        assert!(Settings::from_file(&path).unwrap_err().contains("line 1: unknown field `chache`"));
    }

    #[test]
    fn sizes_in_a_file_are_text_or_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("undercroft.toml");
        let read = |size: &str| {
            let text = format!(
                "cache = {size}\nblock = 8192\n[limits]\nbytes = 1048576\n[[volume]]\n\
                 name = 'a'\nstore = 'mem:'\nsize = 4194304\ncache = 1048576\n"
            );
            std::fs::write(&path, text).unwrap();
            Settings::from_file(&path)?.config()
        };
        let config = read("268435456").unwrap();
        assert_eq!((config.cache_bytes, config.limits.bytes), (256 << 20, 1 << 20));
        let volume = &config.volumes[0];
        assert_eq!((volume.size, volume.block_bytes), (Some(4 << 20), 8192));
        assert_eq!(volume.cache_blocks, 128);
        for wrong in ["1.5", "-4096", "true"] {
            let said = read(wrong).unwrap_err();
            assert!(said.contains("undercroft.toml, line 1: invalid "), "{said}");
            assert!(said.contains("expected a size, as \"64KiB\", \"1.5GiB\" or "), "{said}");
        }
    }

    #[test]
    fn what_an_option_writes_is_read_as_the_same() {
        let text = "v=nbd://host/x,size=1GiB,cache=2MiB,block=8KiB,policy=lirs,hirs=0.02,\
                    placement=eviction,on-hit=keep,evictions=estimate,reloads=at-once,\
                    report=demotions,batch=3,write=back,shards=2,read-ahead=1MiB,read-only,\
                    client=a,connections=3,requests-per-second=9,dirty-age-s=7,dirty-percent=30,\
                    store-timeout-s=0,dirty-max-percent=60,dirty-max-age-s=30,record=/srv/a b,record-sample=16,record-files=2,\
                    record-requests=5,record-every-s=9,\
                    description=a line";
        let volume: VolumeConfig = read(Settings::volume(text).unwrap()).unwrap();
        assert_eq!(volume.store_timeout, None);
        let other = VolumeConfig { name: "v".to_owned(), ..VolumeConfig::default() };
        // The fixed options that differ, without those that were not set.
        let changes = volume.fixed_changes(&other).join(" ");
        let expected = "block description evictions read-ahead read-only record \
                        record-every-s record-files record-requests record-sample reloads report \
                        shards store store-timeout-s write";
        assert_eq!(changes, expected);
        for what in [Changes::Cache, Changes::WriteBack, Changes::Access] {
            assert!(volume.has_changed(&other, what) && !volume.has_changed(&volume, what));
        }
        assert!(volume.fixed_changes(&volume.clone()).is_empty());
    }
}
