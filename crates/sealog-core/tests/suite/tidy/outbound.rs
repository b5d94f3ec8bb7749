//! Every place that opens a connection to another machine is a row in docs/operating-reference.md.

use std::collections::BTreeSet;

use super::{cycles, files_under, read, root};

/// How a connection is opened, by the crates that this project has and by those that it could get.
const OPENS: [&str; 8] = [
    "TcpStream::connect",
    "socket.connect(",
    "UdpSocket",
    "config.connect(",
    "SmtpTransport",
    "reqwest::",
    "ureq::",
    "hyper_util::client",
];
/// Helpers of tests.
const NOT_SHIPPED: &str = "crates/sealog-testing";
const SECTION: &str = "### Connections that Sealog opens\n";

#[test]
fn every_place_that_opens_a_connection_is_in_the_table_of_the_documentation() {
    let page = read(&root().join("docs/operating-reference.md"));
    let section = page.split_once(SECTION).expect("the page has the section").1;
    let rows = section.split("\n#").next().unwrap_or_default().lines().filter(|line| line.starts_with("| "));
    let documented: BTreeSet<String> =
        rows.filter_map(|row| Some(row.split_once("`crates/")?.1.split('`').next()?.to_owned())).collect();
    let found: BTreeSet<String> = files_under(&root().join("crates"))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .filter_map(|path| Some(path.strip_prefix(root()).ok()?.to_str()?.to_owned()))
        .filter(|path| path.contains("/src/") && !path.starts_with(NOT_SHIPPED))
        .filter(|path| opens(&read(&root().join(path))))
        .map(|path| path.trim_start_matches("crates/").to_owned())
        .collect();
    assert_eq!(found, documented);
}

fn opens(text: &str) -> bool {
    let code = cycles::code(text);
    OPENS.iter().any(|call| code.contains(call))
}

#[test]
fn a_place_that_opens_a_connection_is_noticed_and_a_test_or_a_comment_is_not() {
    assert!(opens("async fn f() { TcpStream::connect(a).await }"));
    assert!(opens("let answer = reqwest::get(url);"));
    assert!(!opens("// TcpStream::connect(a)\nfn f() {}"));
    assert!(!opens("fn f() {}\n#[cfg(test)]\nmod tests {\n    fn t() { TcpStream::connect(a) }\n}\n"));
}
