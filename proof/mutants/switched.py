#!/usr/bin/env python3
"""Tries all changes of a sample with one build of each test program, for `run`.

A change is compiled beside what it changes, and a variable of the environment switches it on:

    if mutant::on(7) { the function's body with change 7 } else { the body }

So a change costs a run of tests instead of a build, and only of those tests that reach it: each
test runs once alone, while the switches note which of them it passes. What does not compile is
taken out by the lines of the compiler's errors, until the rest compiles.

Compiling each change by itself was rejected: it took minutes a change, and days for all.
"""
import json, os, re, resource, signal, subprocess, sys, time

work, minutes = sys.argv[1], int(sys.argv[2])
BACKEND = os.environ["SUBMETER_RSEQ"]
END = time.time() + 60 * minutes if minutes else float("inf")
OUT, SOURCE, SOUND = work + "/out", work + "/source", work + "/sound"

# The checks, in order of cost: name, files whose changes go through it, a `cfg` of `.ci/cfg`, tests
# of which programs, and which of them. Changes that a check misses go through the next.
CHECKS = [
    ("quick", "submeter-percpu/", "", "-p submeter-percpu --lib --test it --test misuse",
     r"(?!.*_stress)"),
    # Without sequences: what the machine's own backend leaves alone.
    ("fallback", "submeter-percpu/", "", "-p submeter-percpu --lib --test it", r"(?!.*_stress)"),
    ("own", "submeter-percpu/", "", "-p submeter-percpu --lib --test it", r".*_stress"),
    ("inject", "submeter-percpu/", "submeter_inject",
     "-p submeter-percpu --test percpu_ref_inject --test limit_inject", ""),
    ("loom", "submeter-percpu/", "loom", "-p submeter-percpu --lib", r".*loom_"),
    ("own", "submeter-events/", "", "-p submeter-events", ""),
    ("users", "", "", "-p submeter --lib --test it", r"(?!.*_stress)"),
    ("own", "submeter/", "", "-p submeter --lib --test it --test sessions", ""),
    ("rest", "", "", "-p submeter-testkit --tests", ""),
]

SWITCH = '''//! Which change is on, and which are passed.
#![allow(missing_docs)]
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};
static ON: AtomicU32 = AtomicU32::new(u32::MAX);
static PASSED: AtomicPtr<u8> = AtomicPtr::new(null_mut());
#[inline]
pub fn on(n: u32) -> bool {
    let on = ON.load(Relaxed);
    n == if on >= u32::MAX - 1 { look(n) } else { on }
}
#[cold]
fn look(n: u32) -> u32 {
    unsafe {
        if ON.load(Relaxed) == u32::MAX {
            let passed = libc::getenv(c"MUTANTS_PASSED".as_ptr());
            if passed.is_null() {
                let on = libc::getenv(c"MUTANT".as_ptr());
                ON.store(if on.is_null() { 0 } else { libc::atoi(on) as u32 }, Relaxed);
                return ON.load(Relaxed);
            }
            let file = libc::open(passed, libc::O_RDWR);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let map = libc::mmap(null_mut(), 1 << 16, access, libc::MAP_SHARED, file, 0);
            libc::close(file);
            PASSED.store(map.cast(), Relaxed);
            ON.store(u32::MAX - 1, Relaxed);
        }
        let passed = PASSED.load(Relaxed);
        if !passed.is_null() { passed.add(n as usize).write_volatile(1) }
    }
    0
}
'''


def lines(name):
    return open(f"{OUT}/{name}").read().splitlines() if os.path.exists(f"{OUT}/{name}") else []


def note(verdict, name, by):
    with open(OUT + "/verdicts", "a") as file:
        print(verdict, name, by, sep="\t", file=file)
    print(verdict, name, by, sep="\t", flush=True)


def body(text, start, end):
    """Where a function's body is, from its first brace outside parentheses."""
    at, depth = start, 0
    while text[at] != "{" or depth:
        if text.startswith("//", at): at = text.index("\n", at)
        depth += (text[at] in "([") - (text[at] in ")]")
        at += 1
    return at + 1, end - 1


