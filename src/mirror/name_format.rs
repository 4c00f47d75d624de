//! Names made by a format with `{source}`, `{target}` and one of `{topic}` or `{group}`, and read back.
//!
//! Two-way: `parse(format(source, name))` is `(source, name)` for every name and every alias of the file, or the format is
//! refused. So a placeholder stands once, an alias is separated from what it could run into by text, and no alias may hold
//! that text. In front of the name the shortest alias is taken, behind it as well, so that the name itself may hold
//! anything. Under the default policy's own rules `us.east.orders` reads as `east.orders` of `us`; here such an alias is
//! refused.

use std::sync::Arc;

/// A format of names on the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameFormat {
    text: Arc<str>,
    target: Arc<str>,
    before: Vec<Piece>,
    behind: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Source,
    Target,
    Name,
}

/// A name read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// The source's alias, where the format has it.
    pub source: Option<&'a str>,
    /// The name at the source.
    pub name: &'a str,
}

impl NameFormat {
    /// For names on `target`; `subject` is the placeholder of the name, `aliases` those that the format must tell apart.
    ///
    /// # Errors
    /// In words: what the format lacks, or where it is ambiguous.
    pub fn new(text: &str, subject: &str, target: &str, aliases: &[&str]) -> Result<NameFormat, String> {
        let pieces = pieces(text, subject)?;
        for piece in [Piece::Source, Piece::Target, Piece::Name] {
            if pieces.iter().filter(|&other| *other == piece).count() > 1 {
                return Err(format!("{text} has a placeholder twice"));
            }
        }
        let Some(at) = pieces.iter().position(|piece| *piece == Piece::Name) else {
            return Err(format!("{text} has no {{{subject}}}"));
        };
        let (before, behind) = (pieces[..at].to_vec(), pieces[at + 1..].to_vec());
        for (pieces, is_before) in [(&before, true), (&behind, false)] {
            for (index, piece) in pieces.iter().enumerate().filter(|(_, piece)| piece.is_alias()) {
                let neighbour = if is_before {
                    pieces.get(index + 1)
                } else {
                    index.checked_sub(1).map(|at| &pieces[at])
                };
                let Some(Piece::Text(border)) = neighbour else {
                    let alias = if *piece == Piece::Source { "{source}" } else { "{target}" };
                    return Err(format!(
                        "{text} is ambiguous: a text must stand between {alias} and what is next to it"
                    ));
                };
                let clear = |alias: &&&str| {
                    if is_before {
                        format!("{alias}{border}").find(border.as_str()) != Some(alias.len())
                    } else {
                        format!("{border}{alias}").rfind(border.as_str()) != Some(0)
                    }
                };
                if let Some(alias) = aliases.iter().find(clear) {
                    return Err(format!(
                        "{text} is ambiguous: the alias {alias} holds {border:?}, which is to end it"
                    ));
                }
            }
        }
        Ok(NameFormat { text: Arc::from(text), target: Arc::from(target), before, behind })
    }

    /// The format as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether a name tells the cluster that it came from.
    pub fn has_source(&self) -> bool {
        self.before.iter().chain(&self.behind).any(|piece| *piece == Piece::Source)
    }

    /// What `name` of `source` is called on the target.
    pub fn format(&self, source: &str, name: &str) -> String {
        let mut formatted = String::new();
        let name_piece = [Piece::Name];
        for piece in self.before.iter().chain(&name_piece).chain(&self.behind) {
            formatted.push_str(match piece {
                Piece::Text(text) => text,
                Piece::Source => source,
                Piece::Target => &self.target,
                Piece::Name => name,
            });
        }
        formatted
    }

    /// Reads a name back; `None` when the format did not make it.
    pub fn parse<'a>(&self, formatted: &'a str) -> Option<Parsed<'a>> {
        let mut rest = formatted;
        let mut source = None;
        let mut pieces = self.before.iter().peekable();
        while let Some(piece) = pieces.next() {
            match (piece, pieces.peek()) {
                (Piece::Text(text), _) => rest = rest.strip_prefix(text.as_str())?,
                (alias, Some(Piece::Text(border))) => {
                    let end = rest.find(border.as_str()).filter(|&end| end > 0)?;
                    if *alias == Piece::Source {
                        source = Some(&rest[..end]);
                    }
                    rest = &rest[end..];
                }
                _ => return None,
            }
        }
        let mut pieces = self.behind.iter().rev().peekable();
        while let Some(piece) = pieces.next() {
            match (piece, pieces.peek()) {
                (Piece::Text(text), _) => rest = rest.strip_suffix(text.as_str())?,
                (alias, Some(Piece::Text(border))) => {
                    let start = rest.rfind(border.as_str())? + border.len();
                    let found = rest.get(start..).filter(|found| !found.is_empty())?;
                    if *alias == Piece::Source {
                        source = Some(found);
                    }
                    rest = &rest[..start];
                }
                _ => return None,
            }
        }
        (!rest.is_empty()).then_some(Parsed { source, name: rest })
    }
}

