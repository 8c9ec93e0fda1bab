//! A proxy between a member and its bank, which drops traffic when told to.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) struct Proxy {
    address: SocketAddr,
    drops: Arc<AtomicBool>,
}

impl Proxy {
    pub(super) fn start(to: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let drops = Arc::new(AtomicBool::new(false));
        let dropped = Arc::clone(&drops);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, drops) = (stream.expect("a member"), Arc::clone(&dropped));
                std::thread::spawn(move || connect(stream, to, &drops));
            }
        });
        Proxy { address, drops }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn drops(&self, whether: bool) {
        // SeqCst: a test's switch.
        self.drops.store(whether, Ordering::SeqCst);
    }
}

fn connect(member: TcpStream, to: SocketAddr, drops: &Arc<AtomicBool>) {
    let Ok(bank) = TcpStream::connect(to) else { return };
    let (Ok(member_too), Ok(bank_too)) = (member.try_clone(), bank.try_clone()) else { return };
    let dropped = Arc::clone(drops);
    let back = std::thread::spawn(move || {
        pass(&bank_too, &member_too, &dropped);
        let _ = member_too.shutdown(Shutdown::Both);
    });
    pass(&member, &bank, drops);
    let _ = bank.shutdown(Shutdown::Both);
    let _ = back.join();
}

/// Passes on the traffic, or swallows it: a member then waits for an answer that never comes.
fn pass(mut from: impl Read, mut to: impl Write, drops: &AtomicBool) {
    let mut bytes = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        // SeqCst: a test's switch.
        if !drops.load(Ordering::SeqCst) && to.write_all(&bytes[..n]).is_err() {
            return;
        }
    }
}
