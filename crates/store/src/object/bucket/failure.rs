//! Errors of the services for objects, as a person reads them: one line, with what to do where that
//! is known.

use std::error::Error;
use std::io::{self, ErrorKind};

use object_store::client::{HttpError, HttpErrorKind};

use crate::open::AWAY;

/// What the texts of errors contain, and what to do. The first that fits is used.
const ADVICE: [(&str, &str); 7] = [
    (
        "scheme is not allowed",
        "the endpoint is plain http, without encryption: AWS_ALLOW_HTTP=true (Azure: \
         AZURE_ALLOW_HTTP) permits that",
    ),
    (
        "NoSuchBucket",
        "there is no such bucket: make it, or check its name, AWS_ENDPOINT and AWS_REGION",
    ),
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
    let advice = ADVICE.iter().find(|(part, _)| text.contains(part)).map(|(_, advice)| *advice);
    let kind = match error {
        _ if advice.is_none() && is_away(&error, &text) => AWAY,
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

/// Whether an error says that the whole bucket is missing, and not only an object.
pub(super) fn is_without_bucket(error: &object_store::Error) -> bool {
    error.to_string().contains("NoSuchBucket")
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
fn is_away(error: &object_store::Error, text: &str) -> bool {
    // The library hides the status; 429 is a service that has too much to do.
    let fails = ["code: 5", "code: 429", "InternalError", "SlowDown"];
    if fails.iter().any(|part| text.contains(part)) {
        return true;
    }
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(http) = error.downcast_ref::<HttpError>() {
            use HttpErrorKind::{Connect, Interrupted, Request, Timeout};
            return matches!(http.kind(), Connect | Interrupted | Request | Timeout);
        }
        cause = error.source();
    }
    false
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
    }
}
