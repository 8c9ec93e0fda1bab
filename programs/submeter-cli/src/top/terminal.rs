//! The interactive loop: it draws, while one thread polls the server and another reads keys and
//! clicks.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crossterm::event::{
    self, Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use super::figures::figure;
use super::layout::Layout;
use super::screen::{self, Terminal};
use super::source::Source;
use super::state::{Action, State};
use super::theme::Theme;
use super::view;
use submeter_http::wire::{DetailDoc, Placement, TreeDoc};
use submeter_terminal as show;
use submeter_terminal::Failure;
use submeter_terminal::signals::{self, Job};

/// The time between two requests to the server.
const PERIOD: Duration = Duration::from_secs(1);

/// How long the loop waits for a key, and thus how soon it draws a new answer.
const PATIENCE: Duration = Duration::from_millis(100);

/// Rows that PgUp and PgDn move: right for a small terminal and acceptable for a large one.
const PAGE: isize = 20;

/// Rows per step of the wheel, as in most programs.
const WHEEL: isize = 3;

/// Runs until the user quits or a signal arrives, then prints a line with the last figures.
pub(super) fn run(
    source: Source,
    columns: &[String],
    has_mouse: bool,
) -> Result<ExitCode, Failure> {
    let (name, is_fleet) = (source.name(), matches!(source, Source::Fleet(_)));
    // First, so that no signal arrives while there is a terminal to restore and no handler to
    // restore it.
    let cannot = |e| Failure::new(format_args!("cannot install signal handlers: {e}"));
    let (stop, job) = (signals::flag().map_err(cannot)?, Job::new().map_err(cannot)?);
    let mut terminal = Terminal::new()
        .map_err(|e| Failure::new(format_args!("cannot draw here: {e}; --once prints a table")))?;
    let (answers, received) = channel();
    // Dropping it at the end stops the thread.
    let (selected, asked) = channel();
    let asking = std::thread::spawn(move || ask(&source, &answers, &asked));
    // On a thread of its own, because crossterm never returns from reading a terminal that is gone.
    // The loop notices that, or a signal, and the thread ends with the process.
    let (typed, events) = channel();
    std::thread::spawn(move || read(&typed));
    let theme = match std::env::var_os("NO_COLOR") {
        Some(value) if !value.is_empty() => Theme::plain(),
        _ => Theme::colored(),
    };
    let mut state = State::new();
    state.has_mouse = has_mouse;
    state.is_fleet = is_fleet;
    let inputs = Inputs { answers: received, selected, events, job };
    let ended = interact(&mut terminal, &mut state, &inputs, columns, theme, &stop);
    drop((terminal, inputs));
    drop(asking);
    let ended = ended.and_then(|()| print_summary(&state, &show::plain(&name)));
    // A terminal that hangs up causes a failure too, but there an error cannot be shown. Its signal
    // may come before or after, or never. Relaxed: the flag publishes nothing else.
    if !stop.load(Ordering::Relaxed) && io::stdout().is_terminal() {
        ended?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What the loop waits for, and what it tells the polling thread.
struct Inputs {
    answers: Receiver<Answer>,
    selected: Sender<String>,
    events: Receiver<io::Result<Event>>,
    job: Job,
}

enum Answer {
    Tree(Result<TreeDoc, Failure>),
    Group(DetailDoc),
}

/// Requests the tree each second, together with the past of the selected group, which it also
/// requests as soon as another group is selected.
fn ask(source: &Source, answers: &Sender<Answer>, asked: &Receiver<String>) {
    let mut path = "/".to_owned();
    loop {
        if answers.send(Answer::Tree(source.tree())).is_err() {
            return;
        }
        let due = Instant::now() + PERIOD;
        loop {
            // A held arrow key selects many groups: only the last matters.
            path = asked.try_iter().last().unwrap_or(path);
            if let Some(group) = source.group(&path)
                && answers.send(Answer::Group(group)).is_err()
            {
                return;
            }
            match asked.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(next) => path = next,
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// Reads user input until that fails or the receiver is gone.
fn read(typed: &Sender<io::Result<Event>>) {
    loop {
        let event = event::read();
        let is_end = event.is_err();
        if typed.send(event).is_err() || is_end {
            return;
        }
    }
}

fn interact(
    terminal: &mut Terminal,
    state: &mut State,
    inputs: &Inputs,
    mut columns: &[String],
    theme: Theme,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let failed = |e| Failure::new(format_args!("the terminal failed: {e}"));
    let mut layout = Layout::default();
    let mut asked = "/".to_owned();
    let mut is_stale = true;
    // Relaxed: the flag publishes nothing else, and is checked again soon. Where the terminal is
    // gone, no operation fails, no key is read and nothing is drawn.
    while !state.is_done && !stop.load(Ordering::Relaxed) && io::stdout().is_terminal() {
        if inputs.job.stop(screen::restore).map_err(failed)? {
            terminal.take().map_err(failed)?;
            is_stale = true;
        }
        for answer in inputs.answers.try_iter() {
            is_stale = true;
            match answer {
                Answer::Tree(Ok(tree)) => {
                    state.update(tree);
                    // The first answer says which columns there are.
                    let columns = std::mem::take(&mut columns);
                    if !columns.is_empty() {
                        state.choose(columns).map_err(Failure::new)?;
                    }
                }
                Answer::Tree(Err(failure)) => state.set_lost(failure.line().to_owned()),
                Answer::Group(group) => state.remember(group),
            }
        }
        if let Some(node) = state.current().filter(|node| node.path != asked) {
            asked.clone_from(&node.path);
            // The thread ends only after this does.
            let _ = inputs.selected.send(asked.clone());
        }
        if is_stale {
            terminal.take_mouse(state.has_mouse).map_err(failed)?;
            terminal
                .draw(|screen| view::draw(screen, state, theme, &mut layout))
                .map_err(failed)?;
            // Not beyond the last line, from where the first key back would do nothing.
            state.scrolled = layout.scrolled;
            is_stale = false;
        }
        is_stale |= act(state, &layout, &inputs.events).map_err(failed)?;
    }
    Ok(())
}

/// Performs what the user asks for, and returns whether a frame is due. Handles all waiting events
/// before one frame, so that a held arrow key does not queue frames; a mouse that is only moved
/// does not cause one.
fn act(
    state: &mut State,
    layout: &Layout,
    events: &Receiver<io::Result<Event>>,
) -> io::Result<bool> {
    let mut is_due = false;
    let mut patience = PATIENCE;
    // An error was reported when its thread ended.
    while let Ok(event) = events.recv_timeout(patience) {
        let action = match event? {
            Event::Key(key) if key.is_release() => None,
            Event::Key(key) if is_control(key) && key.code == KeyCode::Char('z') => {
                Job::ask_to_stop()?;
                None
            }
            Event::Key(key) => action(state, key),
            Event::Mouse(mouse) => mouse_action(state, layout, mouse),
            Event::Resize(..) => {
                is_due = true;
                None
            }
            _ => None,
        };
        if let Some(action) = action {
            state.act(action);
            is_due = true;
        }
        patience = Duration::ZERO;
    }
    Ok(is_due)
}

fn mouse_action(state: &State, layout: &Layout, mouse: MouseEvent) -> Option<Action> {
    match mouse.kind {
        MouseEventKind::Down(MouseButton::Left) => {
            layout.click(state, usize::from(mouse.column), usize::from(mouse.row))
        }
        MouseEventKind::ScrollUp => Some(Action::Move(-WHEEL)),
        MouseEventKind::ScrollDown => Some(Action::Move(WHEEL)),
        _ => None,
    }
}

fn is_control(key: KeyEvent) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL)
}

/// Returns the action of a key in the current state.
fn action(state: &State, key: KeyEvent) -> Option<Action> {
    let control = is_control(key);
    if control && matches!(key.code, KeyCode::Char('c' | 'd')) {
        return Some(Action::Quit);
    }
    let always = match key.code {
        KeyCode::Up => Some(Action::Move(-1)),
        KeyCode::Down => Some(Action::Move(1)),
        KeyCode::PageUp => Some(Action::Move(-PAGE)),
        KeyCode::PageDown => Some(Action::Move(PAGE)),
        KeyCode::Home => Some(Action::First),
        KeyCode::End => Some(Action::Last),
        KeyCode::Esc => Some(Action::Escape),
        _ => None,
    };
    if always.is_some() {
        return always;
    }
    if state.is_typing {
        return match key.code {
            KeyCode::Enter => Some(Action::Keep),
            KeyCode::Backspace => Some(Action::Erase),
            KeyCode::Char('u') if control => Some(Action::Escape),
            KeyCode::Char(c) if !control => Some(Action::Type(c)),
            _ => None,
        };
    }
    match key.code {
        KeyCode::Left | KeyCode::Char('h') => Some(Action::Close),
        KeyCode::Right | KeyCode::Char('l') => Some(Action::Open),
        KeyCode::Enter | KeyCode::Char(' ') => Some(Action::Toggle),
        KeyCode::Char('k') => Some(Action::Move(-1)),
        KeyCode::Char('j') => Some(Action::Move(1)),
        KeyCode::Char('g') => Some(Action::First),
        KeyCode::Char('G') => Some(Action::Last),
        KeyCode::Char('+' | '=') => Some(Action::OpenAll),
        KeyCode::Char('-') => Some(Action::CloseAll),
        KeyCode::Char('s') => Some(Action::Sort(1)),
        KeyCode::Char('S') => Some(Action::Sort(-1)),
        KeyCode::Char('r') => Some(Action::Reverse),
        KeyCode::Char('c') => Some(Action::Choose),
        KeyCode::Char('d') => Some(Action::Detail),
        KeyCode::Char('m') => Some(Action::Mouse),
        KeyCode::Char('/') => Some(Action::Filter),
        KeyCode::Char('?') => Some(Action::Help),
        KeyCode::Char('q') => Some(Action::Quit),
        KeyCode::Char(c @ '1'..='9') => {
            let index = c as usize - '1' as usize;
            state.columns().get(index).map(|&column| Action::SortBy(column))
        }
        _ => None,
    }
}

/// Prints the last figures, so that they stay in the scroll-back after the screen is gone.
fn print_summary(state: &State, name: &str) -> Result<(), Failure> {
    let Some(root) = state.total() else { return Ok(()) };
    let figures = state.views.iter().zip(&root.figures);
    let headlines = figures.filter(|(view, _)| view.place == Placement::Headline);
    let headlines = headlines.map(|(view, value)| {
        let title = view.title.as_str();
        format!("{title} {}, ", figure(view.shape, *value))
    });
    let tenants = show::count(state.tenants() as u64);
    let line = format!("{name}: {}tenants {tenants}", headlines.collect::<String>());
    show::print(&format!("{line}\n")).map_err(Failure::new)
}
