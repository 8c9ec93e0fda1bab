//! What could have been built instead of marks, and what marks need: models, each with its mistake.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p submeter-percpu --lib loom_`

mod in_flight;
mod kept;
mod linked;
mod sequences;

/// Three preemptions are more than any of the mistakes needs, and keep a model to seconds.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}
