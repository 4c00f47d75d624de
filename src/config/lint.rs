//! The file as a whole, entry by entry: duplicates, references of config providers, keys, kinds of values, comments behind
//! them. What is left is the raw scope that MirrorMaker's scoping starts from.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use super::classify::{self, Verdict};
use super::fold;
use super::keys::{self, Effect, Kind};
use super::problem::{Problem, SourceText, Span};
use super::properties::{self, Entry};
use super::providers::{Outside, Providers};
use super::scoping::{Scope, Setting};
use super::values;

/// With which some editors begin a UTF-8 file.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// What stands instead of a secret.
const HIDDEN: &str = "[hidden]";

/// A file that was looked at.
pub(super) struct Linted {
    pub(super) entries: Vec<Entry>,
    pub(super) raw: Scope,
    pub(super) clusters: Vec<String>,
    pub(super) problems: Vec<Problem>,
}

/// Looks at every entry of a file; secrets are blanked out in `source`.
pub(super) fn lint(bytes: &[u8], source: &mut SourceText, outside: &Outside<'_>) -> Linted {
    let mark = if bytes.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    let properties::Properties { mut entries, mut problems } = properties::parse_behind(bytes, mark);
    if mark > 0 {
        problems.push(byte_order_mark());
    }
    fold::keys(&mut entries, source, &mut problems);
    fold::arrows(&mut entries, source, &mut problems);
    let mut linted = Linted { entries, raw: Scope::new(), clusters: Vec::new(), problems };
    for entry in &linted.entries {
        if keys::is_secret(&entry.key) {
            source.mask(entry.value_span);
        } else if let Some(login) = login_in(entry) {
            source.mask(entry.part(login.start, login.end));
        }
    }
    linted.check_encoding(bytes);
    let mut last = linted.last_entries(source);
    let mut providers = Providers::new(outside);
    linted.declare_providers(&last, &mut providers);
    for (key, &entry) in &last {
        let setting = linted.resolve(entry, &mut providers);
        linted.raw.insert(key.clone(), setting);
    }
    linted.read_clusters();
    linted.honour_misnamed(&mut last);
    for (key, &entry) in &last {
        linted.judge(key, entry);
    }
    linted
}

impl Linted {
    /// Java reads ISO-8859-1, where two bytes of UTF-8 are two characters.
    fn check_encoding(&mut self, bytes: &[u8]) {
        for entry in &self.entries {
            let written = bytes.get(entry.span().start..entry.span().end).unwrap_or_default();
            // What only looks unlike ASCII is said with its key or value.
            let stays = |text: &str| !text.is_ascii() && fold::fold(text).is_none_or(|text| !text.is_ascii());
            let stays = stays(&entry.key) || stays(&entry.value);
            if stays && std::str::from_utf8(written).is_ok() {
                let message =
                    format!("{} has letters beyond ASCII, which Java reads as ISO-8859-1", entry.key);
                let problem = Problem::warning(message).at(entry.key_span);
                self.problems.push(problem.help("write such a letter as \\uXXXX, as in \\u00e9"));
            }
        }
    }

    /// The entry of each key that counts: the last one.
    pub(super) fn last_entries(&mut self, source: &SourceText) -> BTreeMap<String, usize> {
        let mut last = BTreeMap::new();
        for (index, entry) in self.entries.iter().enumerate() {
            if let Some(earlier) = last.insert(entry.key.clone(), index) {
                let (line, _) = source.position(entry.key_span.start);
                let message = format!("{} is set again in line {line}, which counts", entry.key);
                self.problems.push(Problem::info(message).at(self.entries[earlier].key_span));
            }
        }
        last
    }

