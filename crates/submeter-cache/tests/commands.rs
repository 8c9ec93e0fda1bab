//! Every command of the classic protocol, with its answers.

mod common;

use common::start_default;

#[test]
fn set_and_get() {
    let server = start_default();
    let mut client = server.connect();
    assert_eq!(client.talk("set k 5 0 3\r\nabc\r\n"), "STORED\r\n");
    assert_eq!(client.talk("get k\r\n"), "VALUE k 5 3\r\nabc\r\nEND\r\n");
    assert_eq!(client.talk("get missing\r\n"), "END\r\n");
    assert_eq!(client.talk("set k 0 0 0\r\n\r\nget k\r\n"), "STORED\r\nVALUE k 0 0\r\n\r\nEND\r\n");
}
