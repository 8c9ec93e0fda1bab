//! The group of each thread, for profilers outside of the process: CPU profiles by tenant.
//!
//! With the feature `thread-context` a switch publishes the group's path through OpenTelemetry's
//! thread context ([OTEP 4947]), which profilers such as OpenTelemetry's for eBPF read with each
//! sample. That is one store, of the address of a record that was created with the group. The
//! record costs each group an allocation of its path and 30 bytes. A path of more than 255 bytes is
//! cut there.
//!
//! # What a program does
//! It calls [`announce`] at its start, and its build script exports the symbol that readers look
//! for, which the linker would otherwise leave out of a program:
//!
//! ```text
//! println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=otel_thread_ctx_v1");
//! ```
//!
//! A process has one context. A program whose OpenTelemetry SDK publishes it adds two attributes
//! there instead of calling [`announce`]: `threadlocal.schema_version`, which is
//! [`SCHEMA_VERSION`], and `threadlocal.attribute_key_map`, a list of [`KEY`]. An SDK that also
//! publishes thread contexts cannot be in the same program: both define the symbol, and the linker
//! refuses them.
//!
//! # What a reader finds
//! - A thread in *no group* has no record. A thread that *ends* in a group has none from the end of
//!   the switch on, which comes with its thread-local values.
//! - A *killed* group is found until the thread leaves it. The thread holds the group until it has
//!   published another or none, so that a reader that has stopped the thread never follows a
//!   pointer to freed memory.
//! - A *forked child* stays in the group, with a copy of the record. It has to announce itself: its
//!   parent's announcement does not exist there.
//! - An [`Observer`](super::Observer) is called with the record of the next group in place.
//!
//! # Where
//! On Linux for x86-64 and aarch64. Elsewhere switches publish nothing, and [`announce`] returns an
//! error.
//!
//! [OTEP 4947]: https://github.com/open-telemetry/opentelemetry-specification/pull/4947

use std::io;

use submeter_sys::thread_context;

use crate::tree::group::Group;

/// The attribute that a profile's samples carry: the group's path.
pub const KEY: &str = "submeter.group";

/// The version of the format, as readers know it. According to the specification it changes when
/// the format is no longer a draft.
pub const SCHEMA_VERSION: &str = "tlsdesc_v1_dev";

/// Publishes this process's context for as long as it lives: attributes of the resource, such as
/// `service.name`, and what makes the records of its threads readable.
///
/// Call it once per process; a forked child announces itself.
///
/// # Errors
/// [`AlreadyExists`](io::ErrorKind::AlreadyExists) if the process has announced before,
/// [`Unsupported`](io::ErrorKind::Unsupported) on other systems, and the system's error if it
/// refuses the mapping.
///
/// # Examples
/// ```
/// use std::io::ErrorKind;
/// use submeter::switch::thread_context;
///
/// match thread_context::announce([("service.name", "shop")]) {
///     Err(error) if error.kind() == ErrorKind::Unsupported => println!("no profiles by tenant"),
///     announced => announced?,
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn announce<'a>(resource: impl IntoIterator<Item = (&'a str, &'a str)>) -> io::Result<()> {
    thread_context::announce(&process_context(resource))
}

#[inline(always)]
pub(super) fn publish(group: Option<&Group>) {
    thread_context::publish(group.map_or(std::ptr::null(), |group| group.inner.context.as_ptr()));
}

/// Writes a `ProcessContext` of OTEP 4719 by hand: a crate for protocol buffers would be larger
/// than everything written here.
fn process_context<'a>(resource: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    // Field numbers, by message.
    const CONTEXT_RESOURCE: u8 = 1;
    const CONTEXT_ATTRIBUTES: u8 = 2;
    const RESOURCE_ATTRIBUTES: u8 = 1;
    const VALUE_STRING: u8 = 1;
    const VALUE_ARRAY: u8 = 5;
    const ARRAY_VALUES: u8 = 1;

    let string = |text: &str| field(VALUE_STRING, text.as_bytes());
    let attributes = resource
        .into_iter()
        .flat_map(|(key, value)| field(RESOURCE_ATTRIBUTES, &attribute(key, &string(value))));
    let keys = field(VALUE_ARRAY, &field(ARRAY_VALUES, &string(KEY)));
    let version = attribute("threadlocal.schema_version", &string(SCHEMA_VERSION));
    let keys = attribute("threadlocal.attribute_key_map", &keys);
    [
        field(CONTEXT_RESOURCE, &attributes.collect::<Vec<_>>()),
        field(CONTEXT_ATTRIBUTES, &version),
        field(CONTEXT_ATTRIBUTES, &keys),
    ]
    .concat()
}

/// Writes a `KeyValue`.
fn attribute(key: &str, value: &[u8]) -> Vec<u8> {
    [field(1, key.as_bytes()), field(2, value)].concat()
}

/// Writes a length-delimited field.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    const LENGTH_DELIMITED: u8 = 2;
    let mut bytes = vec![number << 3 | LENGTH_DELIMITED];
    let mut len = content.len();
    while len > 0x7f {
        bytes.push(0x80 | (len & 0x7f) as u8);
        len >>= 7;
    }
    bytes.push(len as u8);
    bytes.extend_from_slice(content);
    bytes
}
