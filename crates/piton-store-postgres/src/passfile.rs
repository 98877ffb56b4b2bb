//! The password file that PostgreSQL's own programs read: lines of `HOST:PORT:DATABASE:USER:PASSWORD`, in which `*` fits
//! anything and a backslash takes the next character as it is. The first line that fits counts.

use crate::PostgresUrl;

impl PostgresUrl {
    /// The password that the text of a password file has for this URL.
    pub fn password_in(&self, text: &str) -> Option<String> {
        let port = self.port().to_string();
        // A socket's folder is written as the host.
        let wanted = [self.host(), &port, self.database(), self.user()];
        text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
            let mut fields = fields(line).into_iter();
            let fits =
                wanted.iter().all(|wanted| fields.next().is_some_and(|(field, raw)| raw == "*" || field == *wanted));
            fits.then(|| fields.next().map(|(password, _)| password)).flatten()
        })
    }
}

/// The fields of a line, each without its backslashes and as it was written.
fn fields(line: &str) -> Vec<(String, String)> {
    let mut fields = vec![(String::new(), String::new())];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let is_last = fields.len() == 5;
        let Some((field, raw)) = fields.last_mut() else { break };
        raw.push(character);
        match character {
            ':' if !is_last => {
                raw.pop();
                fields.push(Default::default());
            }
            '\\' => field.extend(characters.next().inspect(|next| raw.push(*next))),
            other => field.push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_counts() {
        let url = PostgresUrl::parse("postgres://me@db.example/team").unwrap();
        for (text, password) in [
            ("db.example:5432:team:me:secret", Some("secret")),
            ("# db.example:5432:team:me:no\n*:*:*:*:any\ndb.example:5432:team:me:late", Some("any")),
            ("other:5432:team:me:no\ndb.example:*:team:me:a\\:b\\\\c:d", Some("a:b\\c:d")),
            ("db.example:5433:team:me:no", None),
            ("db.example:5432:team:\\*:no", None),
            ("db.example:5432:team:me", None),
            ("", None),
        ] {
            assert_eq!(url.password_in(text).as_deref(), password, "{text:?}");
        }
        let ipv6 = PostgresUrl::parse("postgres://me@[::1]:6000/team").unwrap();
        assert_eq!(ipv6.password_in("\\:\\:1:6000:team:me:x").as_deref(), Some("x"));
    }
}
