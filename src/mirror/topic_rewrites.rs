//! `--rewrite.topics`: what topics are called on the target where MirrorMaker 1 copies.
//!
//! `FROM:TO` between commas, the first that matches counts, and a topic that none matches keeps its name. A `FROM` of nothing but
//! what topic names are made of is a name, whose dots are dots; anything else is a Java regular expression that must match the
//! whole name, and `TO` may then name its groups (`$1`). Two names may have one `TO`: their records go into one topic.

use super::{PatternError, Rename};

/// Kafka's limit (`Topic.MAX_NAME_LENGTH`).
const TOPIC_NAME_BYTES_MAX: usize = 249;

/// The rules in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicRewrites {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Name { from: String, to: String },
    Pattern(Rename),
}

impl TopicRewrites {
    /// Reads the rules.
    ///
    /// # Errors
    /// In words, what is wrong with which rule.
    pub fn new(text: &str) -> Result<TopicRewrites, String> {
        let mut rules: Vec<Rule> = Vec::new();
        for rule in split(text) {
            let rule = rule.trim();
            let (from, to) = rule
                .rsplit_once(':')
                .map(|(from, to)| (from.trim(), to.trim()))
                .filter(|(from, to)| !from.is_empty() && !to.is_empty())
                .ok_or_else(|| format!("{rule:?} is not FROM:TO"))?;
            let rule = parse(from, to)?;
            if rules.iter().any(|known| matches!((known, &rule), (Rule::Name { from: a, .. }, Rule::Name { from: b, .. }) if a == b)) {
                return Err(format!("{from} is named twice"));
            }
            rules.push(rule);
        }
        Ok(TopicRewrites { rules })
    }

    /// What a topic is called on the target.
    pub fn apply(&self, topic: &str) -> String {
        self.rules.iter().find_map(|rule| rule.apply(topic)).unwrap_or_else(|| topic.to_owned())
    }

    /// Whether a topic is rewritten by its name, so that it may share its target with others that are.
    pub fn names(&self, topic: &str) -> bool {
        self.rules.iter().any(|rule| matches!(rule, Rule::Name { from, .. } if from == topic))
    }
}

impl Rule {
    fn apply(&self, topic: &str) -> Option<String> {
        match self {
            Rule::Name { from, to } => (from == topic).then(|| to.clone()),
            Rule::Pattern(rename) => rename.matches(topic).then(|| rename.apply(topic).into_owned()),
        }
    }
}

fn parse(from: &str, to: &str) -> Result<Rule, String> {
    if from.chars().all(is_topic_character) {
        if !to.chars().all(is_topic_character) || to.len() > TOPIC_NAME_BYTES_MAX || [".", ".."].contains(&to)
        {
            return Err(format!("{to:?} is no topic's name"));
        }
        return Ok(Rule::Name { from: from.to_owned(), to: to.to_owned() });
    }
    let is_possible = |c: char| is_topic_character(c) || matches!(c, '$' | '{' | '}' | '\\');
    if !to.chars().all(is_possible) {
        return Err(format!("{to:?} cannot become a topic's name"));
    }
    Rename::new(from, to).map(Rule::Pattern).map_err(|error: PatternError| error.to_string())
}

/// At commas; what has no colon yet goes on behind the comma (`a{1,2}:b`).
fn split(text: &str) -> Vec<String> {
    let mut rules: Vec<String> = Vec::new();
    for piece in text.split(',').filter(|_| !text.trim().is_empty()) {
        match rules.last_mut().filter(|last| !last.contains(':')) {
            Some(last) => {
                last.push(',');
                last.push_str(piece);
            }
            None => rules.push(piece.to_owned()),
        }
    }
    rules
}

fn is_topic_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_matches_counts_and_is_the_only_one() {
        let rewrites = TopicRewrites::new("a:b, b:c,eu-(.*):$1-eu,x{1,2}:y,.*z:b").unwrap();
        for (topic, wanted) in [
            ("a", "b"),
            ("b", "c"),
            ("eu-orders", "orders-eu"),
            ("xx", "y"),
            ("xxx", "xxx"),
            ("fizz", "b"),
            ("other", "other"),
        ] {
            assert_eq!(rewrites.apply(topic), wanted, "{topic}");
        }
        assert!(rewrites.names("a") && !rewrites.names("fizz"));
        assert_eq!(TopicRewrites::new("a.b:c").unwrap().apply("axb"), "axb", "a dot in a name is a dot");
        assert_eq!(TopicRewrites::new("").unwrap(), TopicRewrites::default());
    }

    #[test]
    fn what_cannot_be_a_name_is_refused() {
        for (text, reason) in [
            ("a", "\"a\" is not FROM:TO"),
            ("a:", "\"a:\" is not FROM:TO"),
            (":b", "\":b\" is not FROM:TO"),
            ("a:b c", "\"b c\" is no topic's name"),
            ("a:..", "\"..\" is no topic's name"),
            ("a:b,a:c", "a is named twice"),
            ("(a):b/c", "\"b/c\" cannot become a topic's name"),
            ("(a:$1", "no valid regular expression"),
            ("(a):$2", "there is no group 2"),
        ] {
            let found = TopicRewrites::new(text).unwrap_err();
            assert!(found.contains(reason), "{text}: {found}");
        }
    }
}
