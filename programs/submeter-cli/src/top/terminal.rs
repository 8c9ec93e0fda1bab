//! The interactive loop: it reads keys and draws frames, while a thread polls the server.

use std::io::Write;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};

use super::client::Client;
use super::figures::figure;
use super::screen::Terminal;
use super::state::{Action, State};
use super::view::{self, Theme};
use submeter_http::wire::{Place, TreeDoc};
use submeter_terminal as show;
use submeter_terminal::Failure;

/// The time between two requests to the server.
const PERIOD: Duration = Duration::from_secs(1);

/// How long the loop waits for a key, and thus how soon it draws a new answer.
const PATIENCE: Duration = Duration::from_millis(100);

/// Rows that PgUp and PgDn move: right for a small terminal and acceptable for a large one.
const PAGE: isize = 20;

/// Runs until the user quits, then prints a line with the last figures.
pub(super) fn run(client: Client) -> Result<ExitCode, Failure> {
    let url = client.url().to_owned();
    let mut terminal = Terminal::new()
        .map_err(|e| Failure::new(format_args!("cannot draw here: {e}; --once prints a table")))?;
    let (answers, received) = channel();
    // Dropping it at the end stops the thread.
    let (_running, stop) = channel::<()>();
    let asking = std::thread::spawn(move || ask(&client, &answers, &stop));
    let theme = match std::env::var_os("NO_COLOR") {
        Some(value) if !value.is_empty() => Theme::plain(),
        _ => Theme::colored(),
    };
    let mut state = State::new();
    let ended = interact(&mut terminal, &mut state, &received, theme);
    drop(terminal);
    drop(asking);
    ended.map_err(|e| Failure::new(format_args!("the terminal failed: {e}")))?;
    print_summary(&state, &url);
    Ok(ExitCode::SUCCESS)
}

type Answer = Result<TreeDoc, Failure>;

fn ask(client: &Client, answers: &Sender<Answer>, stop: &Receiver<()>) {
    loop {
        if answers.send(client.tree()).is_err() {
            return;
        }
        if !matches!(stop.recv_timeout(PERIOD), Err(RecvTimeoutError::Timeout)) {
            return;
        }
    }
}

fn interact(
    terminal: &mut Terminal,
    state: &mut State,
    answers: &Receiver<Answer>,
    theme: Theme,
) -> std::io::Result<()> {
    let mut top = 0;
    let mut is_stale = true;
    while !state.is_done {
        for answer in answers.try_iter() {
            is_stale = true;
            match answer {
                Ok(tree) => state.update(tree),
                Err(failure) => state.set_lost(failure.line().to_owned()),
            }
        }
        if is_stale {
            terminal.draw(|screen| view::draw(screen, state, theme, &mut top))?;
            is_stale = false;
        }
        // Handles all waiting keys before one frame, so that a held arrow key does not queue
        // frames.
        let mut patience = PATIENCE;
        while event::poll(patience)? {
            match event::read()? {
                Event::Key(key) if !key.is_release() => {
                    if let Some(action) = action(state, key) {
                        state.act(action);
                    }
                }
                _ => {}
            }
            is_stale = true;
            patience = Duration::ZERO;
        }
    }
    Ok(())
}

/// Returns the action of a key in the current state.
fn action(state: &State, key: KeyEvent) -> Option<Action> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
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
fn print_summary(state: &State, url: &str) {
    let Some(root) = state.total() else { return };
    let figures = state.views.iter().zip(&root.figures);
    let headlines = figures.filter(|(view, _)| view.place == Place::Headline);
    let headlines = headlines.map(|(view, value)| {
        let title = view.title.as_str();
        format!("{title} {}, ", figure(view.shape, *value))
    });
    let tenants = show::count(state.tenants() as u64);
    let line = format!("{url}: {}tenants {tenants}", headlines.collect::<String>());
    // If this cannot be written, the error cannot be reported either.
    let _ = writeln!(std::io::stdout(), "{line}");
}
