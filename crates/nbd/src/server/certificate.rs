//! Extracts fields of a certificate: the common name of its subject, and when it expires. rustls
//! has verified the certificate, but offers no access to its fields.

use x509_parser::asn1_rs::{Any, Tag};
use x509_parser::certificate::{Validity, X509CertificateParser};
use x509_parser::nom::Parser;

/// The common name of the subject. `None` if there is none or more than one, or if it is not a text
/// that is safe to display.
pub(crate) fn common_name(certificate: &[u8]) -> Option<String> {
    // Extensions do not affect the subject, so a damaged one does not matter.
    let mut parser = X509CertificateParser::new().with_deep_parse_extensions(false);
    let (_, certificate) = parser.parse(certificate).ok()?;
    let mut names = certificate.subject().iter_common_name();
    let name = text(names.next()?.attr_value())?;
    names.next().is_none().then_some(name)
}

/// From when and until when a certificate is valid. `None` if it is not a certificate.
pub(crate) fn validity(certificate: &[u8]) -> Option<Validity> {
    let mut parser = X509CertificateParser::new().with_deep_parse_extensions(false);
    let (_, certificate) = parser.parse(certificate).ok()?;
    Some(certificate.validity().clone())
}

fn text(value: &Any) -> Option<String> {
    if !matches!(value.tag(), Tag::Utf8String | Tag::PrintableString | Tag::Ia5String) {
        return None;
    }
    let text = std::str::from_utf8(value.data).ok()?;
    (!text.is_empty() && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::common_name;

    fn certificate(names: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["host".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, name) in names {
            params.distinguished_name.push(kind.clone(), *name);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_one_common_name_is_found() {
        let full = certificate(&[
            (DnType::CountryName, "AT"),
            (DnType::CommonName, "alice"),
            (DnType::OrganizationalUnitName, "storage"),
        ]);
        assert_eq!(common_name(&full).as_deref(), Some("alice"));
        let long = "n".repeat(300);
        let found = common_name(&certificate(&[(DnType::CommonName, &long)]));
        assert_eq!(found, Some(long));
    }

    #[test]
    fn doubtful_ones_are_none() {
        assert_eq!(common_name(&certificate(&[(DnType::OrganizationName, "a company")])), None);
        assert_eq!(common_name(&certificate(&[(DnType::CommonName, "")])), None);
        assert_eq!(common_name(&certificate(&[(DnType::CommonName, "a\nb")])), None);
        let second = DnType::CustomDnType(vec![2, 5, 4, 3]);
        let twice = certificate(&[(DnType::CommonName, "alice"), (second, "root")]);
        assert_eq!(common_name(&twice), None);
    }

    #[test]
    fn damage_is_survived() {
        let good = certificate(&[(DnType::CommonName, "alice")]);
        for length in 0..good.len() {
            assert_eq!(common_name(&good[..length]), None);
        }
        for at in 0..good.len() {
            for value in [0, 0x30, 0x7f, 0x80, 0x83, 0x84, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                // It must not panic, whatever it finds.
                let _ = common_name(&bad);
            }
        }
    }
}