    pub(super) fn declare_providers(
        &mut self,
        last: &BTreeMap<String, usize>,
        providers: &mut Providers<'_>,
    ) {
        let value = |key: &str| last.get(key).map(|&index| &self.entries[index]);
        let Some(declaration) = value("config.providers") else { return };
        let mut problems = Vec::new();
        for name in values::list(without_comment(Kind::List, &declaration.value)) {
            let class = value(&format!("config.providers.{name}.class"));
            let declared = match class {
                Some(class) => {
                    let parameter = |key: &str| {
                        Some(value(&format!("config.providers.{name}.param.{key}"))?.value.clone())
                    };
                    providers.declare(name, without_comment(Kind::Class, &class.value), &parameter)
                }
                None => Err(Problem::error(format!("config.providers.{name}.class is missing"))),
            };
            problems.extend(declared.err().map(|problem| problem.at(class.unwrap_or(declaration).span())));
        }
        self.problems.extend(problems);
    }

    pub(super) fn resolve(&mut self, index: usize, providers: &mut Providers<'_>) -> Setting {
        let entry = &self.entries[index];
        let login = login_in(entry);
        let shown: Rc<str> = match &login {
            _ if keys::is_secret(&entry.key) => Rc::from(HIDDEN),
            Some(login) => Rc::from(format!("{HIDDEN}@{}", &entry.value[login.end..])),
            None => Rc::from(entry.value.as_str()),
        };
        let mut setting = Setting { value: Rc::from(entry.value.as_str()), shown, entry: index };
        if let Some(login) = login.filter(|_| entry.key.ends_with("bootstrap.servers")) {
            self.problems.push(login_in_servers(&entry.key).at(entry.part(login.start, login.end)));
        }
        if !entry.key.starts_with("config.providers") {
            let resolved = providers.resolve(&entry.value);
            let places =
                resolved.problems.into_iter().map(|(at, problem)| problem.at(entry.part(at.start, at.end)));
            self.problems.extend(places);
            if resolved.provided {
                // What a provider gives is not for every eye: the reference is shown instead.
                setting.value = Rc::from(resolved.text);
            }
        }
        setting
    }

    fn read_clusters(&mut self) {
        let Some(setting) = self.raw.get("clusters") else {
            self.problems.push(without_clusters(&self.raw));
            return;
        };
        let span = self.entries[setting.entry].value_span;
        let folded = fold::fold(&setting.value);
        let value = without_comment(Kind::Aliases, folded.as_deref().unwrap_or(&setting.value)).trim();
        let unquoted = unquoted(Kind::Aliases, value);
        let named = values::list(unquoted.as_deref().unwrap_or(value));
        for alias in named.into_iter().filter(|alias| !alias.is_empty()) {
            if self.clusters.iter().any(|known| known == alias) {
                self.problems.push(Problem::warning(format!("the cluster {alias} is listed twice")).at(span));
            } else {
                self.clusters.push(alias.to_owned());
            }
        }
        if self.clusters.is_empty() {
            let help = "name the clusters, as in: clusters = A, B";
            self.problems.push(Problem::error("clusters names no cluster").at(span).help(help));
        }
        for alias in &self.clusters {
            let dotted = format!("{alias}.");
            let begins = |key: &str| key.starts_with(&dotted) && !key.ends_with(".cluster.alias");
            if keys::KEYS.iter().any(|key| begins(key.name))
                || ["consumer", "producer", "admin", "ssl", "sasl"].contains(&alias.as_str())
            {
                let message =
                    format!("the alias {alias} is also the beginning of MirrorMaker's own keys, which mix");
                self.problems.push(Problem::warning(message).at(span).help("choose another alias"));
            }
        }
    }

    /// Puts the key that is meant in the place of one that only tutorials have.
    fn honour_misnamed(&mut self, last: &mut BTreeMap<String, usize>) {
        let written: Vec<(String, usize)> = last.iter().map(|(key, &index)| (key.clone(), index)).collect();
        for (key, index) in written {
            let Some(meant) = classify::meant(&key, &self.clusters) else { continue };
            let Some(setting) = self.raw.remove(&key) else { continue };
            let span = self.entries[index].key_span;
            last.remove(&key);
            if self.raw.contains_key(&meant) {
                let message = format!("{key} has no effect: {meant} is set, too");
                self.problems.push(Problem::warning(message).at(span).mirror_maker(format!("ignores {key}")));
                continue;
            }
            let does = format!("ignores {key}, and {meant} keeps its default");
            let problem = Problem::warning(format!("{key} is taken for {meant}")).at(span);
            self.problems.push(problem.help(format!("write {meant}")).mirror_maker(does));
            self.raw.insert(meant.clone(), setting);
            last.insert(meant, index);
        }
    }

