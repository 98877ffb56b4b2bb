//! Which addresses are private: everything that isn't the public internet.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address isn't public.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reserved {
    /// This machine.
    Loopback,
    /// This link; also where clouds answer with a machine's credentials.
    LinkLocal,
    /// A private network.
    Private,
    /// Shared by the customers of a provider.
    Shared,
    /// Not one host.
    Multicast,
    /// Set aside for documentation, tests, or nothing yet.
    Special,
}

impl fmt::Display for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "a loopback address",
            Self::LinkLocal => "a link-local address",
            Self::Private => "a private address",
            Self::Shared => "a shared address",
            Self::Multicast => "a multicast address",
            Self::Special => "a reserved address",
        })
    }
}

/// Why `address` isn't public, if it isn't. An IPv6 address that carries an IPv4 one (mapped, NAT64,
/// 6to4) is what that one is.
pub fn reserved(address: IpAddr) -> Option<Reserved> {
    match address {
        IpAddr::V4(address) => reserved_v4(address),
        IpAddr::V6(address) => reserved_v6(address),
    }
}

fn reserved_v4(address: Ipv4Addr) -> Option<Reserved> {
    let [a, b, c, _] = address.octets();
    Some(match (a, b, c) {
        (127, ..) => Reserved::Loopback,
        (169, 254, _) => Reserved::LinkLocal,
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => Reserved::Private,
        (100, 64..=127, _) => Reserved::Shared,
        (224..=239, ..) => Reserved::Multicast,
        // 0/8 is this host to Linux; 192.0.0/24 has the addresses of NAT64 and of cloud services.
        (0, ..)
        | (192, 0, 0 | 2)
        | (192, 88, 99)
        | (198, 18..=19, _)
        | (198, 51, 100)
        | (203, 0, 113)
        | (240..=255, ..) => Reserved::Special,
        _ => return None,
    })
}

fn reserved_v6(address: Ipv6Addr) -> Option<Reserved> {
    let segments = address.segments();
    let inner = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        reserved_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(Reserved::Loopback),
        [0, 0, 0, 0, 0, 0, 0, 0] => Some(Reserved::Special),
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => inner(high, low),
        // The old form of an IPv4 address in an IPv6 one has no use left but this.
        [0, 0, 0, 0, 0, 0, high, low] => inner(high, low).or(Some(Reserved::Special)),
        [0x2002, high, low, ..] => inner(high, low),
        [0xfe80..=0xfebf, ..] => Some(Reserved::LinkLocal),
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Some(Reserved::Private),
        [0xff00..=0xffff, ..] => Some(Reserved::Multicast),
        // Teredo carries an IPv4 address in disguise; documentation.
        [0x2001, 0, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] => Some(Reserved::Special),
        [0x2000..=0x3fff, ..] => None,
        // Outside 2000::/3 nothing is given out.
        _ => Some(Reserved::Special),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_are_public_and_nothing_else_is() {
        for public in
            ["1.1.1.1", "8.8.8.8", "172.15.0.1", "172.32.0.1", "100.63.0.1", "2606:4700::1111", "2002:808:808::"]
        {
            assert_eq!(reserved(public.parse().unwrap()), None, "{public}");
        }
        for (address, kind) in [
            ("127.0.0.1", Reserved::Loopback),
            ("127.255.255.254", Reserved::Loopback),
            ("::1", Reserved::Loopback),
            ("::ffff:127.0.0.1", Reserved::Loopback),
            ("::127.0.0.1", Reserved::Loopback),
            ("64:ff9b::7f00:1", Reserved::Loopback),
            ("2002:7f00:1::", Reserved::Loopback),
            ("169.254.169.254", Reserved::LinkLocal),
            ("::ffff:169.254.169.254", Reserved::LinkLocal),
            ("fe80::1", Reserved::LinkLocal),
            ("10.0.0.1", Reserved::Private),
            ("172.16.0.1", Reserved::Private),
            ("192.168.1.1", Reserved::Private),
            ("fd00:ec2::254", Reserved::Private),
            ("fec0::1", Reserved::Private),
            ("100.100.100.200", Reserved::Shared),
            ("224.0.0.1", Reserved::Multicast),
            ("ff02::1", Reserved::Multicast),
            ("0.0.0.0", Reserved::Special),
            ("0.1.2.3", Reserved::Special),
            ("192.0.0.192", Reserved::Special),
            ("198.18.0.1", Reserved::Special),
            ("255.255.255.255", Reserved::Special),
            ("::", Reserved::Special),
            ("::8.8.8.8", Reserved::Special),
            ("64:ff9b:1::1", Reserved::Special),
            ("2001::1", Reserved::Special),
            ("2001:db8::1", Reserved::Special),
            ("4000::1", Reserved::Special),
        ] {
            assert_eq!(reserved(address.parse().unwrap()), Some(kind), "{address}");
        }
    }
}
