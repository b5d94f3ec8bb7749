//! Rules of the trees and of the store log. One program, because each is linked on its own.

mod conformance;
mod copies;
mod home;
mod log;
mod rules;
