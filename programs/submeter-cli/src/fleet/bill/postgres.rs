//! Readings in a PostgreSQL database: the last one of each run, one transaction each.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use postgres::{Client, IsolationLevel, NoTls, Transaction};
use submeter_address::{Address, AddressError};
use submeter_terminal::Failure;

use super::invoice::{Invoice, Line, Run, State};
use super::record::Record;
use crate::fleet::engine::in_one_line;

/// How long a connection to one host may take, unless the address sets it.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a connected server may take to admit the user.
const LET_IN: Duration = Duration::from_secs(5);

/// How long a transaction may take. The sums of a large bill take seconds, and two concurrent ones
/// wait for each other.
const TRANSACTION: Duration = Duration::from_secs(60);

/// Creates what is missing, once: two concurrent processes wait for each other.
const SCHEMA: &str = include_str!("schema.sql");

/// The first lock number of any transaction that creates the schema: "submeter" in ASCII.
const SCHEMA_LOCK: i64 = 0x7375_626d_6574_6572;

/// Takes a reading of a run unless a later one was taken. From then on the run's row is locked, so
/// that of two concurrent readings the later one stays.
const TAKE_RUN: &str = "\
    INSERT INTO submeter_runs AS known \
        (epoch, member, sequence, started_ms, read_ms, complete, follows) \
    VALUES ($1, $2, $3, $4, $5, $6, $7) \
    ON CONFLICT (epoch) DO UPDATE SET \
        member = excluded.member, sequence = excluded.sequence, \
        started_ms = coalesce(excluded.started_ms, known.started_ms), \
        read_ms = excluded.read_ms, complete = excluded.complete, follows = excluded.follows \
    WHERE known.sequence < excluded.sequence";

const TAKE_TOTALS: &str = "\
    INSERT INTO submeter_totals AS known (epoch, id, parent, path, metric, unit, total) \
    SELECT $1, new.id, new.parent, new.path, new.metric, new.unit, new.total::numeric \
    FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[]) \
        AS new (id, parent, path, metric, unit, total) \
    ON CONFLICT (epoch, id, metric) DO UPDATE SET total = excluded.total \
    WHERE known.total <> excluded.total";

/// A database with the readings.
pub(super) struct PostgresBill {
    /// The connection; `None` after the server did not answer in time.
    client: Option<Client>,
    address: Address,
}

impl PostgresBill {
    /// Connects, and creates tables and views where there are none.
    pub(super) fn open(address: &Address) -> Result<PostgresBill, Failure> {
        // Checked here, as the client accepts a malformed escape and sends it as text. The form
        // `host=… user=…` has no escapes.
        if let Err(error @ (AddressError::Escape | AddressError::Text)) = address.url() {
            return Err(Failure::new(format_args!("{address}: {error} (--postgres)")));
        }
        // The client's explanation is left out: it may contain a part of the password.
        let config = address.secret().parse::<postgres::Config>().map_err(|_| {
            Failure::new(format_args!(
                "{address} is not a database address: use postgres://USER@HOST/DATABASE \
                 (--postgres)"
            ))
        });
        let mut config = config?;
        config.application_name("submeter fleet bill");
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        let hosts = config.get_hosts().len().max(config.get_hostaddrs().len());
        let connect = config.get_connect_timeout().copied().unwrap_or(CONNECT);
        let patience = connect.saturating_mul(u32::try_from(hosts).unwrap_or(1).max(1)) + LET_IN;
        let connected = within(patience, move || config.connect(NoTls));
        let client = connected.ok_or_else(|| {
            Failure::new(format_args!(
                "cannot reach {address}: no answer within {} s: check whether PostgreSQL is \
                 running there and accepts connections (--postgres)",
                patience.as_secs()
            ))
        })?;
        let client = client.map_err(|e| failed("reach", address, &e))?;
        let mut bill = PostgresBill { client: Some(client), address: address.clone() };
        bill.ask("create the tables in", create)?;
        Ok(bill)
    }

    /// Adds a reading; returns whether it is newer than those before.
    pub(super) fn add(&mut self, record: Record) -> Result<bool, Failure> {
        self.ask("write to", move |client| {
            client.transaction().and_then(|transaction| add(transaction, &record))
        })
    }

    /// Adds up the readings.
    pub(super) fn invoice(&mut self) -> Result<Invoice, Failure> {
        self.ask("read", |client| {
            // A consistent snapshot, whatever is written in the meantime.
            let transaction = client.build_transaction();
            let transaction = transaction.isolation_level(IsolationLevel::RepeatableRead);
            transaction.read_only(true).start().and_then(invoice)
        })
    }

