//! The choice of columns: on the command line by key, or in a list on the screen.

use submeter_http::wire::{Placement, ViewDoc};

use super::state::{Action, Column, State};

impl State {
    /// Returns the columns that rows can be ordered by: the name, and each view that has a column.
    pub(super) fn columns(&self) -> Vec<Column> {
        let views: Vec<usize> = match &self.chosen {
            Some(keys) => keys.iter().filter_map(|key| self.view(key)).collect(),
            None => {
                let is_wide = |&at: &usize| {
                    matches!(self.views[at].place, Placement::Headline | Placement::Table)
                };
                self.choices().into_iter().filter(is_wide).collect()
            }
        };
        [Column::Name].into_iter().chain(views.into_iter().map(Column::View)).collect()
    }

    /// Returns the views that may have a column. A limit stands beside what it limits, but may have
    /// a column of its own.
    pub(super) fn choices(&self) -> Vec<usize> {
        (0..self.views.len()).filter(|&at| self.may_have_column(at)).collect()
    }

    fn may_have_column(&self, view: usize) -> bool {
        let view = &self.views[view];
        let is_limit = || self.views.iter().any(|other| other.limit.as_ref() == Some(&view.key));
        view.place != Placement::Nowhere || is_limit()
    }

    /// Returns the view that stands beside another as its limit, unless it has a column of its own.
    pub(super) fn limit_beside(&self, view: usize) -> Option<usize> {
        let limit = self.limit_of(view)?;
        (!self.has_column(limit)).then_some(limit)
    }

    /// Returns whether a view has a column.
    pub(super) fn has_column(&self, view: usize) -> bool {
        self.columns().contains(&Column::View(view))
    }

    /// Returns the view that the graph shows: the one by which rows are ordered, or else the first
    /// that has a column.
    pub(super) fn graphed(&self) -> Option<usize> {
        match self.sort {
            Column::View(view) => (view < self.views.len()).then_some(view),
            Column::Name => self.columns().into_iter().find_map(|column| match column {
                Column::View(view) => Some(view),
                Column::Name => None,
            }),
        }
    }

    /// Gives columns to the views with these keys, in this order, or names a key that does not
    /// exist.
    pub(super) fn choose(&mut self, keys: &[String]) -> Result<(), String> {
        let known = || -> String {
            let keys = self.choices().into_iter().map(|at| self.views[at].key.as_str());
            keys.collect::<Vec<_>>().join(", ")
        };
        let is_known = |key: &String| self.view(key).is_some_and(|at| self.may_have_column(at));
        if let Some(wrong) = keys.iter().find(|key| !is_known(key)) {
            return Err(format!("no column {wrong:?} here: choose --columns from {}", known()));
        }
        let mut chosen: Vec<String> = Vec::new();
        for key in keys {
            if !chosen.contains(key) {
                chosen.push(key.clone());
            }
        }
        self.chosen = Some(chosen);
        self.sort_by_a_column();
        self.arrange();
        Ok(())
    }

    /// Handles the actions that the open list of columns takes for itself, and returns whether it
    /// did.
    pub(super) fn act_in_chooser(&mut self, action: Action) -> bool {
        let choices = self.choices();
        let last = choices.len().saturating_sub(1);
        let at = self.chooser.unwrap_or(0).min(last);
        match action {
            Action::Move(by) => self.chooser = Some(at.saturating_add_signed(by).min(last)),
            Action::First => self.chooser = Some(0),
            Action::Last => self.chooser = Some(last),
            Action::Toggle => {
                if let Some(&view) = choices.get(at) {
                    self.toggle_column(view);
                }
            }
            Action::Escape if self.is_help => return false,
            Action::Choose | Action::Escape => self.chooser = None,
            Action::Help | Action::Mouse | Action::Quit => return false,
            // Actions that would change the rows hidden behind the list.
            _ => {}
        }
        true
    }

    /// Adds or removes a column. An added one goes to the end, so that a given order stays.
    fn toggle_column(&mut self, view: usize) {
        let columns = self.columns();
        let key = self.views[view].key.clone();
        let keys = columns.iter().filter_map(|column| match column {
            Column::View(view) => Some(self.views[*view].key.clone()),
            Column::Name => None,
        });
        let mut keys: Vec<String> = keys.collect();
        match keys.iter().position(|known| *known == key) {
            Some(at) => drop(keys.remove(at)),
            None => keys.push(key),
        }
        self.chosen = Some(keys);
        self.sort_by_a_column();
    }

    /// Orders by the first column if the column by which rows were ordered is gone; otherwise their
    /// order would be inexplicable.
    fn sort_by_a_column(&mut self) {
        let columns = self.columns();
        if !columns.contains(&self.sort) {
            self.sort_by(columns.get(1).copied().unwrap_or(Column::Name));
        }
    }

    /// Returns the place of a view.
    pub(super) fn view(&self, key: &str) -> Option<usize> {
        self.views.iter().position(|view: &ViewDoc| view.key == key)
    }
}
