//! What a store makes of a disk that has failed it: damage, marks, losses, starts, hangs. Each file is a
//! group of rules, by what a reader looks for.
//!
//! They are modules of one program because they share a stage, and because a program for each would be linked
//! twelve times.

mod stage;

mod accepted_loss;
mod damage;
mod high_water_mark;
mod hostile_numbers;
mod index_files;
mod no_room;
mod panics_and_deadlines;
mod read_only;
mod retention;
mod rewritten_log;
mod starts;
mod unreadable_disk;
