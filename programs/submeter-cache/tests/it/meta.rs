//! Every meta command with all its flags.

use crate::common::{Running, start_default};

/// Sends requests on a fresh connection and compares everything that comes back.
fn check(server: &Running, requests: &str, answers: &str) {
    assert_eq!(server.connect().talk(requests), answers, "to {requests:?}");
}

#[test]
fn mn() {
    let server = start_default();
    assert_eq!(server.connect().ask("mn\r\n"), "MN");
}

#[test]
fn mg_returns_what_its_flags_ask_for() {
    let server = start_default();
    check(&server, "mg k\r\nmg k v k O7\r\nmg k q\r\n", "EN\r\nEN kk O7\r\n");
    check(&server, "ms k 3 F5 T100 E9\r\nabc\r\n", "HD\r\n");
    check(&server, "mg k h\r\nmg k h l\r\n", "HD h0\r\nHD h1 l0\r\n");
    check(
        &server,
        "mg k s v t f c k O7\r\nmg k v q\r\nmg k\r\n",
        "VA 3 s3 t100 f5 c9 kk O7\r\nabc\r\nVA 3\r\nabc\r\nHD\r\n",
    );
    check(&server, "mg k v C9\r\nmg k v C8\r\n", "HD\r\nVA 3\r\nabc\r\n");
    check(
        &server,
        "mg k T50\r\nmg k t\r\nmg k T0\r\nmg k t\r\n",
        "HD\r\nHD t50\r\nHD\r\nHD t-1\r\n",
    );
    check(
        &server,
        "ms j 1\r\na\r\nmg j u\r\nmg j h u\r\nmg j h\r\nmg j h\r\n",
        "HD\r\nHD\r\nHD h0\r\nHD h0\r\nHD h1\r\n",
    );
}

#[test]
fn mg_lets_one_client_win() {
    let server = start_default();
    check(&server, "mg k N30 v t\r\nmg k N30 v\r\n", "VA 0 t30 W\r\n\r\nVA 0 Z\r\n\r\n");
    check(
        &server,
        "ms k 1 T10\r\na\r\nmg k R5\r\nmg k R30\r\nmg k R30\r\n",
        "HD\r\nHD\r\nHD W\r\nHD Z\r\n",
    );
    check(&server, "ms k 1\r\na\r\nmg k R30\r\n", "HD\r\nHD\r\n");
    check(&server, "mg made N0 E77\r\nmg made c\r\n", "HD W\r\nHD c77 Z\r\n");
}

#[test]
fn md_deletes_invalidates_or_empties() {
    let server = start_default();
    check(&server, "md k\r\nmd k q\r\nmd k k O1\r\n", "NF\r\nNF\r\nNF kk O1\r\n");
    check(&server, "ms k 1 E5\r\na\r\nmd k C4\r\nmd k C5 q\r\nmg k\r\n", "HD\r\nEX\r\nEN\r\n");
    check(&server, "ms k 1\r\na\r\nmd k I T30 E50\r\n", "HD\r\nHD\r\n");
    check(&server, "mg k v t c\r\nmg k v\r\n", "VA 1 t30 c50 X W\r\na\r\nVA 1 Z X\r\na\r\n");
    check(&server, "ms k 1 I C49\r\nb\r\nmg k v\r\n", "HD\r\nVA 1 Z X\r\nb\r\n");
    check(&server, "ms k 1\r\nc\r\nmg k v\r\n", "HD\r\nVA 1\r\nc\r\n");
    check(&server, "ms k 1 F7\r\na\r\nmd k x\r\nmg k v f\r\n", "HD\r\nHD\r\nVA 0 f0\r\n\r\n");
    check(&server, "ms k 1\r\na\r\nmd k x I\r\nmg k v\r\n", "HD\r\nHD\r\nVA 0 X W\r\n\r\n");
}

