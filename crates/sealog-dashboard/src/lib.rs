//! The pages that people see.
//!
//! A request finds its row in the table of routes ([`routes`]), which names what it needs; [`gate`] finds out
//! who asks and whether they may, for every page in one place; the page itself (`pages`, one file each, its
//! template beside it by name) reads through the contracts of the store and of control data, and renders.
//!
//! Every control is a link or a form first. Scripts make it quicker, and none is inline.

mod app;
mod assets;
mod capability;
mod charts;
mod cookies;
mod figures;
mod front;
mod fronts;
mod gate;
mod headers;
mod layout;
pub mod ops;
mod pages;
mod place;
mod problem;
mod qr;
mod reads;
mod request;
mod routes;
mod routing;
mod shortcuts;
mod sign_in;
mod streams;
mod strip;
mod text;
mod views;

pub use app::{Config, Dashboard, OnClaimed};
pub use capability::{CAPABILITIES, Capability, may};
pub use fronts::Pages;
pub use gate::Needs;
pub use routes::table;
pub use routing::Route;