    /// Says what there is to say about one entry, and takes a comment off its value.
    fn judge(&mut self, key: &str, index: usize) {
        let span = self.entries[index].span();
        let key_span = self.entries[index].key_span;
        match classify::classify(key, &self.clusters) {
            Verdict::Known(kind, effect) => {
                self.judge_value(key, kind, effect);
                self.problems.extend(effect_of(key, effect, self.value(key)).map(|problem| problem.at(span)));
            }
            Verdict::Misplaced(kind, message) => {
                self.problems.push(Problem::warning(format!("{key} has no effect")).at(span).help(message));
                self.judge_value(key, kind, Effect::Nothing(""));
            }
            Verdict::Refused(message) => {
                self.problems.push(Problem::error(format!("{key} cannot stand here")).at(span).help(message));
            }
            Verdict::UnknownCluster(alias) => {
                let known = self.clusters.join(", ");
                let message = format!("{key} names the cluster {alias}, which is not in clusters");
                self.problems
                    .push(Problem::warning(message).at(key_span).help(format!("clusters are: {known}")));
            }
            Verdict::Unknown(nearest) => {
                let problem = Problem::warning(format!("{key} is not known, and has no effect")).at(key_span);
                self.problems.push(match nearest {
                    Some(nearest) => problem.help(format!("did you mean {nearest}?")),
                    None => problem,
                });
            }
        }
    }

    fn value(&self, key: &str) -> &str {
        self.raw.get(key).map_or("", |setting| &setting.value)
    }

    pub(super) fn judge_value(&mut self, key: &str, kind: Kind, effect: Effect) {
        let Some(setting) = self.raw.get_mut(key) else { return };
        let entry = &self.entries[setting.entry];
        let said = [
            fold_value(key, kind, setting),
            cut_comment(key, kind, setting, entry),
            unquote(key, kind, setting),
        ];
        let place =
            |problem: Problem| if problem.span.is_some() { problem } else { problem.at(entry.value_span) };
        self.problems.extend(said.into_iter().flatten().map(place));
        let Err(reason) = values::check(kind, &setting.value) else { return };
        let reason =
            if setting.value == setting.shown { reason } else { "its value is not valid".to_owned() };
        let message = format!("{key}: {reason}");
        let problem =
            if effect == Effect::Used { Problem::error(message) } else { Problem::warning(message) };
        let place = if entry.value.is_empty() { entry.key_span } else { entry.value_span };
        self.problems.push(problem.at(place));
    }
}

/// `Properties.load` has no notion of the mark: a comment in the first line is none for it, and a key another one.
pub(super) fn byte_order_mark() -> Problem {
    Problem::warning("the file begins with a byte order mark (EF BB BF), which is left out")
        .at((0..BYTE_ORDER_MARK.len()).into())
        .help("save it as UTF-8 without a byte order mark, or as ASCII")
        .mirror_maker("takes the mark for the beginning of the first line's key, and does not know that key")
}

/// Where a login stands that was written into an address, as in `user:password@host:9092`.
fn login_in(entry: &Entry) -> Option<Range<usize>> {
    values::login_in(&entry.value, entry.key.ends_with("bootstrap.servers"))
}

