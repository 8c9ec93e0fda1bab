//! Styles, and text of a fixed width.

use anstyle::{AnsiColor, Style};
use submeter_terminal::{shortened, width};

/// The styles. Colours come from the terminal's palette, so that they suit its background.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    pub(super) accent: Style,
    pub(super) warn: Style,
    pub(super) bad: Style,
    pub(super) dim: Style,
    pub(super) bold: Style,
    pub(super) selected: Style,
}

impl Theme {
    /// Returns the theme with colours.
    pub(super) fn colored() -> Theme {
        Theme {
            accent: AnsiColor::Blue.on_default(),
            warn: AnsiColor::Yellow.on_default(),
            bad: AnsiColor::Red.on_default(),
            ..Theme::plain()
        }
    }

    /// Returns the theme without colours: <https://no-color.org>.
    pub(super) fn plain() -> Theme {
        Theme {
            accent: Style::new(),
            warn: Style::new(),
            bad: Style::new().bold(),
            dim: Style::new().dimmed(),
            bold: Style::new().bold(),
            selected: Style::new().invert(),
        }
    }
}

/// Pads to a width in cells, or cuts with an ellipsis; the last cell stays free.
pub(super) fn pad(text: &str, width: usize) -> String {
    let text = shortened(text, width.saturating_sub(1));
    format!("{text}{}", " ".repeat(width.saturating_sub(self::width(&text))))
}

pub(super) fn right(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(self::width(text))))
}
