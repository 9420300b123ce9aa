//! The rules of the options `clients` and `writers`: whom one of them means. `layers/access.rs`
//! applies them.

use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};
use nix::unistd::{Gid, Group, Uid, User};
use undercroft_nbd::Peer;

/// The forms, for errors.
const FORMS: &str = "expected the common name of a certificate (NAME, or certificate:NAME), \
                     address:IP, address:NETWORK/BITS, user:NAME or group:NAME";

/// A rule that some clients match. Users and groups were looked up when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientRule {
    /// Those whose verified certificate has this common name.
    Certificate(String),
    /// Those that come over TCP from an address of this network.
    Address(IpNet),
    /// Processes of this user that come over a unix socket.
    User(u32),
    /// Processes that come over a unix socket as this group, or as one of these users, who are its
    /// members.
    Group(u32, Vec<u32>),
}

impl ClientRule {
    /// Whether a peer matches.
    pub(crate) fn admits(&self, peer: &Peer) -> bool {
        match self {
            ClientRule::Certificate(name) => peer.certificate.as_ref() == Some(name),
            ClientRule::Address(network) => peer.ip.is_some_and(|ip| network.contains(&ip)),
            ClientRule::User(user) => peer.credentials.is_some_and(|peer| peer.user == *user),
            ClientRule::Group(group, members) => peer
                .credentials
                .is_some_and(|peer| peer.group == *group || members.contains(&peer.user)),
        }
    }
}

impl FromStr for ClientRule {
    type Err = String;

    fn from_str(text: &str) -> Result<ClientRule, String> {
        let wrong = |what: &str| Err(format!(" '{text}': {what}{FORMS}"));
        match text.split_once(':') {
            Some((_, "")) => wrong(""),
            Some(("certificate", name)) => Ok(ClientRule::Certificate(name.to_owned())),
            Some(("address", network)) => match parse_network(network) {
                Ok(network) => Ok(ClientRule::Address(network)),
                Err(what) => wrong(&what),
            },
            Some(("user", name)) => find_user(name).map_err(|what| format!(" '{text}': {what}")),
            Some(("group", name)) => find_group(name).map_err(|what| format!(" '{text}': {what}")),
            // An address that lacks its key would match nobody, or somebody else's certificate.
            _ if parse_network(text).is_ok() => {
                wrong(&format!("write address:{text} for an address; "))
            }
            Some(_) => wrong("a name with a colon stands behind certificate: ; "),
            None if text.is_empty() => wrong(""),
            None => Ok(ClientRule::Certificate(text.to_owned())),
        }
    }
}

/// Written so that it is read as the same rule, whatever the name.
impl fmt::Display for ClientRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientRule::Certificate(name) => write!(f, "certificate:{name}"),
            ClientRule::Address(network) => write!(f, "address:{network}"),
            ClientRule::User(user) => write!(f, "user:{user}"),
            ClientRule::Group(group, _) => write!(f, "group:{group}"),
        }
    }
}

/// A single address is a network of its own. IPv4 addresses in IPv6 notation are IPv4 addresses,
/// as they are for clients.
fn parse_network(text: &str) -> Result<IpNet, String> {
    let network = match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address),
        Err(_) => text.parse::<IpNet>().map_err(|_| String::new())?,
    };
    let network = match network {
        IpNet::V6(six) if six.prefix_len() >= 96 => six
            .addr()
            .to_ipv4_mapped()
            .and_then(|four| Ipv4Net::new(four, six.prefix_len() - 96).ok())
            .map_or(network, IpNet::V4),
        _ => network,
    };
    if network.addr() != network.network() {
        return Err(format!("the network is written {}; ", network.trunc()));
    }
    Ok(network)
}

fn find_user(name: &str) -> Result<ClientRule, String> {
    let number = match name.parse::<u32>() {
        Ok(number) => number,
        Err(_) => user_number(name)?.ok_or("there is no such user on this machine")?,
    };
    check_mapped("user", number, "/proc/self/uid_map")?;
    Ok(ClientRule::User(number))
}

fn find_group(name: &str) -> Result<ClientRule, String> {
    let found = match name.parse::<u32>() {
        Ok(number) => Group::from_gid(Gid::from_raw(number)),
        Err(_) => Group::from_name(name),
    };
    let found = found.map_err(|error| error.to_string())?;
    let number = match (&found, name.parse::<u32>()) {
        (Some(group), _) => group.gid.as_raw(),
        (None, Ok(number)) => number,
        (None, Err(_)) => return Err("there is no such group on this machine".to_owned()),
    };
    check_mapped("group", number, "/proc/self/gid_map")?;
    let members = found.map(|group| group.mem).unwrap_or_default();
    let members = members.iter().filter_map(|name| user_number(name).transpose());
    Ok(ClientRule::Group(number, members.collect::<Result<_, _>>()?))
}

fn user_number(name: &str) -> Result<Option<u32>, String> {
    let found = User::from_name(name).map_err(|error| error.to_string())?;
    Ok(found.map(|user| Uid::as_raw(user.uid)))
}

