//! Multi-path: one QP of the application over several paths of the network.

pub mod paths;
