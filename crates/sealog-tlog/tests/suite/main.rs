//! Rules of the trees. One program, because each is linked on its own.

mod conformance;
mod copies;
mod home;
mod rules;
