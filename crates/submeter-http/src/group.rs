//! A layer that puts requests in groups, and counts nothing.

use std::task::{Context, Poll};

use submeter::Group;
use submeter::switch::{Grouped, InGroup};
use tower_layer::Layer;
use tower_service::Service;

/// Handles each request in the group that a function finds for it: the call and every poll of the
/// response. For requests of any kind; those of HTTP are also counted by a
/// [`MeterLayer`](crate::MeterLayer), which enters the group for their bodies, too.
///
/// The function runs for each request, so it should be no more than a lookup and a clone. If it
/// finds no group, the request is handled in that of the caller, if any.
///
/// # Examples
/// ```
/// use submeter::{Schema, Tree, switch};
/// use submeter_http::GroupLayer;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let web = tree.create("/web")?;
/// let names = tree.clone();
/// let service = ServiceBuilder::new()
///     .layer(GroupLayer::new(move |tenant: &&str| names.get(tenant)))
///     .service(service_fn(|_| async { Ok::<_, std::io::Error>(switch::current()) }));
/// assert_eq!(service.clone().oneshot("/web").await?, Some(web));
/// assert_eq!(service.oneshot("/nobody").await?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GroupLayer<R> {
    resolve: R,
}

impl<R> GroupLayer<R> {
    /// Makes a layer of the function that finds a request's group.
    pub fn new(resolve: R) -> GroupLayer<R> {
        GroupLayer { resolve }
    }
}

impl<S, R: Clone> Layer<S> for GroupLayer<R> {
    type Service = GroupService<S, R>;

    fn layer(&self, inner: S) -> GroupService<S, R> {
        GroupService { inner, resolve: self.resolve.clone() }
    }
}

/// A service whose requests are handled in their groups. See [`GroupLayer`].
#[derive(Clone, Copy, Debug)]
pub struct GroupService<S, R> {
    inner: S,
    resolve: R,
}

impl<S, R, Request> Service<Request> for GroupService<S, R>
where
    S: Service<Request>,
    R: Fn(&Request) -> Option<Group>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Grouped<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let _entered = (self.resolve)(&request).map(|group| group.enter());
        self.inner.call(request).in_current_group()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Waker;
    use std::time::Duration;

    use submeter::switch::{self, TimeSlice};
    use submeter::{Schema, Tree};
    use tower::{ServiceBuilder, ServiceExt, service_fn};

    use super::*;

    /// A tower service yields between the polls of its answer.
    ///
    /// By `map_future`, below the layer that enters the group: a slice outside of it has no group's
    /// time.
    #[test]
    fn a_tower_service_yields_between_its_polls() {
        let mut schema = Schema::builder();
        schema.cpu_time("cpu", "CPU time");
        let tree = Tree::new(schema.build().expect("valid")).expect("address space");
        let web = tree.create("/web").expect("new");
        // Ten polls of its own, and before each one in which others have their turn.
        for (slice, expected) in [(Duration::ZERO, 20), (Duration::from_secs(1000), 10)] {
            let answer = |()| {
                let (web, mut left) = (web.clone(), 10);
                poll_fn(move |_| {
                    assert_eq!(switch::current().as_ref(), Some(&web));
                    left -= 1;
                    if left == 0 { Poll::Ready(Ok::<_, ()>(())) } else { Poll::Pending }
                })
            };
            let service = ServiceBuilder::new()
                .layer(GroupLayer::new(|(): &()| Some(web.clone())))
                .map_future(|answer| TimeSlice::new(slice).between_polls(answer))
                .service(service_fn(answer));
            let (mut asks, mut polls) = (pin!(service.oneshot(())), 1);
            let context = &mut Context::from_waker(Waker::noop());
            while asks.as_mut().poll(context).is_pending() {
                polls += 1;
            }
            assert_eq!(polls, expected, "slices of {slice:?}");
        }
    }
}
