//! Globs, each with a value, of which the first that matches a text decides.

/// An ordered list of globs: `*` stands for any characters, `?` for one.
#[derive(Clone, Debug)]
pub(crate) struct Globs<V> {
    list: Vec<(String, V)>,
    /// For each first byte of a text, the globs that can match, in order.
    candidates: Vec<Vec<u32>>,
}

impl<V> Default for Globs<V> {
    fn default() -> Self {
        Globs { list: Vec::new(), candidates: vec![Vec::new(); 256] }
    }
}

impl<V> Globs<V> {
    pub(crate) fn push(&mut self, glob: &str, value: V) {
        let number = self.list.len() as u32;
        match glob.bytes().next() {
            Some(first) if !matches!(first, b'*' | b'?') => {
                self.candidates[usize::from(first)].push(number);
            }
            // An empty glob matches nothing that has a first byte.
            None => {}
            Some(_) => self.candidates.iter_mut().for_each(|l| l.push(number)),
        }
        self.list.push((glob.to_owned(), value));
    }

    /// The number of the first that matches.
    pub(crate) fn first(&self, text: &str) -> Option<u32> {
        let candidates = &self.candidates[usize::from(*text.as_bytes().first()?)];
        let matches = |number: &&u32| {
            let (glob, _) = &self.list[**number as usize];
            is_match(glob.as_bytes(), text.as_bytes())
        };
        candidates.iter().find(matches).copied()
    }

    /// The value of that number.
    pub(crate) fn get(&self, number: u32) -> Option<&V> {
        self.list.get(number as usize).map(|(_, value)| value)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.list.iter().map(|(_, value)| value)
    }
}

/// Whether `text` matches `pattern`. Linear in practice: one point of return.
fn is_match(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(b) if *b == b'?' || *b == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                Some((after_star, from)) => {
                    retry = Some((after_star, from + 1));
                    p = after_star;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        let matches = |p: &str, t: &str| is_match(p.as_bytes(), t.as_bytes());
        assert!(matches("pthread_*", "pthread_mutex_lock"));
        assert!(matches("a*b*c", "axxbyybc"));
        assert!(matches("?b", "ab"));
        assert!(matches("*", ""));
        assert!(!matches("pthread_*", "my_pthread_x"));
        assert!(!matches("a", "ab"));
        assert!(!matches("ab", "a"));
        assert!(!matches("?", ""));
        let hard = "a".repeat(4000);
        assert!(!matches("*a*a*a*a*b", &hard));
    }
}