fn login_in_servers(key: &str) -> Problem {
    let cluster = key.strip_suffix("bootstrap.servers").unwrap_or_default();
    let cluster = ["consumer.", "producer.", "admin."]
        .iter()
        .find_map(|client| cluster.strip_suffix(client))
        .unwrap_or(cluster);
    let help = format!(
        "write host:port alone, and who kmirror is as {cluster}security.protocol = SASL_SSL, {cluster}sasl.mechanism, \
         {cluster}sasl.username and {cluster}sasl.password (or {cluster}sasl.jaas.config)"
    );
    Problem::error(format!("{key} holds a user and a password, which are no part of an address"))
        .help(help)
        .mirror_maker("does not start: it takes them for a part of the host")
}

/// A file for other programs, or one without its most important line.
fn without_clusters(raw: &Scope) -> Problem {
    let is = |key: &str| raw.contains_key(key);
    if !is("bootstrap.servers") || raw.keys().any(|key| key.contains("->")) {
        let help = "name the clusters, as in: clusters = A, B";
        return Problem::error("the key clusters is missing").help(help);
    }
    let (whose, place) = match () {
        () if is("connector.class") || is("offset.storage.topic") => {
            ("a Connect worker's or connector's file", "A.")
        }
        () if is("group.id") || is("auto.offset.reset") => {
            ("a consumer's file, as MirrorMaker 1 takes one", "A.consumer.")
        }
        () => ("a producer's file, as MirrorMaker 1 takes one", "B.producer."),
    };
    let help = format!(
        "a file of MirrorMaker 2 names its clusters (clusters = A, B), their A.bootstrap.servers and A->B.enabled = true; the \
         other keys of this one go behind {place}"
    );
    Problem::error(format!("the key clusters is missing: this is {whose}")).help(help)
}

/// Reads look-alikes of ASCII as such, where a value cannot hold them.
fn fold_value(key: &str, kind: Kind, setting: &mut Setting) -> Option<Problem> {
    let folded = fold::fold(&setting.value)?;
    if matches!(kind, Kind::Text | Kind::Secret) {
        let message = format!("{key} has letters beyond ASCII, which Java reads as ISO-8859-1");
        return Some(Problem::warning(message).help("write such a letter as \\uXXXX, as in \\uff0c"));
    }
    change(setting, &folded);
    let message = format!("look-alikes of ASCII characters in {key} are read as ASCII: {:?}", setting.shown);
    Some(
        Problem::warning(message)
            .help("write it in ASCII")
            .mirror_maker("takes each for two or three other letters"),
    )
}

/// Takes off quotes, which `.properties` files do not have.
fn unquote(key: &str, kind: Kind, setting: &mut Setting) -> Option<Problem> {
    if matches!(kind, Kind::Text | Kind::Secret) {
        return None;
    }
    let inside = unquoted(kind, setting.value.trim())?;
    change(setting, &inside);
    let message = format!("the quotes around the value of {key} are left out");
    Some(
        Problem::warning(message).help("write it without").mirror_maker("takes them for a part of the value"),
    )
}

/// Quotes stand around the whole or, in a list, around its items.
fn unquoted(kind: Kind, value: &str) -> Option<String> {
    let bare = |value: &str| -> Option<String> {
        let inside = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
        let inside = inside('"').or_else(|| inside('\''))?;
        (!inside.contains(['"', '\''])).then(|| inside.to_owned())
    };
    let items = || {
        let bared: Vec<_> = value.split(',').map(str::trim).map(|item| (item, bare(item))).collect();
        let is_quoted = bared.iter().any(|(_, bare)| bare.is_some());
        let items = bared.into_iter().map(|(item, bare)| bare.unwrap_or_else(|| item.to_owned()));
        is_quoted.then(|| items.collect::<Vec<_>>().join(", "))
    };
    let is_list = matches!(kind, Kind::List | Kind::Aliases | Kind::HostPorts);
    bare(value).or_else(|| if is_list { items() } else { None })
}

/// Another value; what a provider gave is shown as it was written.
fn change(setting: &mut Setting, value: &str) {
    if setting.value == setting.shown {
        setting.shown = Rc::from(value);
    }
    setting.value = Rc::from(value);
}

