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
