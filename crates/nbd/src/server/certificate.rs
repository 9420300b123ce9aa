//! The common name of a certificate's subject, the one thing we need from an X.509 certificate
//! that rustls has verified but does not take apart.

/// DER tags on the way to the name.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
/// The tag of an explicit version.
const VERSION: u8 = 0xa0;

/// The object identifier of a common name: 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// The common name of the subject: none if there is no or more than one, or if it is not a text
/// that is safe to show.
pub(crate) fn common_name(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = expect(certificate, SEQUENCE)?;
    let (_, mut fields) = expect(certificate, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.0;
    }
    // Serial number, signature algorithm, issuer, validity.
    for _ in 0..4 {
        fields = element(fields)?.0;
    }
    let (_, mut names) = expect(fields, SEQUENCE)?;
    let mut found = None;
    while !names.is_empty() {
        let (rest, mut set) = expect(names, SET)?;
        names = rest;
        while !set.is_empty() {
            let (rest, attribute) = expect(set, SEQUENCE)?;
            set = rest;
            let (value, kind) = expect(attribute, OBJECT_IDENTIFIER)?;
            if kind == COMMON_NAME && found.replace(text(value)?).is_some() {
                return None;
            }
        }
    }
    found
}

/// Splits the first element off: what follows it, its tag and its content. Lengths of up to three
/// bytes are known; no certificate is longer.
fn element(bytes: &[u8]) -> Option<(&[u8], u8, &[u8])> {
    let (&tag, bytes) = bytes.split_first()?;
    let (&first, bytes) = bytes.split_first()?;
    let (length, bytes) = match first {
        0..=0x7f => (usize::from(first), bytes),
        0x81..=0x83 => {
            let (digits, bytes) = bytes.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), bytes)
        }
        _ => return None,
    };
    let (content, rest) = bytes.split_at_checked(length)?;
    Some((rest, tag, content))
}

/// The first element if it has this tag: what follows it, and its content.
fn expect(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (rest, found, content) = element(bytes)?;
    (found == tag).then_some((rest, content))
}

fn text(bytes: &[u8]) -> Option<String> {
    let (_, tag, content) = element(bytes)?;
    if !matches!(tag, UTF8_STRING | PRINTABLE_STRING | IA5_STRING) {
        return None;
    }
    let text = std::str::from_utf8(content).ok()?;
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
                // Whatever it finds, it does not fail.
                let _ = common_name(&bad);
            }
        }
    }
}
