//! Tenants that get no group of their own.

use submeter_tracing::TenantLayer;
use tracing::dispatcher::with_default;
use tracing::info_span;
use tracing_subscriber::layer::SubscriberExt;

use super::{dispatch, inside, tree};

/// A name that no group can have is refused, counted, and charged to `other`.
#[test]
fn an_invalid_name_is_charged_to_other() {
    let tree = tree();
    let tenants = tree.create("/tenants").expect("room");
    let layer = TenantLayer::new(&tenants);
    let long = "x".repeat(1 << 20);
    let hostile = ["", ".", "..", "a/b", "/", "\u{0}", ":other", &long];
    with_default(&dispatch(&layer), || {
        let outer = info_span!("request", tenant = "acme").entered();
        for name in hostile {
            let seen = inside(&info_span!("request", tenant = name));
            assert_eq!(seen.as_deref(), Some("/tenants/:other"), "{:.20}", name);
        }
        drop(outer);
        let seen = inside(&info_span!("request", tenant = "other"));
        assert_eq!(seen.as_deref(), Some("/tenants/other"), "strays take nothing of it");
    });
    assert_eq!((layer.refused(), layer.folded()), (hostile.len() as u64, 0));
    assert_eq!(tenants.child_count(), 3);
}

/// Tenants beyond the maximum share `other`; known ones keep their group.
#[test]
fn too_many_tenants_share_other() {
    let tree = tree();
    let layer = TenantLayer::new(tree.root()).groups_max(2);
    with_default(&dispatch(&layer), || {
        let seen = |name: &str| inside(&info_span!("request", tenant = name)).expect("in a group");
        assert_eq!(
            ["a", "b", "c", "d", "a", "b"].map(seen),
            ["/a", "/b", "/:other", "/:other", "/a", "/b"]
        );
        assert_eq!(layer.folded(), 2);
        tree.get("/a").expect("made above").kill().expect("no children");
        assert_eq!(["c", "d"].map(seen), ["/c", "/:other"]);
    });
    assert_eq!((layer.refused(), layer.folded()), (0, 3));
}

/// Neither a vanished parent nor a second layer makes it panic.
#[test]
fn gone_parents_and_second_layers_do_not_panic() {
    let tree = tree();
    let gone = tree.create("/gone").expect("room");
    let layer = TenantLayer::new(&gone);
    gone.kill().expect("no children");
    let both = tracing_subscriber::registry().with(layer.clone()).with(layer.clone());
    tracing::subscriber::with_default(both, || {
        assert_eq!(inside(&info_span!("request", tenant = "acme")), None);
    });
    let layer = TenantLayer::new(tree.root());
    let both = tracing_subscriber::registry().with(layer.clone()).with(layer);
    tracing::subscriber::with_default(both, || {
        let seen = inside(&info_span!("request", tenant = "acme"));
        assert_eq!(seen.as_deref(), Some("/acme"));
        assert_eq!(super::current(), None);
    });
}
