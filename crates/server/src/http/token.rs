//! The token that the HTTP listener demands, if the configuration names a file with one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq;

/// Fewest characters: shorter ones can be guessed.
const SHORTEST: usize = 16;

/// What is demanded at present. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Token(Arc<RwLock<Option<String>>>);

impl Token {
    /// Demands what is in a file from now on, or nothing.
    ///
    /// # Errors
    /// What is wrong with the file. The demand stays as it was.
    pub(crate) fn load(&self, path: Option<&Path>) -> Result<(), String> {
        let token = path.map(read).transpose()?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = token;
        Ok(())
    }

    /// Whether a token is demanded.
    pub(super) fn is_demanded(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whether a request shows the token, or none is demanded.
    pub(super) fn is_shown(&self, headers: &HeaderMap) -> bool {
        let token = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(token) = token.as_deref() else { return true };
        let shown = headers.get(header::AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
        let shown = match shown.split_at_checked("Bearer ".len()) {
            Some((scheme, shown)) if scheme.eq_ignore_ascii_case(b"Bearer ") => shown,
            _ => return false,
        };
        // Takes as long wherever the first difference is.
        token.as_bytes().ct_eq(shown).into()
    }
}

/// Reads a token.
///
/// # Errors
/// What is wrong with the file.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let wrong = |what: &str| format!("http-token-file {}: {what}", path.display());
    let text = fs::read_to_string(path).map_err(|error| wrong(&error.to_string()))?;
    let token = text.trim();
    if token.len() < SHORTEST || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong(
            "expected one line of at least 16 characters without blanks, as `openssl rand -hex \
             32` prints",
        ));
    }
    let mode = fs::metadata(path).map_or(0, |found| found.permissions().mode());
    if mode & 0o004 != 0 {
        tracing::warn!("{}", wrong("everybody on this machine may read it; chmod o= it"));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = Token::default();
        let shows = |value: &str| {
            let value = value.parse().unwrap();
            token.is_shown(&HeaderMap::from_iter([(header::AUTHORIZATION, value)]))
        };
        assert!(token.is_shown(&HeaderMap::new()), "none is demanded");
        fs::write(&path, "0123456789abcdef\n").unwrap();
        token.load(Some(&path)).unwrap();
        assert!(shows("Bearer 0123456789abcdef") && shows("bearer 0123456789abcdef"));
        for wrong in ["", "Bearer", "Bearer ", "Bearer 0123456789abcde", "0123456789abcdef"] {
            assert!(!shows(wrong), "{wrong}");
        }
        assert!(!shows("Bearer 0123456789abcdefg") && !shows("Basic 0123456789abcdef"));
        assert!(!token.is_shown(&HeaderMap::new()));
        for content in ["", "short", "0123456789 abcdef", "0123456789abcdef\nsecond"] {
            fs::write(&path, content).unwrap();
            let wrong = token.load(Some(&path)).unwrap_err();
            assert!(wrong.contains("at least 16 characters"), "{wrong}");
        }
        assert!(shows("Bearer 0123456789abcdef"), "it stays");
    }
}
