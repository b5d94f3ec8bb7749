#![deny(warnings)]
//! Events by the functions that `sealog actions --emit rs` wrote: complete ones compile.

mod actions;

use sealog_client::{Event, testing::Recorder};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), sealog_client::Error> {
    let recorder = Recorder::new();
    let client = recorder.client();
    client.log(actions::user_login().actor_id("u-17").with("method", "password")).await?;
    client.log(actions::order_shipped_66a30e86("DHL", 4711)).await?;
    client.log(actions::order__returned____(true, (), [0; 0])).await?;
    client.log(actions::order_shipped_1feff949().resource("order/7")).await?;
    client.log(actions::import(9, "XL")).await?;
    client.log(actions::ai_act_inference_logged("s-1", "2")).await?;
    let wanted = Event::new("order.shipped").with("carrier", "DHL").with("tracking-id", 4711);
    recorder.assert_logged(1, &wanted).await;
    recorder.assert_logged(1, &Event::new("order \"returned\" */").with("class", true)).await;
    recorder.assert_logged(1, &Event::new("import").with("9 lives", 9).with("größe", "XL")).await;
    Ok(())
}
