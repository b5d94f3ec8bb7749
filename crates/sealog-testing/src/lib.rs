//! What tests share. The other crates have it among their `[dev-dependencies]` and nowhere else, which a test
//! of house rules checks.
//!
//! What every test of a store needs is at the root, so that a test file begins with `use sealog_testing::*`.
//! The rest is asked for by the name of its file: [`sim`] is a disk in memory that fails as it is told to,
//! [`postgres`] a real cluster, [`process`] the program as a process, [`examples`] processes that tests kill,
//! [`busy`] a pool whose threads are held, [`doubtful`] a store whose events were changed, [`feed`] what a
//! follower hears, [`fixture`] the data of earlier builds, [`smtp`] a mail server, [`logs`] a moment between
//! two steps, [`mounted`] a small disk, [`wire`] a connection that is cut, [`worst`] events as bad as the
//! limits allow.
//!
//! A helper comes here when a second test file needs it; until then it stays with the test that it explains.

pub mod busy;
pub mod certificate;
pub mod dice;
pub mod doubtful;
pub mod drafts;
pub mod examples;
pub mod feed;
pub mod fixture;
pub mod gate;
pub mod http;
pub mod logs;
pub mod mmdb;
pub mod mounted;
pub mod operations;
pub mod postgres;
pub mod process;
pub mod settings;
pub mod sim;
pub mod smtp;
pub mod waiting;
pub mod wire;
pub mod world;
pub mod worst;

pub use dice::*;
pub use drafts::*;
pub use gate::*;
pub use operations::*;
pub use settings::*;
pub use waiting::*;
pub use world::*;
