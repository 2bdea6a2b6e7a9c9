//! What the store promises when servers, sessions and records are lost.

mod cluster;
mod scene;
mod single;
