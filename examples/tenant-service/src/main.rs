//! A multi-tenant service: documents are stored and fetched, and their words counted.
//!
//! ```text
//! cargo run -p tenant-service -- documents.redb
//! key=$(curl -X PUT '127.0.0.1:7071/tenants/acme?requests_per_s=100&weight=300')
//! curl -H "authorization: Bearer $key" -T README.md 127.0.0.1:7070/documents/readme
//! curl -H "authorization: Bearer $key" 127.0.0.1:7070/documents/readme
//! curl -H "authorization: Bearer $key" -X POST 127.0.0.1:7070/documents/readme/words
//! curl -H "authorization: Bearer $key" 127.0.0.1:7070/documents/readme/words
//! curl -H "authorization: Bearer $key" 127.0.0.1:7070/documents/readme/vocabulary
//! curl 127.0.0.1:7071/metrics      # or look at http://127.0.0.1:7071/ in a browser
//! curl -X DELETE 127.0.0.1:7071/tenants/acme
//! ```

#![forbid(unsafe_code)]

mod api;
mod store;

use std::alloc::System;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use axum::serve::ListenerExt;
use submeter::admission::Admission;
use submeter::{Schema, Tree, switch};
use submeter_alloc::exact::{Exact, Heap};
use tokio::net::TcpListener;

use api::{Api, Keys, Tenant};
use store::Store;

/// Knows which tenant each block was allocated for.
#[global_allocator]
static HEAP: Exact<System> = Exact::new(System);

const USAGE: &str = "usage: tenant-service FILE [API-ADDRESS [OPERATOR-ADDRESS]]";

/// The memory that the requests and jobs of all tenants may hold together.
const MEMORY_BYTES: u64 = 256 << 20;

/// Number of jobs that may run at once: each uses all CPUs, and one reads its document meanwhile.
const JOBS: u32 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (file, addresses) = match arguments.split_first() {
        Some((file, addresses)) if !file.starts_with('-') && addresses.len() <= 2 => {
            (file, addresses)
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let address = |n: usize, default| addresses.get(n).map_or(default, String::as_str);
    let (api, operator) = (address(0, "127.0.0.1:7070"), address(1, "127.0.0.1:7071"));
    match serve(Path::new(file), api, operator) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(file: &Path, api_at: &str, operator_at: &str) -> store::Result<()> {
    // First, so that the CPU time of everything that follows is known.
    let mut schema = Schema::builder();
    let keys: Keys = schema.declare();
    let tree = Tree::new(schema.build()?)?;
    tree.root().set_limit(keys.memory, Some(MEMORY_BYTES));

    let store = Store::open(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let turns = Admission::new(JOBS);
    let heap = Arc::new(Heap::start(&tree, keys.live)?);
    let shown = Arc::clone(&heap);
    let _flusher = tree.flusher().also(move || shown.flush()).start()?;
    let api = Api { store, tree, keys, heap, turns, operating: Arc::default() };
    for (name, plan) in api.store.tenants()? {
        api.limit(&Tenant::new(name), plan)?;
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // Charges a thread's CPU time before it sleeps, not when it next wakes.
    runtime.enable_all().on_thread_park(switch::park).build()?.block_on(async {
        let bind = |at: &str| {
            let at = at.to_owned();
            async move { TcpListener::bind(&at).await.map_err(|error| format!("{at}: {error}")) }
        };
        let (for_tenants, for_operator) = (bind(api_at).await?, bind(operator_at).await?);
        let (at, operator_at) = (for_tenants.local_addr()?, for_operator.local_addr()?);
        println!("api on http://{at}/, operator on http://{operator_at}/");
        let operator = axum::serve(for_operator, api::operators_api(api.clone()));
        // An answer's first piece must not wait until the client has confirmed its head.
        let for_tenants = for_tenants.tap_io(|stream| drop(stream.set_nodelay(true)));
        let tenants = axum::serve(for_tenants, api::tenants_api(api));
        tokio::select! {
            ended = operator.into_future() => ended?,
            ended = tenants.into_future() => ended?,
            stopped = tokio::signal::ctrl_c() => stopped?,
        }
        Ok(())
    })
}