fn without_comment(kind: Kind, value: &str) -> &str {
    &value[..values::comment_start(kind, value).unwrap_or(value.len())]
}

fn cut_comment(key: &str, kind: Kind, setting: &mut Setting, entry: &Entry) -> Option<Problem> {
    let help = "in a .properties file a comment has a line of its own";
    let place = |at: usize| {
        if *setting.value == entry.value { entry.part(at, at + 1).start } else { entry.value_span.start }
    };
    if let Some(at) = values::comment_start(kind, &setting.value) {
        let span = Span { start: place(at), end: entry.value_span.end };
        let theirs = whole_value(key, &entry.key, kind, setting);
        let kept = setting.value[..at].trim_end().to_owned();
        change(setting, &kept);
        let message = format!("what follows # is taken for a comment, so that {key} is {:?}", setting.shown);
        let problem = Problem::warning(message).at(span).help(help);
        return Some(match theirs {
            Some(theirs) => problem.mirror_maker(theirs),
            None => problem,
        });
    }
    let at = values::spaced_hash(&setting.value).filter(|_| kind == Kind::Text)?;
    let span = Span { start: place(at), end: entry.value_span.end };
    Some(
        Problem::warning(format!("# starts no comment here: it is part of the value of {key}"))
            .at(span)
            .help(help),
    )
}

/// What MirrorMaker makes of a value with a comment behind it (`ConfigDef.parseType`, `MirrorMakerConfig.clusterPairs`).
fn whole_value(key: &str, written: &str, kind: Kind, setting: &Setting) -> Option<String> {
    if key.contains("kmirror.") {
        return None;
    }
    if written != key {
        return Some(format!("ignores {written}"));
    }
    if setting.value != setting.shown {
        return Some("takes the comment for a part of the value".to_owned());
    }
    let value = setting.value.trim();
    let item = || values::list(value).into_iter().find(|item| item.contains('#')).unwrap_or(value);
    let decides_pairs = key.contains("->") && key.ends_with(".enabled") && key.matches('.').count() == 1
        || key.ends_with("emit.heartbeats.enabled");
    Some(match kind {
        Kind::Aliases => format!("takes {:?} for an alias", item()),
        Kind::HostPorts => format!("does not start: {:?} is no address", item()),
        Kind::List => format!("takes {:?} for an item of the list", item()),
        Kind::Boolean if decides_pairs => format!("reads {value:?} as false"),
        _ => format!("refuses {value:?}, and what needs {key} does not run"),
    })
}

