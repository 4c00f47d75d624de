//! `kmirror.acl.principal.map`: what principals are called on the target.
//!
//! Rules stand between `;`, since names of certificates hold commas: `User:CN=app,O=x -> User:app; User:{name} ->
//! User:{source}-{name}`. The first rule that fits decides; a principal that none fits keeps its name.

/// A map of principals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrincipalMap {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    /// What stands before and behind `{name}`; without it, the whole principal.
    from: (String, Option<String>),
    to: String,
}

const NAME: &str = "{name}";

impl PrincipalMap {
    /// Reads the rules.
    ///
    /// # Errors
    /// In words: which rule is at fault.
    pub fn new(text: &str) -> Result<PrincipalMap, String> {
        let rules = text.split(';').map(str::trim).filter(|rule| !rule.is_empty()).map(rule);
        Ok(PrincipalMap { rules: rules.collect::<Result<_, _>>()? })
    }

    /// What a principal of `source` is called on `target`.
    pub fn map(&self, principal: &str, source: &str, target: &str) -> String {
        let fitting = self.rules.iter().find_map(|rule| Some((rule, rule.name(principal)?)));
        match fitting {
            Some((rule, name)) => {
                // The name comes last: it may hold braces of its own.
                rule.to.replace("{source}", source).replace("{target}", target).replace(NAME, name)
            }
            None => principal.to_owned(),
        }
    }
}

impl Rule {
    fn name<'a>(&self, principal: &'a str) -> Option<&'a str> {
        let rest = principal.strip_prefix(self.from.0.as_str())?;
        match &self.from.1 {
            Some(behind) => rest.strip_suffix(behind.as_str()).filter(|name| !name.is_empty()),
            None => rest.is_empty().then_some(""),
        }
    }
}

fn rule(text: &str) -> Result<Rule, String> {
    let Some((from, to)) = text.split_once("->").map(|(from, to)| (from.trim(), to.trim())) else {
        return Err(format!("{text:?} is no rule, as User:a -> User:b"));
    };
    for principal in [from, to] {
        // `SecurityUtils.parseKafkaPrincipal`: a type, a colon, a name.
        if principal.split_once(':').is_none_or(|(kind, name)| kind.is_empty() || name.is_empty()) {
            return Err(format!("{principal:?} is no principal, as User:name"));
        }
    }
    let from = match from.split_once(NAME) {
        Some((before, behind)) => (before.to_owned(), Some(behind.to_owned())),
        None => (from.to_owned(), None),
    };
    if from.1.is_none() && to.contains(NAME) {
        return Err(format!("{text:?} names {NAME} on its right side alone"));
    }
    Ok(Rule { from, to: to.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_decides() {
        let map = PrincipalMap::new(
            "User:CN=app,O=x -> User:app; User:CN={name},O=y -> User:{name}@{target}; User:{name}->User:{source}-{name};",
        )
        .unwrap();
        for (principal, expected) in [
            ("User:CN=app,O=x", "User:app"),
            ("User:CN=job,O=y", "User:job@B"),
            ("User:alice", "User:A-alice"),
            ("Group:ops", "Group:ops"),
            ("User:", "User:"),
        ] {
            assert_eq!(map.map(principal, "A", "B"), expected, "{principal}");
        }
        assert_eq!(PrincipalMap::default().map("User:alice", "A", "B"), "User:alice");
    }

    #[test]
    fn a_rule_at_fault_is_named() {
        for (text, reason) in [
            ("alice", "\"alice\" is no rule, as User:a -> User:b"),
            ("alice -> User:b", "\"alice\" is no principal, as User:name"),
            ("User:a -> User:{name}", "\"User:a -> User:{name}\" names {name} on its right side alone"),
        ] {
            assert_eq!(PrincipalMap::new(text), Err(reason.to_owned()));
        }
    }
}
