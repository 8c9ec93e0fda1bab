//! Bodies of requests and responses over HTTP, in a group.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};

use super::Grouped;

impl<B: Body> Body for Grouped<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let (body, _entered) = self.enter();
        body.poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.value().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.value().size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::pin;
    use std::task::Waker;

    use super::*;
    use crate::switch::{self, InGroup};
    use crate::{Schema, Tree};

    /// A body of so many frames, each of which must be produced in the group.
    struct Names(u64);

    impl Body for Names {
        type Data = &'static [u8];
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Self::Data>, Infallible>>> {
            assert_eq!(switch::current().expect("entered").path(), "/web");
            self.0 = self.0.saturating_sub(1);
            Poll::Ready(Some(Ok(Frame::data(b"web"))))
        }

        fn is_end_stream(&self) -> bool {
            self.0 == 0
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(3 * self.0)
        }
    }

    /// The body also reports its end.
    #[test]
    fn each_frame_is_made_in_the_group() {
        let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
        let web = tree.create("/web").expect("new");
        let mut body = pin!(Names(1).in_group(&web));
        assert_eq!((body.is_end_stream(), body.size_hint().exact()), (false, Some(3)));
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(Ok(frame))) = body.as_mut().poll_frame(&mut context) else {
            panic!("it is there at once");
        };
        assert_eq!(frame.into_data().expect("data"), b"web");
        assert_eq!((body.is_end_stream(), body.size_hint().exact()), (true, Some(0)));
        assert_eq!(switch::current(), None);
    }
}