    /// Asks the server, for a bounded time.
    fn ask<T: Send + 'static>(
        &mut self,
        act: &str,
        ask: impl FnOnce(&mut Client) -> Result<T, postgres::Error> + Send + 'static,
    ) -> Result<T, Failure> {
        let address = &self.address;
        let late = |when: &str| {
            Failure::new(format_args!(
                "cannot {act} {address}: {when}: check what it waits for, and run this again, \
                 which writes nothing twice (--postgres)"
            ))
        };
        let mut client = self.client.take().ok_or_else(|| late("it did not answer before"))?;
        let answered = within(TRANSACTION, move || {
            let answer = ask(&mut client);
            (client, answer)
        });
        let (client, answer) = answered
            .ok_or_else(|| late(&format!("no answer within {} s", TRANSACTION.as_secs())))?;
        self.client = Some(client);
        answer.map_err(|e| failed(act, address, &e))
    }
}

/// Runs something, or returns `None` if it takes too long. The client's own limits are those of
/// TCP; they do not cover a server that accepts a connection and says nothing. The blocked call
/// stays behind on a thread that ends with the process.
fn within<T: Send + 'static>(
    patience: Duration,
    run: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        // The receiver may no longer be waiting.
        let _ = sender.send(run());
    });
    match receiver.recv_timeout(patience) {
        Ok(result) => Some(result),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => panic!("the querying thread panicked"),
    }
}

fn create(client: &mut Client) -> Result<(), postgres::Error> {
    let is_there = |row: &postgres::Row| row.get::<_, bool>(0);
    let look = "SELECT to_regclass('submeter_invoice') IS NOT NULL";
    // A user who may only write need not be allowed to create.
    if is_there(&client.query_one(look, &[])?) {
        return Ok(());
    }
    let mut transaction = client.transaction()?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&SCHEMA_LOCK])?;
    if !is_there(&transaction.query_one(look, &[])?) {
        transaction.batch_execute(SCHEMA)?;
    }
    transaction.commit()
}

fn add(mut transaction: Transaction<'_>, record: &Record) -> Result<bool, postgres::Error> {
    let Record { member, units, reading } = record;
    let started_ms = reading.started_ms.map(signed);
    let taken = transaction.execute(
        TAKE_RUN,
        &[
            &reading.epoch,
            member,
            &signed(reading.sequence),
            &started_ms,
            &signed(reading.at_ms),
            &reading.complete,
            &reading.follows,
        ],
    )?;
    if taken == 0 {
        return Ok(false);
    }
    let (mut ids, mut parents, mut paths) = (Vec::new(), Vec::new(), Vec::new());
    let (mut metrics, mut of_units, mut totals) = (Vec::new(), Vec::new(), Vec::new());
    for group in &reading.groups {
        for (metric, total) in &group.totals {
            ids.push(signed(group.id));
            parents.push(group.parent.map(signed));
            paths.push(&*group.path);
            metrics.push(&**metric);
            of_units.push(units.get(metric).map_or("unknown", String::as_str));
            // As text: a number of the database may exceed the range of its integers.
            totals.push(total.to_string());
        }
    }
    let epoch = &reading.epoch;
    transaction
        .execute(TAKE_TOTALS, &[epoch, &ids, &parents, &paths, &metrics, &of_units, &totals])?;
    transaction.commit()?;
    Ok(true)
}

fn invoice(mut transaction: Transaction<'_>) -> Result<Invoice, postgres::Error> {
    let lines = transaction.query(
        "SELECT path, metric, unit, total::text FROM submeter_invoice \
         ORDER BY path COLLATE \"C\", metric COLLATE \"C\", unit",
        &[],
    )?;
    let line = |row: &postgres::Row| Line {
        path: row.get(0),
        metric: row.get(1),
        unit: row.get(2),
        total: row.get::<_, String>(3).parse().expect("a sum of integers"),
    };
    let runs = transaction.query(
        "SELECT member, epoch, started_ms, read_ms, state FROM submeter_run_states ORDER BY epoch",
        &[],
    )?;
    let run = |row: &postgres::Row| Run {
        member: row.get(0),
        epoch: row.get(1),
        started_ms: row.get::<_, Option<i64>>(2).map(i64::cast_unsigned),
        read_ms: row.get::<_, i64>(3).cast_unsigned(),
        state: match row.get(4) {
            "complete" => State::Complete,
            "unknown" => State::Unknown,
            _ => State::Open,
        },
    };
    let unread = transaction.query(
        "SELECT DISTINCT former FROM submeter_runs, unnest(follows) AS former \
         WHERE former NOT IN (SELECT epoch FROM submeter_runs) ORDER BY former",
        &[],
    )?;
    Ok(Invoice {
        lines: lines.iter().map(line).collect(),
        runs: runs.iter().map(run).collect(),
        unread: unread.iter().map(|row| row.get(0)).collect(),
    })
}

/// Returns the number as the database stores it. None of these comes near either end of the range.
fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn failed(act: &str, address: &Address, error: &postgres::Error) -> Failure {
    Failure::new(format_args!("cannot {act} {address}: {} (--postgres)", in_one_line(error)))
}
