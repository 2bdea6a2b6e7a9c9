//! The users that docs/threat-model/redis.md describes.

const PAGE: &str = include_str!("../../../../docs/threat-model/redis.md");

/// The command with which the page creates a user, word by word.
pub(crate) fn recipe(user: &str) -> Vec<&'static str> {
    let blocks = PAGE.split("```text\n").skip(1).filter_map(|rest| rest.split("```").next());
    let start = format!("ACL SETUSER {user} on >secret ");
    let mut found = blocks.filter(|block| block.starts_with(&start));
    let (Some(recipe), None) = (found.next(), found.next()) else { panic!("one recipe for {user}") };
    recipe.split_whitespace().collect()
}
