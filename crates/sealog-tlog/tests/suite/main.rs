//! Rules of the trees. One program, because each is linked on its own.

mod conformance;
mod home;
mod rules;
