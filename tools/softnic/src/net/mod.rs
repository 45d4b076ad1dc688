//! The network between the ports: what each path does to packets. Pure: the time and the dice are given.

pub mod draws;
pub mod gid;
pub mod path;