def switched(text, changes, numbers, blocks):
    """A file's text with its changes behind switches; `blocks` gets who is on which lines."""
    starts = [0]
    for line in text.split("\n"): starts.append(starts[-1] + len(line) + 1)
    place = lambda at: starts[at["line"] - 1] + at["column"] - 1
    span = lambda of: (place(of["start"]), place(of["end"]))
    # Changes in a function inside another are in a copy of the outer one.
    inside = [c for c in changes if c["function"]]
    known = {span(c["function"]["span"]): None for c in inside}
    known = {whole: body(text, *whole) for whole in known}
    for change in [change for change in inside if change["genre"] == "FnValue"]:
        known[span(change["function"]["span"])] = span(change["span"])
    chosen = {}
    for change in changes:
        start, end = span(change["span"])
        around = [w for w, (a, b) in known.items() if a <= start and end <= b]
        if change["name"] in numbers and around: chosen.setdefault(min(around), []).append(change)
    new, line, done = [], 1, 0

    def put(more):
        nonlocal line
        new.append(more)
        line += more.count("\n")

    for whole in sorted(chosen):
        a, b = known[whole]
        put(text[done:a])
        first = line
        for change in chosen[whole]:
            (start, end), from_line = span(change["span"]), line
            put(f"if ::submeter_sys::mutant::on({numbers[change['name']]}) {{\n")
            put(text[a:start] + change["replacement"] + text[end:b])
            blocks.append((from_line + 1, line, [change["name"]], "unviable"))
            put("\n} else ")
        put("{\n" + text[a:b] + "\n}")
        blocks.append((first, line, [change["name"] for change in chosen[whole]], "untried"))
        done = b
    put(text[done:])
    return "".join(new)


def put_switches(numbers):
    """Writes the files with their switches. Returns who is on which of their lines."""
    by_file, blocks = {}, {}
    for change in json.load(open(OUT + "/changes.json")):
        by_file.setdefault(change["file"], []).append(change)
    for path, changes in by_file.items():
        sound = open(f"{SOUND}/{path}").read()
        text = switched(sound, changes, numbers, blocks.setdefault(path, []))
        # Cargo compares times.
        if text != open(f"{SOURCE}/{path}").read(): open(f"{SOURCE}/{path}", "w").write(text)
    return blocks


def build(cfg, arguments, numbers):
    """Builds these tests, without the changes that do not compile. Returns their programs."""
    environment = dict(os.environ, CARGO_TARGET_DIR=f"{work}/target/{cfg}", CARGO_INCREMENTAL="0")
    if cfg: environment["RUSTC_WORKSPACE_WRAPPER"] = f"{SOURCE}/.ci/cfg/{cfg}"
    while True:
        blocks = put_switches(numbers)
        placed = {name for of in blocks.values() for _, _, names, _ in of for name in names}
        for name in set(numbers) - placed:
            del numbers[name]
            note("untried", name, "outside of functions")
        command = ["cargo", "test", "--no-run", "--message-format=json", *arguments.split()]
        cargo = subprocess.run(command, cwd=SOURCE, env=environment, text=True, capture_output=True)
        messages = [json.loads(line) for line in cargo.stdout.splitlines() if line.startswith("{")]
        if cargo.returncode == 0: break
        errors = [m["message"] for m in messages if m.get("message", {}).get("level") == "error"]
        bad = {}
        for error in errors:
            for span in error["spans"]:
                line, of = span["line_start"], blocks.get(span["file_name"], [])
                around = [block for block in of if block[0] <= line <= block[1]]
                if around and span["is_primary"]:
                    # The first is of one change; or of all in a function, whose result may have no
                    # name, so that each of them is of another type.
                    *_, names, verdict = around[0]
                    bad.update(dict.fromkeys(names, (verdict, error["message"])))
        if not bad: sys.exit("".join(e["rendered"] for e in errors) + cargo.stderr)
        for name, (verdict, why) in bad.items():
            del numbers[name]
            note(verdict, name, why.split("\n")[0])
    made = [m for m in messages if m.get("executable") and m["profile"]["test"]]
    return [(m["executable"], os.path.dirname(m["manifest_path"])) for m in made]


