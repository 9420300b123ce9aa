//! Errors of the services for objects, as a person reads them: one line, with what to do where that
//! is known.

use std::error::Error;
use std::io::{self, ErrorKind};

use object_store::client::{HttpError, HttpErrorKind};

use crate::open::AWAY;

/// That a server has no credentials of S3; what the metadata service does follows.
pub(super) const NO_CREDENTIALS: &str = "no credentials: set AWS_ACCESS_KEY_ID and \
    AWS_SECRET_ACCESS_KEY (or AWS_SKIP_SIGNATURE=true for a service without); the metadata service \
    of Amazon's machines";

/// What the addresses contain that are asked where there are no credentials.
const METADATA: [&str; 2] = ["/latest/api/token", "/latest/meta-data/iam/security-credentials"];

/// What a service says of an object that is missing, and the status that comes with it, as the
/// library writes it.
const MISSING: [&str; 2] = ["NoSuchKey", "BlobNotFound"];
const NOT_FOUND: &str = "code: 404";

/// What the texts of errors contain, and what to do. The first that fits is used.
const ADVICE: [(&str, &str); 10] = [
    ("Missing AccessKeyId", "AWS_SECRET_ACCESS_KEY is set without AWS_ACCESS_KEY_ID: set both"),
    ("Missing SecretAccessKey", "AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY: set both"),
    (
        "scheme is not allowed",
        "the endpoint is plain http, without encryption: AWS_ALLOW_HTTP=true (Azure: \
         AZURE_ALLOW_HTTP) permits that",
    ),
    (
        "NoSuchBucket",
        "there is no such bucket: make it, or check its name, AWS_ENDPOINT and AWS_REGION",
    ),
    ("ContainerNotFound", "there is no such container: make it, or check its name"),
    (
        "InvalidAccessKeyId",
        "the service does not know the key: check AWS_ACCESS_KEY_ID, and AWS_ENDPOINT",
    ),
    (
        "SignatureDoesNotMatch",
        "the secret does not belong to the key: check AWS_SECRET_ACCESS_KEY and AWS_REGION",
    ),
    ("ExpiredToken", "AWS_SESSION_TOKEN has expired"),
    ("AccessDenied", "the key may not do that: it needs to list, read, write and delete there"),
    ("incorrectly configured region", "the bucket is in another region: set AWS_REGION"),
];

/// Converts an error of a service, never to a kind with a special meaning here, such as
/// "unsupported", except [`AWAY`].
pub(super) fn failure(error: object_store::Error) -> io::Error {
    use object_store::Error;
    let text = with_causes(&error);
    let has_no_credentials = METADATA.iter().any(|part| text.contains(part));
    let advice = if has_no_credentials {
        Some(format!("{NO_CREDENTIALS} gives none"))
    } else {
        let found = ADVICE.iter().find(|(part, _)| text.contains(part));
        found.map(|&(_, advice)| advice.to_owned())
    };
    let kind = match error {
        _ if (has_no_credentials || advice.is_none()) && is_away_with(&error, &text) => AWAY,
        _ if has_no_credentials => ErrorKind::PermissionDenied,
        Error::NotFound { .. } => ErrorKind::NotFound,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            ErrorKind::PermissionDenied
        }
        _ => ErrorKind::Other,
    };
    let advice = advice.map_or(String::new(), |advice| format!("{advice} ("));
    let end = if advice.is_empty() { "" } else { ")" };
    io::Error::new(kind, format!("{advice}{}{end}", in_a_line(&text)))
}

/// `None` if an object is missing.
pub(super) fn existing<T>(found: object_store::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(failure(error)),
    }
}

/// Whether an object is missing. A service says so in words: the whole bucket may be missing, and a
/// status alone may be that of a proxy which does not find the service.
pub(super) fn is_missing(error: &object_store::Error) -> bool {
    let is_not_found = matches!(error, object_store::Error::NotFound { .. });
    is_not_found && !is_unsaid(error, &with_causes(error))
}

/// Whether a service that was asked for an object, with this answer, does not say what is missing.
fn is_unsaid(error: &object_store::Error, text: &str) -> bool {
    matches!(error, object_store::Error::NotFound { .. })
        && text.contains(NOT_FOUND)
        && !MISSING.iter().any(|code| text.contains(code))
}

/// The text of an error, with those causes that it leaves out.
fn with_causes(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text += &format!(": {said}");
        }
        cause = error.source();
    }
    text
}

/// Whether the service was not reached, did not answer, or failed itself.
pub(super) fn is_away(error: &object_store::Error) -> bool {
    is_away_with(error, &with_causes(error))
}

