//! How a program reports what it is, and answers.

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use crate::footprint::weigh;
use crate::operation::{Operation, Work};
use crate::{Inner, Rung, Tenants, groups, linked};

/// Reports that the program is ready, and answers requests on standard input until that ends. The
/// name of an operation is answered by its nanoseconds and whether it was disturbed; a size is
/// answered by the bytes that a block of it takes.
#[must_use]
pub fn answer(inner: Inner, rung: Rung) -> ExitCode {
    ended(groups(rung).and_then(|(_tree, _charges, groups)| answers(inner, rung, groups)))
}

/// The same as [`answer`], for a program in which another library, with these tenants, is around
/// the allocator.
#[must_use]
pub fn answer_with<T: Tenants>(inner: Inner, tenants: T) -> ExitCode {
    ended(answers(inner, Rung::Bare, tenants))
}

fn ended(result: Result<(), Box<dyn Error>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn answers(inner: Inner, rung: Rung, mut tenants: impl Tenants) -> Result<(), Box<dyn Error>> {
    if let Some(why) = linked::difference(inner, rung) {
        return Err(format!("another allocator is linked: {why}").into());
    }
    let say = |line: String| {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush())
    };
    // Both, so that no sample contains a first use.
    (0..2).for_each(|tenant| tenants.run(tenant, || ()));
    let mut weighed = tenants.share();
    let mut work = Work::new(tenants)?;
    say("ready".to_owned())?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let answer = match (Operation::named(&line), line.parse::<usize>()) {
            (Some(operation), _) => {
                let (ns, disturbed) = work.sample(operation);
                format!("{ns} {disturbed}")
            }
            (None, Ok(size)) => {
                let bytes = weigh(&mut weighed, size)?.ok_or("no such size")?;
                format!("{bytes} false")
            }
            (None, Err(_)) => return Err(format!("what is {line:?}?").into()),
        };
        say(answer)?;
    }
    Ok(())
}
