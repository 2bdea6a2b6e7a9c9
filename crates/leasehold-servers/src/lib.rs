//! Real servers on loopback for the tests of stores, and a proxy that breaks connections.
