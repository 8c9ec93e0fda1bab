//! The page in a real browser.

mod axe;
mod layout;
mod limits;
mod page;
mod shown;
mod verdicts;
