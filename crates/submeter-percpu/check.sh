#!/usr/bin/env bash
# Runs one checker, or all of them, over the reference counts:  check.sh [loom|miri|tsan]...
#
# loom  every interleaving of the small models, within loom's memory model
# miri  undefined behaviour, twice: strictly over a simple grace period, and over
#       crossbeam-epoch by Tree Borrows, with exposed pointers and its global garbage let pass
# tsan  data races on the machine, with std instrumented too; without sequences, since it sees
#       neither their stores nor what the barrier orders, and takes what they order for races
set -euo pipefail
cd "$(dirname "$0")/../.."
# The models and unit tests of both kinds of counts; tests/ of percpu_ref below.
filter=ref
tests=(--test misuse --test it)

run() { # run NAME COMMAND...: each checker builds apart, so that none rebuilds the others' world
    printf '== %s\n' "$1"
    CARGO_TARGET_DIR="target/check-$1" "${@:2}"
}

if [ $# -eq 0 ]; then set -- loom miri tsan; fi
for checker in "$@"; do
    case $checker in
    loom)
        run loom env RUSTFLAGS="--cfg loom" \
            cargo test -q --release -p submeter-percpu --lib "$filter" ;;
    miri)
        run miri-strict env MIRIFLAGS="-Zmiri-strict-provenance -Zmiri-disable-isolation -Zmiri-num-cpus=2" \
            cargo +nightly miri test -q -p submeter-percpu --lib "$filter"
        run miri-epoch env RUSTFLAGS="--cfg submeter_real_epoch" \
            MIRIFLAGS="-Zmiri-tree-borrows -Zmiri-permissive-provenance -Zmiri-ignore-leaks" \
            cargo +nightly miri test -q -p submeter-percpu --lib "$filter"
        # parking_lot makes pointers from integers.
        run miri-percpu env MIRIFLAGS="-Zmiri-permissive-provenance -Zmiri-disable-isolation -Zmiri-num-cpus=2" \
            cargo +nightly miri test -q -p submeter-percpu "${tests[@]}" percpu_ ;;
    tsan)
        # Doc tests and proc macros cannot be built for it, hence the explicit target and --lib.
        run tsan env RUSTFLAGS="-Zsanitizer=thread" SUBMETER_RSEQ=off \
            cargo +nightly test -q -Zbuild-std --target "$(rustc -vV | sed -n 's/^host: //p')" \
            -p submeter-percpu --lib "$filter"
        run tsan env RUSTFLAGS="-Zsanitizer=thread" SUBMETER_RSEQ=off \
            cargo +nightly test -q -Zbuild-std --target "$(rustc -vV | sed -n 's/^host: //p')" \
            -p submeter-percpu "${tests[@]}" percpu_ ;;
    *)
        printf 'check.sh: no checker %s: loom, miri or tsan\n' "$checker" >&2
        exit 2 ;;
    esac
done