/// Whether a request was sent and no answer came, and the client has not repeated it, since it may
/// have been executed.
pub(super) fn is_unanswered(error: &object_store::Error) -> bool {
    use HttpErrorKind::{Connect, Request};
    http_error(error).is_some_and(|http| !matches!(http.kind(), Connect | Request))
}

/// [`is_away`] of an error with this text.
fn is_away_with(error: &object_store::Error, text: &str) -> bool {
    // The library hides the status; 429 is a service that has too much to do.
    let fails = ["code: 5", "code: 429", "InternalError", "SlowDown"];
    // Perhaps a proxy does not find the service.
    if is_unsaid(error, text) || fails.iter().any(|part| text.contains(part)) {
        return true;
    }
    use HttpErrorKind::{Connect, Interrupted, Request, Timeout};
    http_error(error)
        .is_some_and(|http| matches!(http.kind(), Connect | Interrupted | Request | Timeout))
}

/// The error of the connection, if that is the cause.
fn http_error(error: &object_store::Error) -> Option<&HttpError> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(http) = error.downcast_ref::<HttpError>() {
            return Some(http);
        }
        cause = error.source();
    }
    None
}

/// A text without the marks of XML and without line breaks, not longer than a line of a log may be.
fn in_a_line(text: &str) -> String {
    let mut is_mark = false;
    let plain: String = text
        .chars()
        .map(|c| {
            is_mark = (is_mark || c == '<') && c != '>';
            if is_mark || c == '>' || c.is_control() { ' ' } else { c }
        })
        .collect();
    let words: Vec<_> = plain.split_whitespace().collect();
    words.join(" ").chars().take(600).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> io::Error {
        failure(object_store::Error::Generic { store: "S3", source: text.into() })
    }

    #[test]
    fn what_a_service_says_becomes_a_line_with_advice() {
        let body = "<?xml version=\"1.0\"?>\n<Error>\n  <Code>InvalidAccessKeyId</Code>\
                    <Message>The key\nis not known</Message></Error>";
        let said = generic(body).to_string();
        assert!(said.starts_with("the service does not know the key: check AWS_ACCESS_KEY_ID"));
        assert!(said.ends_with("InvalidAccessKeyId The key is not known)"), "{said}");
        let long = generic(&"x".repeat(10_000)).to_string();
        assert!(long.len() < 700, "{}", long.len());
    }

    #[test]
    fn a_service_that_fails_is_away_and_a_wrong_key_is_not() {
        for text in ["status code: 503 Service Unavailable: ", "code: 429", "<Code>SlowDown</Code>"]
        {
            assert_eq!(generic(text).kind(), AWAY, "{text}");
        }
        for text in ["status code: 400 Bad Request", "NoSuchBucket, status code: 503"] {
            assert_eq!(generic(text).kind(), ErrorKind::Other, "{text}");
        }
        let not_found = |text: &str| {
            let text = format!("status code: 404 Not Found: {text}");
            object_store::Error::NotFound { path: "o".to_owned(), source: text.into() }
        };
        for (text, kind) in [
            ("<Code>NoSuchKey</Code>", ErrorKind::NotFound),
            ("<Code>BlobNotFound</Code>", ErrorKind::NotFound),
            ("<Code>NoSuchBucket</Code>", ErrorKind::NotFound),
            ("<Code>ContainerNotFound</Code>", ErrorKind::NotFound),
            ("404 page not found", AWAY),
            ("", AWAY),
        ] {
            assert_eq!(failure(not_found(text)).kind(), kind, "{text}");
            let is_object = text.contains("Key") || text.contains("Blob");
            assert_eq!(is_missing(&not_found(text)), is_object, "{text}");
        }
    }

    #[test]
    fn a_metadata_service_without_credentials_is_said_in_words() {
        let asked = "Error performing PUT http://169.254.169.254/latest/api/token in 1ms";
        let refused = generic(&format!("{asked}: 403 Forbidden: <Code>AccessDenied</Code>"));
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        let said = refused.to_string();
        assert!(said.starts_with("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET"), "{said}");
        assert!(said.contains("machines gives none (Generic S3 error: Error performing"), "{said}");
        // That of a machine without a role.
        let missing = generic(&format!("{asked}: status code: 404 Not Found: "));
        assert_eq!(missing.kind(), ErrorKind::PermissionDenied);
        // One that fails itself may give some later.
        assert_eq!(generic(&format!("{asked}: status code: 503")).kind(), AWAY);
        let half = generic("Missing SecretAccessKey").to_string();
        assert!(half.starts_with("AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS"), "{half}");
    }
}
