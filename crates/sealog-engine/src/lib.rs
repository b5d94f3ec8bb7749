//! The whole product without its interfaces. [`Service`] is put together here and nowhere else: whoever
//! serves HTTP, pages or the console holds one, and a test that needs the product makes one.

mod loops;
mod opened;
pub mod restoring_mark;
mod service;
mod settings;

pub use opened::{OpenOptions, Opened, Place, Unopened};
pub use service::Service;
pub use settings::{Intervals, Settings};
