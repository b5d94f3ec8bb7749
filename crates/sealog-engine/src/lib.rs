//! The whole product without its interfaces. [`Service`] is put together here and nowhere else: whoever
//! serves HTTP, pages or the console holds one, and a test that needs the product makes one.

mod loops;
mod service;
mod settings;

pub use service::Service;
pub use settings::{Intervals, Settings};
