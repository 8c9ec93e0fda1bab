//! The layer: keeps the group of each span, and enters it with the span.

use std::cell::RefCell;
use std::fmt::{self, Write};
use std::sync::Arc;

use submeter::switch::Entered;
use submeter::{Group, NAME_MAX};
use tracing_core::Subscriber;
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::tenants::Tenants;

/// How many tenants get a group of their own unless [`TenantLayer::groups_max`] says otherwise.
const GROUPS_MAX: usize = 1000;

/// A layer that enters the group of a span's tenant while the span is entered: see the
/// [crate](crate). Cloning is a pointer copy; use one for each subscriber.
///
/// # Examples
/// ```
/// use submeter::{Schema, Tree, switch};
/// use submeter_tracing::TenantLayer;
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let tenants = tree.create("/tenants")?;
/// let layer = TenantLayer::new(&tenants).field("customer").groups_max(10_000);
/// let subscriber = tracing_subscriber::registry().with(layer);
/// tracing::subscriber::with_default(subscriber, || {
///     let span = tracing::info_span!("request", customer = "acme");
///     let current = span.in_scope(switch::current).expect("entered with the span");
///     assert_eq!(current.path(), "/tenants/acme");
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct TenantLayer {
    field: &'static str,
    tenants: Arc<Tenants>,
}

/// The group of a span, kept with it.
struct SpanGroup(Group);

/// A span that the thread has entered.
struct EnteredSpan {
    span: Id,
    /// Distinguishes the layers of several subscribers, which number spans alike.
    layer: usize,
    entered: Entered,
}

thread_local! {
    static INSIDE: RefCell<Vec<EnteredSpan>> = const { RefCell::new(Vec::new()) };
}

impl TenantLayer {
    /// Creates a layer for tenants whose groups are children of `parent`, usually the root. They
    /// are looked up by the value of the field `tenant`, and created at its first use.
    #[must_use]
    pub fn new(parent: &Group) -> TenantLayer {
        TenantLayer { field: "tenant", tenants: Arc::new(Tenants::new(parent, GROUPS_MAX)) }
    }

    /// Takes the tenant's name from another field.
    #[must_use]
    pub fn field(mut self, field: &'static str) -> TenantLayer {
        self.field = field;
        self
    }

    /// Bounds how many children of the parent are created. The default is 1,000. Work of further
    /// tenants is charged to a child `:other`. With 0, only the program creates groups.
    ///
    /// Groups stay until the program kills them, which frees their places. Call it before the layer
    /// is used, because it resets the counts.
    #[must_use]
    pub fn groups_max(mut self, max: usize) -> TenantLayer {
        self.tenants = Arc::new(Tenants::new(self.tenants.parent(), max));
        self
    }

    /// Returns how many spans had a tenant whose name no group can have (empty, too long, `.`, with
    /// a `/`) or that is called `:other`. All of these were charged to `:other`.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.tenants.refused()
    }

    /// Returns how many spans were charged to `:other` because there were [too
    /// many](TenantLayer::groups_max) tenants, or no room in the tree.
    #[must_use]
    pub fn folded(&self) -> u64 {
        self.tenants.folded()
    }

    /// Only distinguishes layers: clones share it.
    fn id(&self) -> usize {
        Arc::as_ptr(&self.tenants).addr()
    }
}

/// Writes the field, and the values of [`TenantLayer::refused`] and [`TenantLayer::folded`].
impl fmt::Debug for TenantLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (field, refused, folded) = (self.field, self.refused(), self.folded());
        write!(f, "TenantLayer({field}, {refused} refused, {folded} folded)")
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for TenantLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut name = Name { field: self.field, value: None };
        attributes.record(&mut name);
        let Some(span) = context.span(id) else { return };
        let group = match name.value {
            Some(name) => self.tenants.find(&name),
            // Kept with each span rather than searched for on each enter, which may be often.
            None => span.parent().and_then(|parent| {
                parent.extensions().get::<SpanGroup>().map(|SpanGroup(group)| group.clone())
            }),
        };
        if let Some(group) = group {
            // Not `insert`, which panics if a subscriber has two of these layers.
            let _other = span.extensions_mut().replace(SpanGroup(group));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let mut name = Name { field: self.field, value: None };
        values.record(&mut name);
        if let Some(name) = name.value
            && let Some(span) = context.span(id)
            && let Some(group) = self.tenants.find(&name)
        {
            // The old value is dropped after the lock is released: that may be the end of a group.
            let _replaced = span.extensions_mut().replace(SpanGroup(group));
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let group = span.extensions().get::<SpanGroup>().map(|SpanGroup(group)| group.clone());
        let Some(group) = group else { return };
        // Outside the borrow: observers of switches may trace.
        let entered = group.enter();
        let inside = EnteredSpan { span: id.clone(), layer: self.id(), entered };
        // When the thread ends, the list is gone, and the guard is dropped at once.
        let _ = INSIDE.try_with(|all| all.borrow_mut().push(inside));
    }

    fn on_exit(&self, id: &Id, _context: Context<'_, S>) {
        let found = INSIDE.try_with(|all| {
            let mut all = all.borrow_mut();
            let is_it = |inside: &EnteredSpan| inside.span == *id && inside.layer == self.id();
            // The latest one, as a span may be entered more than once.
            all.iter().rposition(is_it).map(|at| all.remove(at).entered)
        });
        // Dropped outside the borrow, as above.
        drop(found);
    }
}

/// The value of one field.
struct Name {
    field: &'static str,
    value: Option<String>,
}

impl Visit for Name {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    /// `%value` arrives here too, and is written without quotes.
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == self.field {
            let mut text = Cut(String::new());
            // An error means that the value was cut off.
            let _ = write!(text, "{value:?}");
            self.value = Some(text.0);
        }
    }
}

/// The beginning of a value: a megabyte from outside is not copied, only refused.
struct Cut(String);

impl Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if self.0.len() > NAME_MAX {
                return Err(fmt::Error);
            }
            self.0.push(c);
        }
        Ok(())
    }
}
