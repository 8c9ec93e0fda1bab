//! `submeter fleet bill --postgres`, against a PostgreSQL of the test's own.

use crate::support::SUBMETER;

/// A build without PostgreSQL says how to get one that has it.
#[cfg(not(feature = "postgres"))]
#[test]
fn a_build_without_postgres_says_how_to_get_one() {
    let address = "postgres://me:s3cret@h/bill";
    let args = ["fleet", "bill", "127.0.0.1:1", "--postgres", address];
    SUBMETER.refuses(&args, &["postgres://h/bill", "--features postgres"]);
}

/// The place of the readings is reported once, without its password.
#[test]
fn the_database_is_named_without_its_password() {
    SUBMETER.refuses(&["fleet", "bill", "127.0.0.1:1"], &["--file", "SUBMETER_POSTGRES"]);
    for address in ["postgres://me:s3cret@h:x/bill", "host=h password=s3cret port=x"] {
        let args = ["fleet", "bill", "--sum", "--postgres", address];
        let output = SUBMETER.run(&args);
        assert_eq!(output.status.code(), Some(2));
        let err = submeter_program::text(&output.stderr);
        assert!(err.contains("postgres") && !err.contains("s3cret"), "{err}");
    }
    let args = ["fleet", "bill", "--sum", "--postgres", "postgres://h/b", "--file", "f"];
    SUBMETER.refuses(&args, &["--file"]);
}

#[cfg(feature = "postgres")]
mod with {
    use std::net::TcpListener;
    use std::os::unix::process::CommandExt;
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, Stdio};

    use submeter_program::text;

    use super::SUBMETER;
    use crate::fleet::{Directory, until};
    use crate::fleet_bill::{each_job_once, each_request_once, readers_that_are_killed};
    use crate::support::secret;

    const PASSWORD: &str = "a s3cret";

    /// A server that ends with the test.
    struct Postgres {
        child: Child,
        directory: Directory,
    }

    /// Finds a program of PostgreSQL, which Debian keeps off the search path.
    fn installed(name: &str) -> Option<PathBuf> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
        found.sort();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let searched = std::env::split_paths(&path).chain(found.into_iter().rev());
        searched.map(|folder| folder.join(name)).find(|path| path.exists())
    }

    /// Runs as a user without privileges: PostgreSQL refuses to run as root.
    fn command(program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    const NOBODY: u32 = 65_534;

    fn is_root() -> bool {
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("Linux")) == 0
    }

    impl Postgres {
        /// Starts a server, or says what is missing.
        fn start(name: &str) -> Option<Postgres> {
            let (Some(initdb), Some(postgres)) = (installed("initdb"), installed("postgres"))
            else {
                eprintln!("skipped: no PostgreSQL here; apt-get install -y postgresql has it");
                return None;
            };
            let directory = Directory::new(name);
            let data = directory.0.join("data");
            std::fs::create_dir(&data).expect("a new directory");
            let password = secret(&format!("{name}-password"), PASSWORD);
            if is_root() {
                for path in [&directory.0, &data, &password.0] {
                    let owner = (Some(NOBODY), Some(NOBODY));
                    std::os::unix::fs::chown(path, owner.0, owner.1).expect("of root");
                }
            }
            let flags = ["-U", "bill", "-A", "scram-sha-256", "-N", "--locale=C", "-E", "UTF8"];
            let made = command(&initdb)
                .arg(format!("--pwfile={}", password.path()))
                .args(flags)
                .arg("-D")
                .arg(&data)
                .status();
            assert!(made.expect("initdb runs").success());
            let child = command(&postgres)
                .arg("-D")
                .arg(&data)
                .args(["-c", "listen_addresses="])
                .arg("-k")
                .arg(&directory.0)
                .spawn();
            let postgres = Postgres { child: child.expect("postgres runs"), directory };
            until("it listens", || postgres.directory.0.join(".s.PGSQL.5432").exists());
            until("it answers", || {
                let args = ["fleet", "bill", "--sum", "--postgres", &postgres.address(PASSWORD)];
                SUBMETER.run(&args).status.success()
            });
            Some(postgres)
        }

        fn address(&self, password: &str) -> String {
            let host = self.directory.0.to_string_lossy().replace('/', "%2F");
            format!("postgres://bill:{}@{host}/postgres", password.replace(' ', "%20"))
        }
    }

    impl Drop for Postgres {
        fn drop(&mut self) {
            // An immediate shutdown, which also ends its child processes.
            let _ = Command::new("kill").args(["-QUIT", &self.child.id().to_string()]).status();
            let _ = self.child.wait();
        }
    }

    /// A server that takes connections and says nothing is given up.
    #[test]
    fn a_silent_server_is_given_up() {
        // The system takes connections, but nothing accepts them.
        let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = silent.local_addr().expect("bound");
        let url = format!("postgres://me:s3cret@{address}/bill?connect_timeout=1");
        let args = ["fleet", "bill", "--sum", "--postgres", &url];
        SUBMETER.refuses(&args, &[&address.to_string(), "no answer within 6 s", "--postgres"]);
        let url = format!("postgres://me:s3cret%@{address}/bill");
        let args = ["fleet", "bill", "--sum", "--postgres", &url];
        SUBMETER.refuses(&args, &[&format!("postgres://{address}/bill: invalid percent escape")]);
    }

    /// A database has each request once, whatever servers are killed.
    #[test]
    fn a_database_bills_once_though_servers_die() {
        let Some(postgres) = Postgres::start("bill-pg") else { return };
        each_request_once(&["--postgres", &postgres.address(PASSWORD)]);
        let output =
            SUBMETER.run(&["fleet", "bill", "--sum", "--postgres", &postgres.address("wrong")]);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
        assert!(err.contains("password authentication failed"), "{err}");
        assert!(!err.contains("wrong") && !err.contains(PASSWORD), "{err}");
    }

    /// A database has each request once, whatever readers are killed.
    #[test]
    fn a_database_bills_once_though_readers_die() {
        let Some(postgres) = Postgres::start("bill-pg-killed") else { return };
        let report = postgres.directory.0.join("report");
        readers_that_are_killed(&["--postgres", &postgres.address(PASSWORD)], &report);
    }

    /// A database has each job of a program that restores its totals once.
    #[test]
    fn restored_totals_are_in_the_database_once() {
        let Some(postgres) = Postgres::start("bill-pg-restored") else { return };
        let totals = postgres.directory.0.join("totals");
        each_job_once(&["--postgres", &postgres.address(PASSWORD)], &totals);
    }
}
