//! Short words for the parts of a transaction.

use crate::names::Span;
use crate::wire::message::{Against, Compare, Delete, Is, Op, Put, Range, Request, Target, Txn};

/// The most operations that a server takes in one transaction by default; transactions inside count for themselves.
pub(crate) const MOST: usize = 128;

pub(crate) fn range(span: &Span) -> Range {
    Range { key: span.from.clone(), end: span.to.clone(), ..Range::default() }
}

pub(crate) fn read(range: Range) -> Op {
    Op { request: Some(Request::Range(range)) }
}

pub(crate) fn put(key: Vec<u8>, value: Vec<u8>, lease: i64) -> Op {
    Op { request: Some(Request::Put(Put { key, value, lease })) }
}

pub(crate) fn delete(key: Vec<u8>) -> Op {
    Op { request: Some(Request::Delete(Delete { key, end: Vec::new() })) }
}

/// Operations of which all or none happen, as one; more than a server takes side by side.
pub(crate) fn all(mut ops: Vec<Op>) -> Op {
    while ops.len() > MOST {
        let parts = std::mem::take(&mut ops).into_iter();
        let mut parts = parts.peekable();
        while parts.peek().is_some() {
            ops.push(nested(Txn { success: parts.by_ref().take(MOST).collect(), ..Txn::default() }));
        }
    }
    nested(Txn { success: ops, ..Txn::default() })
}

pub(crate) fn nested(txn: Txn) -> Op {
    Op { request: Some(Request::Txn(txn)) }
}

fn compare(is: Is, target: Target, against: Against, key: &[u8], end: &[u8]) -> Compare {
    Compare {
        is: is.into(),
        target: target.into(),
        key: key.to_vec(),
        against: Some(against),
        end: end.to_vec(),
    }
}

/// There is no such key.
pub(crate) fn is_absent(key: &[u8]) -> Compare {
    compare(Is::Equal, Target::Created, Against::Created(0), key, &[])
}

/// There is such a key.
pub(crate) fn is_present(key: &[u8]) -> Compare {
    compare(Is::Greater, Target::Created, Against::Created(0), key, &[])
}

/// There are no such keys.
pub(crate) fn is_empty(span: &Span) -> Compare {
    compare(Is::Equal, Target::Created, Against::Created(0), &span.from, &span.to)
}

/// The key was last changed at this revision, and is there.
pub(crate) fn is_of(key: &[u8], modified: i64) -> Compare {
    compare(Is::Equal, Target::Modified, Against::Modified(modified), key, &[])
}

/// Nothing there was made or changed after this revision. Keys may have gone: a decision that depends on a key being
/// there needs [`is_of`] too.
pub(crate) fn is_unchanged_since(span: &Span, revision: i64) -> Compare {
    compare(Is::Less, Target::Modified, Against::Modified(revision + 1), &span.from, &span.to)
}