/// Refuses a number that this process cannot see at a socket, because it runs in a user namespace
/// without it: all of these look the same there, as 65534.
fn check_mapped(what: &str, number: u32, map: &str) -> Result<(), String> {
    let Ok(map) = fs::read_to_string(map) else { return Ok(()) };
    if is_mapped(&map, number) {
        return Ok(());
    }
    Err(format!(
        "{what} {number} does not exist in the user namespace that the server runs in (systemd \
         makes one for PrivateUsers=yes), so that no client can be known by it"
    ))
}

/// Whether a line of a map (inside, outside, count) has the number inside.
fn is_mapped(map: &str, number: u32) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().unwrap_or(0));
        let (first, count) = (fields.next().unwrap_or(0), fields.nth(1).unwrap_or(0));
        (first..first.saturating_add(count)).contains(&u64::from(number))
    })
}

#[cfg(test)]
mod tests {
    use undercroft_nbd::Credentials;

    use super::*;

    fn from(ip: &str) -> Peer {
        let ip = ip.parse::<IpAddr>().unwrap().to_canonical();
        Peer { address: format!("{ip}:40612"), ip: Some(ip), ..Peer::default() }
    }

    fn over_unix(user: u32, group: u32) -> Peer {
        Peer { credentials: Some(Credentials { user, group }), ..Peer::default() }
    }

    fn with_certificate(name: &str) -> Peer {
        Peer { certificate: Some(name.to_owned()), encrypted: true, ..Peer::default() }
    }

    #[test]
    fn addresses_and_networks_of_both_kinds() {
        for (rule, inside, outside) in [
            ("address:10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("address:10.0.0.0/8", "::ffff:10.1.2.3", "::ffff:11.0.0.1"),
            ("address:::ffff:10.0.0.0/104", "10.1.2.3", "11.0.0.1"),
            ("address:192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("address:::ffff:192.0.2.7", "192.0.2.7", "::ffff:c000:208"),
            ("address:2001:db8::/32", "2001:db8:1::2", "2001:db9::"),
            ("address:::1", "::1", "127.0.0.1"),
            ("address:0.0.0.0/0", "203.0.113.9", "2001:db8::1"),
            ("address:::/0", "2001:db8::1", "203.0.113.9"),
        ] {
            let rule = rule.parse::<ClientRule>().unwrap();
            assert!(rule.admits(&from(inside)) && !rule.admits(&from(outside)), "{rule}");
            assert_eq!(rule.to_string().parse(), Ok(rule));
        }
    }

    #[test]
    fn a_rule_matches_nobody_of_whom_it_knows_nothing() {
        let peers = [
            Peer::default(),
            Peer { encrypted: true, ..Peer::default() },
            from("192.0.2.1"),
            over_unix(7, 8),
            with_certificate("user:7"),
        ];
        for (rule, admitted) in [
            ("db", vec![]),
            ("certificate:user:7", vec![4]),
            ("address:192.0.2.1", vec![2]),
            ("user:7", vec![3]),
            ("user:8", vec![]),
            ("group:8", vec![3]),
            ("group:7", vec![]),
        ] {
            let rule = rule.parse::<ClientRule>().unwrap();
            let found = peers.iter().enumerate().filter(|(_, peer)| rule.admits(peer));
            assert_eq!(found.map(|(at, _)| at).collect::<Vec<_>>(), admitted, "{rule}");
        }
    }

    #[test]
    fn users_and_groups_have_names_and_members() {
        assert_eq!("user:root".parse(), Ok(ClientRule::User(0)));
        let root = "group:root".parse::<ClientRule>().unwrap();
        assert!(matches!(root, ClientRule::Group(0, _)) && root.admits(&over_unix(5, 0)));
        let kvm = ClientRule::Group(108, vec![1000]);
        assert!(kvm.admits(&over_unix(1000, 100)) && !kvm.admits(&over_unix(1001, 100)));
    }

    #[test]
    fn what_is_no_rule_is_answered_by_the_forms() {
        for (text, part) in [
            ("", "expected the common name"),
            ("user:", "expected the common name"),
            ("adress:10.0.0.1", "stands behind certificate:"),
            ("10.0.0.1", "write address:10.0.0.1"),
            ("fe80::/10", "write address:fe80::/10"),
            ("address:db1", "address:NETWORK/BITS"),
            ("address:10.0.0.1:80", "address:NETWORK/BITS"),
            ("address:10.0.0.0/33", "address:NETWORK/BITS"),
            ("address:10.0.0.7/8", "the network is written 10.0.0.0/8"),
            ("user:no-such-user-here", "no such user"),
            ("group:no-such-group-here", "no such group"),
        ] {
            let wrong = text.parse::<ClientRule>().unwrap_err();
            assert!(wrong.starts_with(&format!(" '{text}': ")) && wrong.contains(part), "{wrong}");
        }
    }

    #[test]
    fn numbers_outside_of_the_user_namespace_are_known() {
        let (all, service) = ("0 0 4294967295", "         0  0  1\n       998  998  1\n");
        assert!(is_mapped(all, 0) && is_mapped(all, 70_000));
        assert!(is_mapped(service, 998) && !is_mapped(service, 110) && !is_mapped("", 0));
    }
}
