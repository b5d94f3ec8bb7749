//! `sealog spool list`, on a spool that a client library has written.

use std::time::Duration;

use crate::support::stage::Stage;
use sealog_client::{Client, Event, Options};
use sealog_core::time::parse_iso_ms;
use sealog_testing::eventually;
use serde_json::Value;

#[tokio::test(flavor = "current_thread")]
async fn the_oldest_event_in_a_spool_is_known_while_its_client_runs_and_gone_once_it_is_sent() {
    let mut stage = Stage::new();
    let spool = stage.home.join("a \"spool\"\\");
    let (dir, figures) = (spool.to_str().unwrap().to_owned(), stage.path("spool.prom"));
    let age = |stage: &Stage| {
        let (code, said, noted) =
            stage.run(&["spool", "list", "--spool", &dir, "--json", "--metrics", &figures]);
        assert_eq!((code, noted.as_str()), (Some(0), ""));
        let text = std::fs::read_to_string(&figures).unwrap();
        let value = |name: &str| {
            let begin = format!("{name}{{spool=\"{}\"}} ", dir.replace('\\', "\\\\").replace('"', "\\\""));
            let line = text.lines().find_map(|line| line.strip_prefix(&begin)).expect(&text);
            line.parse::<f64>().unwrap()
        };
        let said: Value = serde_json::from_str(&said).unwrap_or_default();
        (said, value("sealog_spool_events"), value("sealog_spool_oldest_timestamp_seconds"))
    };
    let (code, _, noted) = stage.run(&["spool", "list", "--spool", &dir]);
    assert_eq!(code, Some(2), "{noted}");

    let (url, key) = (format!("http://{}", stage.address), stage.key.clone());
    stage.stop();
    let options = Options { url, api_key: key, spool_dir: Some(spool.clone()), ..Options::default() };
    let client = Client::new(options).unwrap();
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    for number in 0..3 {
        client.enqueue(Event::new("user.login").actor_id(number.to_string())).await.unwrap();
    }
    let (said, events, oldest) = age(&stage);
    assert_eq!((&said["events"], events), (&3.into(), 3.0));
    let since = parse_iso_ms(said["oldest"].as_str().unwrap()).unwrap();
    assert_eq!(oldest, Duration::from_millis(since).as_secs_f64());
    assert!((before - 0.001..before + 60.0).contains(&oldest), "{before} {oldest}");
    stage.restart();
    assert_eq!(client.flush(Duration::from_secs(60)).await, 0);
    eventually("they are settled", || age(&stage).1 == 0.0);
    let (said, events, oldest) = age(&stage);
    assert_eq!((said, events, oldest), (Value::Null, 0.0, 0.0));
    let _ = client.close(Duration::from_secs(60)).await;
}
