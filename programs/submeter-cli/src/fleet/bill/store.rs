//! Where readings are kept: in a file, or in a database.

use std::path::PathBuf;

use submeter_address::Address;
use submeter_terminal::Failure;

use super::file::{self, BillFile};
use super::invoice::Invoice;
#[cfg(feature = "postgres")]
use super::postgres::PostgresBill;
use super::record::Record;
use crate::cli::FleetBillArgs;

/// The variable that says where they are kept, unless a flag does.
const VARIABLE: &str = "SUBMETER_POSTGRES";

/// A place for readings, which need not exist yet.
pub(super) enum Place {
    File(PathBuf),
    Postgres(Address),
}

impl Place {
    /// Returns the place that was named.
    pub(super) fn of(args: &FleetBillArgs) -> Result<Place, Failure> {
        if let Some(path) = &args.file {
            return Ok(Place::File(path.clone()));
        }
        let variable = || {
            let text = std::env::var(VARIABLE).ok().filter(|text| !text.trim().is_empty())?;
            Some(Address::new(&text))
        };
        args.postgres.clone().or_else(variable).map(Place::Postgres).ok_or_else(|| {
            Failure::new(format_args!(
                "specify where readings are kept: --file PATH, --postgres ADDRESS, or the variable \
                 {VARIABLE}"
            ))
        })
    }

    /// Opens the place for writing; creates it if there is none.
    pub(super) fn open(&self) -> Result<Store, Failure> {
        match self {
            Place::File(path) => BillFile::open(path).map(Store::File),
            #[cfg(feature = "postgres")]
            Place::Postgres(address) => {
                PostgresBill::open(address).map(|bill| Store::Postgres(Box::new(bill)))
            }
            #[cfg(not(feature = "postgres"))]
            Place::Postgres(address) => Err(no_postgres(address)),
        }
    }

    /// Adds up the readings.
    pub(super) fn invoice(&self) -> Result<Invoice, Failure> {
        match self {
            Place::File(path) => file::read(path).map(|ledger| ledger.invoice()),
            #[cfg(feature = "postgres")]
            Place::Postgres(address) => PostgresBill::open(address)?.invoice(),
            #[cfg(not(feature = "postgres"))]
            Place::Postgres(address) => Err(no_postgres(address)),
        }
    }
}

#[cfg(not(feature = "postgres"))]
fn no_postgres(address: &Address) -> Failure {
    Failure::new(format_args!(
        "cannot write to {address}: this build has no PostgreSQL: build it with `cargo install \
         submeter-cli --features postgres`"
    ))
}

/// A place that is open for writing.
pub(super) enum Store {
    File(BillFile),
    #[cfg(feature = "postgres")]
    Postgres(Box<PostgresBill>),
}

impl Store {
    /// Adds a reading; returns whether it is newer than those before.
    pub(super) fn add(&mut self, record: Record) -> Result<bool, Failure> {
        match self {
            Store::File(file) => file.add(record),
            #[cfg(feature = "postgres")]
            Store::Postgres(bill) => bill.add(record),
        }
    }
}
