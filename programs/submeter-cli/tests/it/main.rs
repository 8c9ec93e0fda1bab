//! Tests of the command, each of which runs it in processes of its own.

mod charged;
mod cli_config;
mod cli_doctor;
mod cli_input;
mod cli_load;
mod descriptors;
mod doors;
mod examples;
mod fleet;
mod fleet_bill;
mod fleet_bill_postgres;
mod fleet_demo;
mod fleet_shards;
mod fleet_top;
mod http_serve;
mod monitoring;
mod operated;
mod other_program;
mod otlp;
mod sandbox;
mod serve_limits;
mod serve_run;
mod stat_cli;
mod support;
mod tls;
mod top_cli;