def run(program, tests, variables, seconds):
    """Runs these tests. Returns the program's status, 124 if it hangs, and its output.

    It hangs if it computes for longer than that, does nothing for 20 seconds, or is not over in ten
    minutes. A clock on the wall would also count the time for which all of this is stopped: hence
    the turns of a loop.
    """
    environment = dict(os.environ, RUSTC_BOOTSTRAP="1", CARGO_MANIFEST_DIR=program[1], **variables)
    options = ["--exact", "--test-threads=1", "-Zunstable-options", "--fail-fast"]
    command = [program[0], *options, *tests]
    child = subprocess.Popen(
        command, cwd=program[1], env=environment, text=True, errors="replace",
        start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT)
    # As `clock_getcpuclockid` computes it, which Python lacks.
    clock, spent, idle, turns, late = ~child.pid << 3 | 2, 0, 0, 0, False
    while True:
        try:
            output, _ = child.communicate(timeout=.1)
            return (124 if late else child.returncode), output
        except subprocess.TimeoutExpired:
            before, spent, turns = spent, time.clock_gettime(clock), turns + 1
            idle = idle + 1 if spent == before else 0
            late = late or spent > seconds or idle > 200 or turns > 6000
            if late: os.killpg(child.pid, signal.SIGKILL)


def passes(programs, wanted):
    """Runs each test alone. Returns of each its program, name, seconds, and what it passes.

    The seconds are those that it computed: a busy machine makes no test slow.
    """
    found, path = [], OUT + "/passed"
    computed = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    for program in programs:
        command = [program[0], "--list", "--format=terse"]
        listed = subprocess.run(command, cwd=program[1], text=True, capture_output=True)
        for name in re.findall(r"^(.*): test$", listed.stdout, re.M):
            if not re.match(wanted, name): continue
            open(path, "wb").write(bytes(1 << 16))
            begun = computed()
            status, output = run(program, [name], {"MUTANTS_PASSED": path}, 900)
            took = computed() - begun
            if status:
                # It would catch every change.
                print(f"mutants: {name} fails without a change:\n{output[-2000:]}", flush=True)
                continue
            passed = {n for n, is_passed in enumerate(open(path, "rb").read()) if is_passed}
            found.append((program, name, took, passed))
    return found


def attempt(number, tests):
    """Runs the tests that pass a change, quick ones first. Returns who caught it, if any did."""
    mine = [test for test in tests if number in test[3]]
    for program in dict.fromkeys(test[0] for test in mine):
        for low, high in [(0, .1), (.1, 1), (1, 1e9)]:
            mine_here = [test for test in mine if test[0] == program and low <= test[2] < high]
            part = {name: took for _, name, took, _ in mine_here}
            seconds, on = 3 + 4 * sum(part.values()), {"MUTANT": str(number)}
            while part:
                status, output = run(program, part, on, seconds)
                if status == 0: break
                # The one that failed; or that aborted, or hangs.
                begun = re.findall(r"^test (.*) \.\.\. ", output, re.M)
                failed = re.findall(r"^test (.*) \.\.\. FAILED$", output, re.M) or begun[-1:]
                by = failed[0] if failed else "?"
                if status == 124: return "timeout", by
                if by not in part or run(program, [by], on, seconds)[0]: return "caught", by
                # It may have failed for another reason, such as a busy machine.
                del part[by]
    return None


def main():
    done = {line.split("\t")[1] for line in lines("verdicts")}
    # A change keeps its number in each build.
    numbers = {name: n for n, name in enumerate(lines("sample"), 1) if name not in done}
    open(SOURCE + "/crates/submeter-sys/src/mutant.rs", "w").write(SWITCH)
    for path, old, new in [
        ("crates/submeter-sys/src/lib.rs", "pub mod barrier;", "pub mod barrier;\npub mod mutant;"),
        # A changed body leaves things unused.
        ("Cargo.toml", '"deny"', '"allow"'),
    ]:
        text = open(f"{SOURCE}/{path}").read()
        open(f"{SOURCE}/{path}", "w").write(text.replace(old, new) if new not in text else text)
    for name, files, cfg, arguments, wanted in CHECKS:
        left = [n for n in numbers if n.startswith("crates/" + files) or not files]
        if not left: continue
        print(f"mutants: {len(left)} of {files or 'all'}: {name}", flush=True)
        os.environ["SUBMETER_RSEQ"] = "off" if name == "fallback" else BACKEND
        tests = passes(build(cfg, arguments, numbers), wanted)
        for change in [n for n in left if n in numbers]:
            if time.time() > END:
                note("untried", change, f"{name}: no time")
                del numbers[change]
                continue
            found = attempt(numbers[change], tests)
            if not found: continue
            note(found[0], change, f"{name}: {found[1]}")
            del numbers[change]
    for change in numbers: note("missed", change, "all")


main()
