//! Single message transforms: a chain of `RegexRouter`s only renames topics, and is honoured; any other would change records,
//! which are copied as they are, and is refused by name.

use super::reader::{Fallback, Reader};
use super::scoping::Setting;
use super::values;
use crate::mirror::Rename;

const REGEX_ROUTER: &str = "org.apache.kafka.connect.transforms.RegexRouter";

/// What to do instead of well-known transforms, by the end of their class names.
const ALTERNATIVES: [(&str, &str); 5] = [
    ("Filter", "choose the topics by topics and topics.exclude"),
    ("TimestampRouter", "name the topics by kmirror.replication.policy.format, or by a RegexRouter"),
    ("InsertHeader", "the source of a topic is told by its name; read it there"),
    ("InsertHeader$Value", "the source of a topic is told by its name; read it there"),
    ("DropHeaders", "leave the headers out where the records are read"),
];

/// Reads the chain of a flow; the reader stands on the connector's scope.
pub(super) fn read(reader: &mut Reader<'_>) -> Vec<Rename> {
    if !reader.scope.contains_key("transforms") {
        return Vec::new();
    }
    let Some(setting) = reader.get("transforms", Fallback::Theirs("")) else { return Vec::new() };
    let names = values::list(&setting.value);
    names
        .iter()
        .filter(|name| !name.is_empty())
        .filter_map(|name| transform(reader, &setting, name))
        .collect()
}

fn transform(reader: &mut Reader<'_>, chain: &Setting, name: &str) -> Option<Rename> {
    let key = |part: &str| format!("transforms.{name}.{part}");
    let Some(class) = reader.scope.get(&key("type")).cloned() else {
        reader.error(chain, format!("{} is missing", key("type")), None);
        return None;
    };
    let class_name = class.value.trim();
    if class_name != REGEX_ROUTER {
        let message =
            format!("the transform {name} ({class_name}) cannot run: record batches are copied as they are");
        let short = class_name.rsplit('.').next().unwrap_or(class_name);
        let known = ALTERNATIVES.iter().find(|(end, _)| *end == short).map(|(_, instead)| *instead);
        let help =
            known.unwrap_or("run such a flow with MirrorMaker, or transform where the records are read");
        reader.error(&class, message, Some(help));
        return None;
    }
    if let Some(predicate) = reader.scope.get(&key("predicate")).cloned() {
        let message = format!("the transform {name} has a predicate, which cannot run here");
        reader.error(&predicate, message, Some("say by the transform's regex which topics it renames"));
        return None;
    }
    let mut part = |part: &str| {
        let found = reader.get(&key(part), Fallback::Theirs(""));
        if found.is_none() {
            reader.error(chain, format!("{} is missing", key(part)), None);
        }
        found
    };
    let (regex, replacement) = (part("regex")?, part("replacement")?);
    match Rename::new(&regex.value, &replacement.value) {
        Ok(rename) => Some(rename),
        Err(error) => {
            let (place, message) = if error.pattern == *regex.value {
                (&regex, format!("the transform {name}: {error}"))
            } else {
                (
                    &replacement,
                    format!("the transform {name}: its replacement {}: {}", error.pattern, error.reason),
                )
            };
            reader.error(place, message, None);
            None
        }
    }
}
