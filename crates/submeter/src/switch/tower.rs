//! A tower layer that handles each request in its group.

use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use super::Grouped;
use crate::tree::group::Group;

/// Handles each request in the group that a function finds for it: the call and every poll of the
/// response.
///
/// The function runs for each request, so it should be no more than a lookup and a clone. If it
/// finds no group, the request is handled outside of all groups.
///
/// # Examples
/// ```
/// use submeter::switch::{self, GroupLayer};
/// use submeter::{Schema, Tree};
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
    ///
    /// # Examples
    /// ```
    /// use submeter::switch::GroupLayer;
    /// # use submeter::{Schema, Tree};
    /// # let tree = Tree::new(Schema::builder().build()?)?;
    /// let names = tree.clone();
    /// let layer = GroupLayer::new(move |tenant: &String| names.get(tenant));
    /// # let _ = layer;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
        let group = (self.resolve)(&request);
        let future = {
            let _entered = group.as_ref().map(Group::enter);
            self.inner.call(request)
        };
        Grouped::new(future, group)
    }
}
