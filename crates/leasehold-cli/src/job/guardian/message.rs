//! What the runner tells its guardian, as bytes in a pipe.
//!
//! A message is a tag and a number. In the message about the claim, that many bytes follow. A pipe takes every message in
//! one piece, even if the process of the program writes at the same time.

use leasehold::Moment;
use rustix::process::Pid;

/// The group to guard, or 0 for none.
const GROUP: u8 = b'g';
/// When the runner counts as stopped, in nanoseconds of boot time.
const DEADLINE: u8 = b'd';
/// The number of bytes that follow: the claim that the runner holds.
const CLAIM: u8 = b'c';

/// A tag and a number.
pub(super) type Header = [u8; 9];

/// The longest message: Linux writes this much to a pipe in one piece.
const LONGEST: usize = 4096;

/// Which group to guard.
pub(super) fn group(group: Option<Pid>) -> Header {
    header(GROUP, group.map_or(0, |group| u64::from(group.as_raw_nonzero().get().unsigned_abs())))
}

/// When the runner counts as stopped.
pub(super) fn deadline(deadline: Moment) -> Header {
    header(DEADLINE, deadline.since(Moment::from_nanos(0)).as_nanos() as u64)
}

/// What the runner holds; `None` if that is too long for a message.
pub(super) fn claim(claim: &[u8]) -> Option<Vec<u8>> {
    let message = [&header(CLAIM, claim.len() as u64), claim].concat();
    (message.len() <= LONGEST).then_some(message)
}

fn header(tag: u8, number: u64) -> Header {
    let mut header = [tag; 9];
    header[1..].copy_from_slice(&number.to_ne_bytes());
    header
}

/// A message as the guardian reads it. Not to be printed: a claim is a secret.
#[cfg_attr(test, derive(Debug, PartialEq, Eq))]
pub(super) enum Message {
    Group(Option<Pid>),
    Deadline(Moment),
    Claim(Vec<u8>),
}

/// What has been read from the pipe, and is not a whole message yet.
#[derive(Default)]
pub(super) struct Received(Vec<u8>);

impl Received {
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next message, if it has arrived completely.
    pub(super) fn next(&mut self) -> Option<Message> {
        let (header, rest) = self.0.split_first_chunk::<9>()?;
        let [tag, number @ ..] = *header;
        let number = u64::from_ne_bytes(number);
        let mut length = header.len();
        let message = match tag {
            GROUP => Message::Group(i32::try_from(number).ok().and_then(Pid::from_raw)),
            DEADLINE => Message::Deadline(Moment::from_nanos(number)),
            _ => {
                let claim = rest.get(..usize::try_from(number).ok()?)?;
                length += claim.len();
                Message::Claim(claim.to_vec())
            }
        };
        self.0.drain(..length);
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_in_whatever_pieces_they_arrive() {
        let (job, moment) = (Pid::from_raw(77), Moment::from_nanos(12));
        let sent = [&group(job)[..], &claim(b"secret").unwrap(), &deadline(moment), &group(None)].concat();
        let expected = [
            Message::Group(job),
            Message::Claim(b"secret".to_vec()),
            Message::Deadline(moment),
            Message::Group(None),
        ];
        for size in 1..=sent.len() {
            let (mut received, mut messages) = (Received::default(), Vec::new());
            for piece in sent.chunks(size) {
                received.extend(piece);
                messages.extend(std::iter::from_fn(|| received.next()));
            }
            assert_eq!(messages, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn claim_that_a_pipe_does_not_take_in_one_piece_is_not_told() {
        assert!(claim(&[7; LONGEST - 9]).is_some());
        assert!(claim(&[7; LONGEST - 8]).is_none());
    }
}
