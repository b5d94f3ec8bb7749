//! How a log is opened, and the high-water mark that it is compared with.

pub(crate) mod finding;
pub(crate) mod high_water_mark;
pub(crate) mod recover;