impl Piece {
    fn is_alias(&self) -> bool {
        matches!(self, Piece::Source | Piece::Target)
    }
}

fn pieces(text: &str, subject: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(['{', '}']) {
        if start > 0 {
            pieces.push(Piece::Text(rest[..start].to_owned()));
        }
        let inside = rest[start..].strip_prefix('{').and_then(|inside| inside.split_once('}'));
        let Some((word, behind)) = inside else {
            return Err(format!("{text} has a brace without its other"));
        };
        pieces.push(match word {
            "source" => Piece::Source,
            "target" => Piece::Target,
            word if word == subject => Piece::Name,
            word => {
                return Err(format!(
                    "{text} has {{{word}}}; there are {{source}}, {{target}} and {{{subject}}}"
                ));
            }
        });
        rest = behind;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALIASES: [&str; 3] = ["us-east", "eu-west", "lab"];

    fn format(text: &str) -> Result<NameFormat, String> {
        NameFormat::new(text, "topic", "eu-west", &ALIASES)
    }

    #[track_caller]
    fn check(text: &str, source: &str, name: &str, formatted: &str) {
        let format = format(text).unwrap();
        assert_eq!(format.format(source, name), formatted);
        let source = format.has_source().then_some(source);
        assert_eq!(format.parse(formatted), Some(Parsed { source, name }));
    }

    #[test]
    fn names_are_made_and_read_back() {
        check("{source}.{topic}", "us-east", "a.b", "us-east.a.b");
        check("{source}_prod_v2.{topic}", "us-east", "orders", "us-east_prod_v2.orders");
        check("{topic}.{source}", "us-east", "a.b", "a.b.us-east");
        check(
            "{topic}.replica-of-{source}-in-{target}.v1",
            "lab",
            "x-in-y",
            "x-in-y.replica-of-lab-in-eu-west.v1",
        );
        check("{source}-to-{target}.{topic}", "lab", "t", "lab-to-eu-west.t");
        check("mirror.{topic}", "lab", "t", "mirror.t");
        check("{topic}", "lab", "t", "t");
        let dotted = format("{source}_prod_v2.{topic}").unwrap();
        for other in ["orders", "us-east.orders", "_prod_v2.orders", "us-east_prod_v2."] {
            assert_eq!(dotted.parse(other), None, "{other}");
        }
    }

    #[test]
    fn what_cannot_be_read_back_is_refused() {
        for (text, reason) in [
            (
                "{source}{topic}",
                "{source}{topic} is ambiguous: a text must stand between {source} and what is next to it",
            ),
            (
                "{topic}{target}",
                "{topic}{target} is ambiguous: a text must stand between {target} and what is next to it",
            ),
            (
                "{source}-{topic}",
                "{source}-{topic} is ambiguous: the alias us-east holds \"-\", which is to end it",
            ),
            (
                "{topic}-{source}",
                "{topic}-{source} is ambiguous: the alias us-east holds \"-\", which is to end it",
            ),
            ("{source}.", "{source}. has no {topic}"),
            ("{topic}.{topic}", "{topic}.{topic} has a placeholder twice"),
            ("{alias}.{topic}", "{alias}.{topic} has {alias}; there are {source}, {target} and {topic}"),
            (
                "{source.{topic}",
                "{source.{topic} has {source.{topic}; there are {source}, {target} and {topic}",
            ),
            ("{topic", "{topic has a brace without its other"),
            ("topic}", "topic} has a brace without its other"),
        ] {
            assert_eq!(format(text), Err(reason.to_owned()));
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_accepted_is_two_way(
            text in "(\\{source\\}|\\{target\\}|[-._a]{0,3}|\\{topic\\}){1,5}",
            name in "[-._a-c]{1,8}",
            alias in 0..3_usize,
        ) {
            if let Ok(format) = format(&text) {
                let formatted = format.format(ALIASES[alias], &name);
                let source = format.has_source().then_some(ALIASES[alias]);
                proptest::prop_assert_eq!(format.parse(&formatted), Some(Parsed { source, name: &name }));
            }
        }
    }
}
