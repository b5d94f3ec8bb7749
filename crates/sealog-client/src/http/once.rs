//! A request to another service than Sealog: one connection, one answer, no retries. Whoever collects traces
//! gets them so.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{CONTENT_TYPE, HOST};

use crate::http::address::Address;
use crate::http::connection::Connector;

/// Where to, and whom to believe there.
#[derive(Debug)]
pub struct Once {
    address: Address,
    connector: Connector,
}

impl Once {
    pub fn new(url: &str) -> Result<Once, String> {
        let address = Address::parse(url)?;
        let connector = Connector::new(&address)?;
        Ok(Once { address, connector })
    }

    /// The status of the answer; its body is not read.
    pub async fn post_json(
        &self,
        headers: &[(String, String)],
        body: String,
        within: Duration,
    ) -> Result<u16, String> {
        let path = if self.address.prefix.is_empty() { "/" } else { &self.address.prefix };
        let mut request = Request::post(path)
            .header(HOST, &self.address.authority)
            .header(CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())?;
        let exchange = async {
            let mut sender =
                self.connector.connect(&self.address).await.map_err(|error| error.to_string())?;
            let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
            Ok(answer.status().as_u16())
        };
        tokio::time::timeout(within, exchange)
            .await
            .unwrap_or_else(|_| Err(format!("no response within {within:?}")))
    }
}
