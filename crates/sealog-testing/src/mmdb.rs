//! Writes small databases in the MMDB format, version 2, so that no test needs a file whose licence or
//! content is someone else's.
//!
//! A file has three parts. The search tree: nodes of two records of 24 bits, for a next bit of 0 and of 1; a
//! record is the number of a node, the count of nodes for "nothing here", or count + 16 + the place of a
//! value in the second part. The data: values one after another, in front of them 16 zeros. Behind a marker,
//! the metadata: one value that says what the rest is.

use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use serde_json::{Value, json};

const RECORD_BITS: u16 = 24;
const SEPARATOR: [u8; 16] = [0; 16];
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";

/// The bytes of a database with these networks. Version 6 has IPv4 addresses too, under `::/96`. A network
/// inside another wins over it.
pub fn bytes(ip_version: u16, networks: &[(&str, Value)]) -> Vec<u8> {
    let mut networks: Vec<(IpNet, &Value)> =
        networks.iter().map(|(network, value)| (network.parse().unwrap(), value)).collect();
    networks.sort_by_key(|(network, _)| network.prefix_len());
    let mut tree = Tree(vec![[Record::Nothing; 2]]);
    let mut data = Vec::new();
    for (network, value) in networks {
        let place = data.len();
        put(&mut data, value);
        tree.insert(&bits(ip_version, network), place);
    }
    let mut file = tree.bytes();
    file.extend(SEPARATOR);
    file.extend(data);
    file.extend(MARKER);
    put_header(&mut file, Type::Map, 9);
    put_text(&mut file, "binary_format_major_version");
    put_number(&mut file, Type::U16, 2);
    put_text(&mut file, "binary_format_minor_version");
    put_number(&mut file, Type::U16, 0);
    put_text(&mut file, "build_epoch");
    put_number(&mut file, Type::U64, 1_794_744_000);
    put_text(&mut file, "database_type");
    put_text(&mut file, "Sealog-Test-City");
    put_text(&mut file, "description");
    put(&mut file, &json!({"en": "Places that do not exist"}));
    put_text(&mut file, "ip_version");
    put_number(&mut file, Type::U16, ip_version.into());
    put_text(&mut file, "languages");
    put(&mut file, &json!(["en"]));
    put_text(&mut file, "node_count");
    put_number(&mut file, Type::U32, tree.0.len() as u64);
    put_text(&mut file, "record_size");
    put_number(&mut file, Type::U16, RECORD_BITS.into());
    file
}

/// Puts a whole file in the place of another, as an update program should.
pub fn replace(path: &Path, bytes: &[u8]) {
    let new = path.with_extension("new");
    std::fs::write(&new, bytes).unwrap();
    std::fs::rename(new, path).unwrap();
}

#[derive(Clone, Copy)]
enum Record {
    Nothing,
    Node(usize),
    Data(usize),
}

struct Tree(Vec<[Record; 2]>);

impl Tree {
    fn insert(&mut self, bits: &[usize], place: usize) {
        let mut node = 0;
        for bit in &bits[..bits.len() - 1] {
            node = match self.0[node][*bit] {
                Record::Node(next) => next,
                // What held for the whole network now holds for each half.
                other => {
                    self.0.push([other; 2]);
                    let next = self.0.len() - 1;
                    self.0[node][*bit] = Record::Node(next);
                    next
                }
            };
        }
        self.0[node][bits[bits.len() - 1]] = Record::Data(place);
    }

    fn bytes(&self) -> Vec<u8> {
        let count = self.0.len();
        let value = |record: &Record| match record {
            Record::Nothing => count,
            Record::Node(node) => *node,
            Record::Data(place) => count + SEPARATOR.len() + place,
        };
        let record = |record| {
            let value = u32::try_from(value(record)).unwrap();
            assert!(value >> RECORD_BITS == 0, "the database is too large for records of {RECORD_BITS} bits");
            value.to_be_bytes()[1..].to_vec()
        };
        self.0.iter().flatten().flat_map(record).collect()
    }
}

fn bits(ip_version: u16, network: IpNet) -> Vec<usize> {
    let address = match (ip_version, network.network()) {
        (4, IpAddr::V4(address)) => address.octets().to_vec(),
        (6, IpAddr::V4(address)) => [[0; 12].as_slice(), &address.octets()].concat(),
        (6, IpAddr::V6(address)) => address.octets().to_vec(),
        _ => panic!("a database of version {ip_version} has no place for {network}"),
    };
    let all = address.iter().flat_map(|byte| (0..8).rev().map(move |bit| usize::from(byte >> bit & 1)));
    let above = if ip_version == 6 && network.addr().is_ipv4() { 96 } else { 0 };
    all.take(above + usize::from(network.prefix_len())).collect()
}

/// Numbers of the format. Those above 7 stand in a second byte.
#[derive(Clone, Copy)]
enum Type {
    Text = 2,
    U16 = 5,
    U32 = 6,
    Map = 7,
    U64 = 9,
    Array = 11,
}

fn put(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::String(text) => put_text(out, text),
        Value::Number(number) => put_number(out, Type::U32, number.as_u64().unwrap()),
        Value::Array(items) => {
            put_header(out, Type::Array, items.len());
            items.iter().for_each(|item| put(out, item));
        }
        Value::Object(members) => {
            put_header(out, Type::Map, members.len());
            for (key, member) in members {
                put_text(out, key);
                put(out, member);
            }
        }
        other => panic!("no test needs {other} in a database"),
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_header(out, Type::Text, text.len());
    out.extend(text.bytes());
}

/// Without leading zeros.
fn put_number(out: &mut Vec<u8>, kind: Type, number: u64) {
    let bytes = number.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    put_header(out, kind, bytes.len() - zeros);
    out.extend(&bytes[zeros..]);
}

/// Three bits of type and five of size. 29 and 30 say that the size, less 29 or 285, stands in one or two
/// bytes behind.
fn put_header(out: &mut Vec<u8>, kind: Type, size: usize) {
    let kind = kind as u8;
    let (first, behind) = match size {
        0..29 => (u8::try_from(size).unwrap(), Vec::new()),
        29..285 => (29, vec![u8::try_from(size - 29).unwrap()]),
        _ => (30, u16::try_from(size - 285).unwrap().to_be_bytes().to_vec()),
    };
    if kind < 8 {
        out.push(kind << 5 | first);
    } else {
        out.extend([first, kind - 7]);
    }
    out.extend(behind);
}
