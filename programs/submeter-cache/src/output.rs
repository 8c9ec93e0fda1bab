//! The unsent answers of one connection.

use std::collections::VecDeque;
use std::io::IoSlice;

use submeter::refs::RcuArc;

use crate::tenant::Item;

/// Beyond this many bytes the answers are sent before the next request is parsed, so that a client
/// that does not read cannot make its connection hold more than this and one value. What all
/// connections together hold is bounded too, see [`connections`](crate::connections).
const FULL_BYTES: usize = 256 << 10;

/// Maximum number of pieces handed to the kernel at once. Linux takes 1024; fewer suffice to fill a
/// socket's buffer, because small values are copied together.
pub(crate) const SLICES_MAX: usize = 64;

/// Answers as text with values in between. A value is a reference to its item and is never copied.
#[derive(Debug, Default)]
pub(crate) struct Output {
    text: Vec<u8>,
    /// The length of the part of `text` that was sent.
    text_sent: usize,
    /// The length of the part of `text` that belongs to pieces in `parts`.
    text_cut: usize,
    parts: VecDeque<Part>,
    queued: usize,
    written: usize,
}

#[derive(Debug)]
enum Part {
    /// A piece of this many bytes of the text.
    Text(usize),
    /// A value, starting at this byte.
    Value(RcuArc<Item>, usize),
}

impl Output {
    /// Returns the text's buffer, once everything is sent.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        debug_assert!(self.is_empty());
        std::mem::take(&mut self.text)
    }

    pub(crate) fn set_buffer(&mut self, text: Vec<u8>) {
        debug_assert!(self.text.is_empty());
        self.text = text;
    }

    #[inline]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
        self.queued += bytes.len();
        self.written += bytes.len();
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.bytes(itoa::Buffer::new().format(number).as_bytes());
    }

    /// Adds a line, including its end.
    pub(crate) fn line(&mut self, line: &str) {
        self.bytes(line.as_bytes());
        self.bytes(b"\r\n");
    }

    /// Adds an item's value with its line end.
    pub(crate) fn value(&mut self, item: RcuArc<Item>) {
        self.cut();
        let len = item.value_line().len();
        self.queued += len;
        self.written += len;
        self.parts.push_back(Part::Value(item, 0));
    }

    /// Returns the number of bytes added so far.
    pub(crate) fn written(&self) -> usize {
        self.written
    }

    pub(crate) fn is_full(&self) -> bool {
        self.queued >= FULL_BYTES
    }

    /// Returns the number of bytes yet to be sent.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queued == 0
    }

    /// Returns how much memory it holds: the text's buffer, and whole values, since a part of a
    /// value keeps its whole item.
    pub(crate) fn held(&self) -> usize {
        let values = self.parts.iter().map(|part| match part {
            Part::Text(_) => 0,
            Part::Value(item, _) => item.value_line().len(),
        });
        self.text.capacity() + values.sum::<usize>()
    }

    /// Fills `slices` with what is to be sent next.
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let mut filled = 0;
        let mut at = self.text_sent;
        for part in &self.parts {
            if filled == SLICES_MAX {
                return filled;
            }
            slices[filled] = IoSlice::new(match part {
                Part::Text(len) => {
                    at += len;
                    &self.text[at - len..at]
                }
                Part::Value(item, sent) => &item.value_line()[*sent..],
            });
            filled += 1;
        }
        if filled < SLICES_MAX && at < self.text.len() {
            slices[filled] = IoSlice::new(&self.text[at..]);
            filled += 1;
        }
        filled
    }

    /// Notes that the next `n` bytes were sent.
    pub(crate) fn sent(&mut self, mut n: usize) {
        debug_assert!(n <= self.queued);
        self.queued -= n;
        while n > 0 {
            let done = match self.parts.front_mut() {
                Some(Part::Text(len)) => {
                    let took = n.min(*len);
                    *len -= took;
                    self.text_sent += took;
                    n -= took;
                    *len == 0
                }
                Some(Part::Value(item, sent)) => {
                    let took = n.min(item.value_line().len() - *sent);
                    *sent += took;
                    n -= took;
                    *sent == item.value_line().len()
                }
                None => {
                    self.text_sent += n;
                    self.text_cut += n;
                    n = 0;
                    false
                }
            };
            if done {
                self.parts.pop_front();
            }
        }
        if self.queued == 0 {
            self.text.clear();
            self.parts.clear();
            (self.text_sent, self.text_cut) = (0, 0);
        }
    }

    /// Makes the text since the last value a piece of its own.
    fn cut(&mut self) {
        let len = self.text.len() - self.text_cut;
        if len > 0 {
            self.parts.push_back(Part::Text(len));
            self.text_cut = self.text.len();
        }
    }
}