#[test]
fn ms_stores_in_every_mode() {
    let server = start_default();
    check(&server, "ms k 1 MR\r\na\r\nms k 1 MA\r\na\r\nms k 1 MP\r\na\r\n", "NS\r\nNS\r\nNS\r\n");
    check(&server, "ms k 1 ME\r\nb\r\nms k 1 ME\r\nc\r\n", "HD\r\nNS\r\n");
    check(
        &server,
        "ms k 1 MA s\r\nc\r\nms k 1 MP s\r\na\r\nmg k v\r\n",
        "HD s2\r\nHD s3\r\nVA 3\r\nabc\r\n",
    );
    check(
        &server,
        "ms k 1 MS E3 c\r\nd\r\nms k 1 MR\r\ne\r\nmg k v\r\n",
        "HD c3\r\nHD\r\nVA 1\r\ne\r\n",
    );
    check(&server, "ms new 1 MA N60\r\na\r\nmg new v t\r\n", "HD\r\nVA 1 t60\r\na\r\n");
    check(
        &server,
        "ms k 1 k O4\r\na\r\nms k 1 q k O4\r\na\r\nms k 1 ME q O4\r\na\r\n",
        "HD kk O4\r\nNS O4\r\n",
    );
}

#[test]
fn ms_compares() {
    let server = start_default();
    check(&server, "ms k 1 C1 c\r\na\r\n", "NF c0\r\n");
    check(&server, "ms k 1 E10\r\na\r\nms k 1 C9 c\r\nb\r\n", "HD\r\nEX c0\r\n");
    check(&server, "ms k 1 C10 E11 c\r\nc\r\nms k 1 MA C10\r\nd\r\n", "HD c11\r\nEX\r\n");
    check(&server, "ms k 1 MA C11\r\nd\r\nmg k v\r\n", "HD\r\nVA 2\r\ncd\r\n");
}

#[test]
fn ma_counts() {
    let server = start_default();
    check(&server, "ma k\r\nma k q\r\nma k k O1\r\n", "NF\r\nNF\r\nNF kk O1\r\n");
    check(&server, "ma k N0 J13 v\r\nma k v\r\n", "VA 2\r\n13\r\nVA 2\r\n14\r\n");
    check(
        &server,
        "ma k D6 MI v t\r\nma k M+\r\nma k MD D11 v\r\n",
        "VA 2 t-1\r\n20\r\nHD\r\nVA 2\r\n10\r\n",
    );
    check(
        &server,
        "ma k M- D100 v\r\nma k q\r\nma k v k O2\r\n",
        "VA 1\r\n0\r\nVA 1 kk O2\r\n2\r\n",
    );
    check(&server, "ma k T90 t v\r\n", "VA 1 t90\r\n3\r\n");
    check(&server, "ma k E40 c\r\nma k C39\r\nma k C40 v\r\n", "HD c40\r\nEX\r\nVA 1\r\n5\r\n");
    check(&server, "ma seeded N60 t\r\n", "HD t60\r\n");
}

#[test]
fn me_describes() {
    let server = start_default();
    check(&server, "me k\r\n", "EN\r\n");
    check(&server, "ms k 3 T60 E8\r\nabc\r\n", "HD\r\n");
    let answer = server.connect().ask("me k\r\n");
    assert!(answer.starts_with("ME k exp=60 la=0 cas=8 fetch=no cls=1 size="), "{answer:?}");
}

#[test]
fn keys_may_be_binary() {
    let server = start_default();
    check(&server, "ms AAEC/w== 1 b k\r\na\r\n", "HD kAAEC/w== b\r\n");
    check(&server, "mg AAEC/w== b k v\r\nmg AAEC/w==\r\n", "VA 1 kAAEC/w== b\r\na\r\nEN\r\n");
    let debug = server.connect().ask("me AAEC/w== b\r\n");
    assert!(debug.starts_with("ME AAEC/w== exp=-1"), "{debug:?}");
    check(
        &server,
        "ma AAEC/w== b\r\nmd AAEC/w== b k\r\n",
        "CLIENT_ERROR cannot increment or decrement non-numeric value\r\nHD kAAEC/w== b\r\n",
    );
    // "acme:k": the tenant is determined by the key, not by its encoding.
    check(
        &server,
        "ms YWNtZTpr 1 b\r\na\r\nget acme:k\r\n",
        "HD\r\nVALUE acme:k 0 1\r\na\r\nEND\r\n",
    );
    let metrics = server.cache.metrics();
    let acme = server.cache.tree().get("/acme").expect("it was stored for");
    assert_eq!(acme.sum(metrics.cmd_set), 1);
    assert_eq!(acme.sum(metrics.items), 1);
}