/// What the user should know about a key without effect.
fn effect_of(key: &str, effect: Effect, value: &str) -> Option<Problem> {
    match effect {
        Effect::Used => None,
        Effect::Nothing(reason) => Some(Problem::info(format!("{key} has no effect: {reason}"))),
        Effect::NotYet(reason) => {
            let message = format!("{key} has no effect: {reason}");
            let asked = key.ends_with("exactly.once.source.support")
                && !value.trim().eq_ignore_ascii_case("disabled")
                || key.ends_with("exactly.once.support");
            Some(if asked { Problem::warning(message) } else { Problem::info(message) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::problem::Severity;
    use super::*;

    fn lint_text(text: &str) -> (Linted, SourceText) {
        let mut source = SourceText::new("f", text.as_bytes());
        let outside =
            Outside { env: &|name| (name == "S").then(|| "s3cret".to_owned()), read: &|_| Ok(Vec::new()) };
        (lint(text.as_bytes(), &mut source, &outside), source)
    }

    fn check(text: &str, severity: Severity, message: &str, place: &str) {
        let (linted, source) = lint_text(text);
        let found = linted.problems.iter().find(|problem| problem.message == message);
        let Some(problem) = found else { panic!("{message:?} is not in {:#?}", linted.problems) };
        assert_eq!(problem.severity, severity);
        let span = problem.span.map_or("", |span| &source.text[span.start..span.end]);
        assert_eq!(span, place);
    }

    #[test]
    fn each_entry_says_what_is_wrong_with_it_and_where() {
        use Severity::{Error, Info, Warning};
        for (text, severity, message, place) in [
            ("a=b", Error, "the key clusters is missing", ""),
            ("clusters = , ", Error, "clusters names no cluster", ", "),
            (
                "clusters=A\nA.client.id=caf\u{e9}",
                Warning,
                "A.client.id has letters beyond ASCII, which Java reads as ISO-8859-1",
                "A.client.id",
            ),
            ("clusters=A\nclusters=A,B", Info, "clusters is set again in line 2, which counts", "clusters"),
            ("clusters=A,A", Warning, "the cluster A is listed twice", "A,A"),
            (
                "clusters=topics,B",
                Warning,
                "the alias topics is also the beginning of MirrorMaker's own keys, which mix",
                "topics,B",
            ),
            (
                "clusters=A, B# two",
                Warning,
                "what follows # is taken for a comment, so that clusters is \"A, B\"",
                "# two",
            ),
            (
                "clusters=A,B\nA->B.enabled = yes",
                Error,
                "A->B.enabled: \"yes\" is neither true nor false",
                "yes",
            ),
            (
                "clusters=A,B\nreplication.factor=",
                Error,
                "replication.factor: \"\" is not a whole number",
                "replication.factor",
            ),
            ("clusters=A,B\ntasks.max=many", Warning, "tasks.max: \"many\" is not a whole number", "many"),
            (
                "clusters=A,B\ntasks.max=3",
                Info,
                "tasks.max has no effect: there are no tasks: each broker has a lane",
                "tasks.max=3",
            ),
            (
                "clusters=A,B\nexactly.once.support=required",
                Warning,
                "exactly.once.support has no effect: kmirror does not do this yet",
                "exactly.once.support=required",
            ),
            (
                "clusters=A,B\nA.client.id = x # y",
                Warning,
                "# starts no comment here: it is part of the value of A.client.id",
                "# y",
            ),
            (
                "clusters=A,B\nclient.dns.lookup=use_all_dns_ips",
                Warning,
                "client.dns.lookup has no effect",
                "client.dns.lookup=use_all_dns_ips",
            ),
            ("clusters=A,B\nnonsense=1", Warning, "nonsense is not known, and has no effect", "nonsense"),
            (
                "clusters=A,B\nC->B.enabled=true",
                Warning,
                "C->B.enabled names the cluster C, which is not in clusters",
                "C->B.enabled",
            ),
            (
                "clusters=A,B\nA->B.kmirror.admin.listen=none",
                Error,
                "A->B.kmirror.admin.listen cannot stand here",
                "A->B.kmirror.admin.listen=none",
            ),
            (
                "clusters=A,B\nconfig.providers=x",
                Error,
                "config.providers.x.class is missing",
                "config.providers=x",
            ),
        ] {
            check(text, severity, message, place);
        }
    }

    #[test]
    fn secrets_and_what_providers_give_are_not_shown() {
        let (linted, source) = lint_text(
            "clusters=A\nA.sasl.jaas.config=hunter2 # all of it\nconfig.providers=env\n\
             config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n\
             A.consumer.client.rack=${env:S}\nA.consumer.fetch.min.bytes=${env:S}",
        );
        assert_eq!(&*linted.raw["A.sasl.jaas.config"].value, "hunter2 # all of it");
        assert_eq!(&*linted.raw["A.sasl.jaas.config"].shown, HIDDEN);
        assert_eq!(&*linted.raw["A.consumer.client.rack"].value, "s3cret");
        assert_eq!(&*linted.raw["A.consumer.client.rack"].shown, "${env:S}");
        let everything = format!("{:?} {source:?}", linted.problems);
        assert!(!everything.contains("hunter2") && !everything.contains("s3cret"), "{everything}");
        assert!(everything.contains("A.consumer.fetch.min.bytes: its value is not valid"), "{everything}");
    }
}
