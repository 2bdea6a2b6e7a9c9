//! The messages of etcd's protocol that a lock needs, with their field numbers from etcd's `rpc.proto` and `kv.proto`.
//!
//! Written by hand, so that the build needs no `protoc`. Fields that we neither send nor read are left out;
//! protobuf skips what it does not know.

use std::fmt;

use prost::{Enumeration, Message, Oneof};

/// What every answer starts with.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Header {
    #[prost(uint64, tag = "2")]
    pub(crate) member: u64,
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
    #[prost(uint64, tag = "4")]
    pub(crate) term: u64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) created: i64,
    #[prost(int64, tag = "3")]
    pub(crate) modified: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(crate) lease: i64,
}

/// Reads are linearizable unless they say otherwise, and ours never do.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Range {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    #[prost(enumeration = "Sort", tag = "5")]
    pub(crate) sort: i32,
    #[prost(enumeration = "By", tag = "6")]
    pub(crate) by: i32,
    /// Answered by the member that is asked, as far as it has applied the log, without asking the others.
    #[prost(bool, tag = "7")]
    pub(crate) serializable: bool,
    #[prost(bool, tag = "9")]
    pub(crate) count_only: bool,
    #[prost(int64, tag = "10")]
    pub(crate) modified_from: i64,
    #[prost(int64, tag = "11")]
    pub(crate) modified_to: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum Sort {
    None = 0,
    Ascend = 1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum By {
    Key = 0,
    Created = 2,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Ranged {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
    /// Of the whole range, whatever the limit was.
    #[prost(int64, tag = "4")]
    pub(crate) count: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Put {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) end: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Op {
    #[prost(oneof = "Request", tags = "1, 2, 3, 4")]
    pub(crate) request: Option<Request>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum Request {
    #[prost(message, tag = "1")]
    Range(Range),
    #[prost(message, tag = "2")]
    Put(Put),
    #[prost(message, tag = "3")]
    Delete(Delete),
    #[prost(message, tag = "4")]
    Txn(Txn),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Reply {
    #[prost(oneof = "Response", tags = "1, 4")]
    pub(crate) response: Option<Response>,
}

/// Of puts and deletes we only need to know that they happened.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum Response {
    #[prost(message, tag = "1")]
    Range(Ranged),
    #[prost(message, tag = "4")]
    Txn(Committed),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Compare {
    #[prost(enumeration = "Is", tag = "1")]
    pub(crate) is: i32,
    #[prost(enumeration = "Target", tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(oneof = "Against", tags = "5, 6")]
    pub(crate) against: Option<Against>,
    #[prost(bytes = "vec", tag = "64")]
    pub(crate) end: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum Is {
    Equal = 0,
    Greater = 1,
    Less = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum Target {
    Version = 0,
    Created = 1,
    Modified = 2,
}

#[derive(Clone, Copy, PartialEq, Eq, Oneof)]
pub(crate) enum Against {
    #[prost(int64, tag = "5")]
    Created(i64),
    #[prost(int64, tag = "6")]
    Modified(i64),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Txn {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<Op>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<Op>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Committed {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<Reply>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct LeaseGrant {
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct LeaseGranted {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

/// For revoking and keeping alive.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct LeaseId {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct KeptAlive {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    /// Zero or less when there is no such lease.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct TimeToLive {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
    #[prost(bool, tag = "2")]
    pub(crate) keys: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TimeLeft {
    /// -1 when there is no such lease.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub(crate) keys: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Empty {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Watch {
    #[prost(message, optional, tag = "1")]
    pub(crate) create: Option<WatchCreate>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) start: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Watched {
    #[prost(bool, tag = "4")]
    pub(crate) cancelled: bool,
    /// What is older than this is forgotten, when a watch asked for it.
    #[prost(int64, tag = "5")]
    pub(crate) compacted: i64,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Event {
    /// 0 for a put, 1 for a deletion.
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) kv: Option<KeyValue>,
}

/// Its password is never printed.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub(crate) struct Authenticate {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

impl fmt::Debug for Authenticate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticate").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Who has the token is the user, so it is not printed either.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub(crate) struct Authenticated {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

impl fmt::Debug for Authenticated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authenticated(***)")
    }
}

/// What a member says about itself.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Status {
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    /// Its alarms, as text like `memberID:1 alarm:NOSPACE `.
    #[prost(string, repeated, tag = "8")]
    pub(crate) errors: Vec<String>,
}

/// The server's own lock, for benchmarks.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) name: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Locked {
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) key: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Unlock {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
}
