//! Rules of cases, on both stores. One program, because each is linked on its own.

mod cases;
mod disclosure;
