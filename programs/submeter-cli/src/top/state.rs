//! The state of `top`: the tree, its order, and what is folded, filtered and selected.
//!
//! It is independent of a terminal: keys arrive as [`Action`]s, and the view reads [`State::rows`].

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use submeter::visible;
use submeter_http::wire::{
    DetailDoc, Figure, MetricDoc, ServerDoc, TreeDoc, ValueDoc, VerdictDoc, VerdictKind, ViewDoc,
};
use submeter_terminal::plain;

/// How many past samples a row keeps.
pub(super) const PAST: usize = 120;

/// For how long a column of refusals keeps its precedence after a refusal; otherwise it would take
/// turns with the one whose room it needs.
const REFUSING_MS: u64 = 60_000;

/// A column that rows can be ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Name,
    /// A view, by its place among those of the server.
    View(usize),
}

/// How much of the screen the detail of the selected group takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Closed,
    /// Below the rows.
    Below,
    /// Instead of the rows.
    Alone,
}

/// A request from the keyboard or the mouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Moves down by rows, or up if negative.
    Move(isize),
    /// Selects a row, counted from the first.
    Select(usize),
    First,
    Last,
    /// Closes the row, or goes to its parent if it is closed.
    Close,
    /// Opens the row, or goes to its first child if it is open.
    Open,
    Toggle,
    OpenAll,
    CloseAll,
    /// Sorts by the next column, or by the previous one if negative.
    Sort(isize),
    SortBy(Column),
    Reverse,
    Filter,
    Type(char),
    Erase,
    /// Ends typing and keeps the filter.
    Keep,
    /// Closes the help or the choice of columns, or ends typing and clears the filter.
    Escape,
    /// Opens the detail of the selected group, gives it the whole screen, and closes it.
    Detail,
    /// Opens or closes the choice of columns.
    Choose,
    /// Takes the mouse, or leaves it to the terminal, which then selects text with it.
    Mouse,
    Help,
    Quit,
}

/// The state of the connection to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// No answer yet.
    Connecting,
    Live,
    /// The server does not answer; the line says why.
    Lost(String),
}

/// One group of the tree.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) path: String,
    /// The path as people see it.
    shown: String,
    /// Figures in the order of the views.
    pub(super) figures: Vec<Option<f64>>,
    /// Values by the metric's name; the rates use the same key.
    pub(super) values: BTreeMap<String, ValueDoc>,
    pub(super) rates: BTreeMap<String, f64>,
    depth: usize,
    parent: Option<usize>,
    pub(super) kids: Vec<usize>,
}

impl Node {
    /// Returns the last name of the path, as people see it.
    pub(super) fn name(&self) -> &str {
        self.title().rsplit('/').next().unwrap_or(&self.shown)
    }

    /// Returns the name that a sentence uses for the path.
    pub(super) fn title(&self) -> &str {
        if self.path == "/" { "All tenants" } else { &self.shown }
    }
}

/// One row, ready to be drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    pub(super) node: &'a Node,
    pub(super) depth: usize,
    pub(super) kids: usize,
    pub(super) is_open: bool,
    pub(super) is_selected: bool,
    /// False for a row that is shown only because of its descendants.
    pub(super) is_match: bool,
}

/// Everything that `top` shows.
#[derive(Debug)]
pub(super) struct State {
    pub(super) link: Link,
    pub(super) server: Option<ServerDoc>,
    /// Whether the rows below a tenant are servers.
    pub(super) is_fleet: bool,
    pub(super) views: Vec<ViewDoc>,
    pub(super) schema: Vec<MetricDoc>,
    pub(super) verdicts: Vec<VerdictDoc>,
    pub(super) at_ms: u64,
    pub(super) sort: Column,
    pub(super) descending: bool,
    pub(super) filter: String,
    pub(super) is_typing: bool,
    pub(super) is_help: bool,
    pub(super) pane: Pane,
    /// The first line of a detail that takes the whole screen.
    pub(super) scrolled: usize,
    /// The column that the cursor is on, while columns are being chosen.
    pub(super) chooser: Option<usize>,
    /// Whether clicks arrive here.
    pub(super) has_mouse: bool,
    pub(super) is_done: bool,
    /// The keys of the views that have a column, if the user chose them.
    pub(super) chosen: Option<Vec<String>>,
    nodes: Vec<Node>,
    closed: HashSet<String>,
    selected: String,
    /// Indices into `nodes`, top to bottom.
    shown: Vec<usize>,
    past: HashMap<String, VecDeque<f64>>,
    /// When a view of refusals last showed one, by its key, in the server's time.
    refused_ms: HashMap<String, u64>,
    /// The past that the server has kept of the selected group, by the key of the view.
    kept: BTreeMap<String, Vec<Figure>>,
    /// The figures of the selected group since it was selected, oldest first.
    seen: VecDeque<Vec<Option<f64>>>,
}

impl State {
    pub(super) fn new() -> State {
        State {
            link: Link::Connecting,
            server: None,
            is_fleet: false,
            views: Vec::new(),
            schema: Vec::new(),
            verdicts: Vec::new(),
            at_ms: 0,
            sort: Column::View(0),
            descending: true,
            filter: String::new(),
            is_typing: false,
            is_help: false,
            pane: Pane::Closed,
            scrolled: 0,
            chooser: None,
            has_mouse: true,
            is_done: false,
            chosen: None,
            nodes: Vec::new(),
            closed: HashSet::new(),
            selected: "/".to_owned(),
            shown: Vec::new(),
            past: HashMap::new(),
            refused_ms: HashMap::new(),
            kept: BTreeMap::new(),
            seen: VecDeque::new(),
        }
    }

    /// Applies a new answer from the server.
    pub(super) fn update(&mut self, tree: TreeDoc) {
        self.link = Link::Live;
        let mut server = tree.server;
        if self.views.iter().map(|view| &view.key).ne(tree.views.iter().map(|view| &view.key)) {
            self.seen.clear();
        }
        self.views = tree.views;
        // Cleaned once, here and at the groups: any server may be at the address, and clients
        // choose names.
        server.listen = plain(&server.listen).into_owned();
        server.notice = server.notice.map(|notice| plain(&notice).into_owned());
        self.server = Some(server);
        for view in &mut self.views {
            view.title = plain(&view.title).into_owned();
        }
        self.schema = tree.schema;
        self.verdicts = tree.verdicts;
        // At most one of each kind that holds, and one that held, whatever the server sends.
        self.verdicts.truncate(2 * VerdictKind::ALL.len());
        self.at_ms = tree.at_ms;
        self.nodes.clear();
        for group in tree.groups {
            let index = self.nodes.len();
            // In a tree, a parent comes before its children; anything else is ignored.
            let parent = group.parent.filter(|&parent| parent < index);
            if let Some(parent) = parent {
                self.nodes[parent].kids.push(index);
            }
            let path = group.path;
            let figure = |view: &ViewDoc| group.overview.get(&view.key).and_then(|f| f.0);
            let figures: Vec<Option<f64>> = self.views.iter().map(figure).collect();
            let past = self.past.entry(path.clone()).or_default();
            past.push_back(figures.first().copied().flatten().unwrap_or(0.0));
            if past.len() > PAST {
                past.pop_front();
            }
            let (values, rates) = (group.values, group.rates);
            // Computed, not taken from the server: an endless indentation would end the program.
            let depth = parent.map_or(0, |parent| self.nodes[parent].depth + 1);
            let kids = Vec::new();
            let shown = visible(&path).to_string();
            self.nodes.push(Node { path, shown, figures, values, rates, depth, parent, kids });
        }
        for (at, view) in self.views.iter().enumerate().filter(|(_, view)| view.is_refusal) {
            let now = self.nodes.first().and_then(|root| root.figures[at]);
            if now.is_some_and(|now| now > 0.0) {
                self.refused_ms.insert(view.key.clone(), self.at_ms);
            }
        }
        let live: HashSet<&str> = self.nodes.iter().map(|node| node.path.as_str()).collect();
        self.past.retain(|path, _| live.contains(path.as_str()));
        self.closed.retain(|path| live.contains(path.as_str()));
        self.arrange();
        self.see();
    }

    /// Stores the past that the server has kept of a group, if it is still the selected one.
    pub(super) fn remember(&mut self, detail: DetailDoc) {
        if detail.group.path == self.selected {
            self.kept = detail.history.series;
        }
    }

    /// Notes that the server does not answer; its last figures stay.
    pub(super) fn set_lost(&mut self, why: String) {
        self.link = Link::Lost(plain(&why).into_owned());
    }

    /// Returns what everyone who looks must know.
    pub(super) fn notice(&self) -> Option<&str> {
        self.server.as_ref()?.notice.as_deref()
    }

    /// Returns the root's figures.
    pub(super) fn total(&self) -> Option<&Node> {
        self.nodes.first()
    }

    /// Returns the number of tenants: a group with children is a level, not a tenant.
    pub(super) fn tenants(&self) -> usize {
        let is_last = |node: &Node| node.kids.is_empty();
        let is_tenant = |node: &&Node| match self.is_fleet {
            true => !is_last(node) && self.kids(node).all(is_last),
            false => is_last(node),
        };
        self.nodes.iter().filter(|node| node.parent.is_some()).filter(is_tenant).count()
    }

    /// Returns the past of the first view, oldest first.
    pub(super) fn past(&self, path: &str) -> impl Iterator<Item = f64> + '_ {
        self.past.get(path).into_iter().flatten().copied()
    }

    /// Returns the past of a view of the selected group, oldest first. The server keeps the past of
    /// busy groups and of some views; for others it begins when they are selected.
    pub(super) fn selected_past(&self, view: usize) -> Vec<Option<f64>> {
        let kept = self.views.get(view).and_then(|view| self.kept.get(&view.key));
        let kept = kept.filter(|kept| kept.iter().any(|figure| figure.0.is_some()));
        match kept {
            Some(kept) => kept.iter().map(|figure| figure.0).collect(),
            None => self.seen.iter().map(|f| f.get(view).copied().flatten()).collect(),
        }
    }

    /// Returns the nodes directly below one.
    pub(super) fn kids<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Node> {
        node.kids.iter().map(|&kid| &self.nodes[kid])
    }

    /// Returns the rows, top to bottom.
    pub(super) fn rows(&self) -> impl ExactSizeIterator<Item = Row<'_>> {
        self.shown.iter().map(|&index| {
            let node = &self.nodes[index];
            Row {
                node,
                depth: node.depth,
                kids: node.kids.len(),
                is_open: self.is_open(node),
                is_selected: node.path == self.selected,
                is_match: self.is_match(node),
            }
        })
    }

    /// Returns the index of the selected row.
    pub(super) fn selected(&self) -> usize {
        self.shown.iter().position(|&i| self.nodes[i].path == self.selected).unwrap_or(0)
    }

    /// Performs an action.
    pub(super) fn act(&mut self, action: Action) {
        if self.chooser.is_none() || !self.act_in_chooser(action) {
            self.act_on_rows(action);
        }
        self.arrange();
    }

    fn act_on_rows(&mut self, action: Action) {
        match action {
            // What moves between rows scrolls what is shown instead of them.
            Action::Move(by) if self.pane == Pane::Alone => {
                self.scrolled = self.scrolled.saturating_add_signed(by);
            }
            Action::First if self.pane == Pane::Alone => self.scrolled = 0,
            Action::Last if self.pane == Pane::Alone => self.scrolled = usize::MAX,
            Action::Move(by) => self.select(self.selected().saturating_add_signed(by)),
            Action::Select(row) => self.select(row),
            Action::First => self.select(0),
            Action::Last => self.select(usize::MAX),
            Action::Close => self.close(),
            Action::Open => self.open(),
            Action::Toggle => self.toggle(),
            Action::OpenAll => self.closed.clear(),
            Action::CloseAll => {
                let below_root = self.nodes.iter().skip(1).filter(|node| !node.kids.is_empty());
                self.closed = below_root.map(|node| node.path.clone()).collect();
            }
            Action::Sort(by) => {
                let columns = self.columns();
                let at = columns.iter().position(|&c| c == self.sort).unwrap_or(0);
                let to = (at.cast_signed() + by).rem_euclid(columns.len().cast_signed());
                self.sort_by(columns[to.cast_unsigned()]);
            }
            Action::SortBy(column) => self.sort_by(column),
            Action::Reverse => self.descending = !self.descending,
            Action::Filter => self.is_typing = true,
            Action::Type(c) => self.filter.push(c),
            Action::Erase => drop(self.filter.pop()),
            Action::Keep => self.is_typing = false,
            Action::Escape if self.is_help => self.is_help = false,
            Action::Escape => {
                self.is_typing = false;
                self.filter.clear();
            }
            Action::Detail => {
                self.scrolled = 0;
                self.pane = match self.pane {
                    Pane::Closed => Pane::Below,
                    Pane::Below => Pane::Alone,
                    Pane::Alone => Pane::Closed,
                };
            }
            Action::Choose => self.chooser = Some(0),
            Action::Mouse => self.has_mouse = !self.has_mouse,
            Action::Help => self.is_help = !self.is_help,
            Action::Quit => self.is_done = true,
        }
    }

    /// Returns the view that is the limit of another.
    pub(super) fn limit_of(&self, view: usize) -> Option<usize> {
        self.view(self.views[view].limit.as_ref()?)
    }

    /// Returns the figure that limits a view in a row.
    pub(super) fn limit(&self, node: &Node, view: usize) -> Option<f64> {
        node.figures[self.limit_of(view)?]
    }

    /// Returns the figures of a view, the root's first.
    pub(super) fn figures(&self, view: usize) -> impl Iterator<Item = Option<f64>> + '_ {
        self.nodes.iter().map(move |node| node.figures[view])
    }

    /// Returns whether a view of refusals has shown one of late.
    pub(super) fn is_refusing(&self, view: usize) -> bool {
        let last = self.refused_ms.get(&self.views[view].key);
        last.is_some_and(|last| self.at_ms.saturating_sub(*last) < REFUSING_MS)
    }

    /// Returns what the worst verdict that holds says about a group: who is to blame, or harmed.
    pub(super) fn judged(&self, node: &Node) -> Option<VerdictKind> {
        let holds = |verdict: &&VerdictDoc| verdict.ended_ms.is_none();
        let mut verdicts = self.verdicts.iter().filter(holds);
        verdicts.find(|verdict| verdict.group == node.path).map(|verdict| verdict.kind)
    }

    pub(super) fn sort_by(&mut self, column: Column) {
        self.sort = column;
        self.descending = column != Column::Name;
    }

    fn select_path(&mut self, path: String) {
        if path != self.selected {
            self.selected = path;
            self.kept.clear();
            self.seen.clear();
            self.see();
        }
    }

    /// Records the figures of the selected group.
    fn see(&mut self) {
        let Some(figures) = self.current().map(|node| node.figures.clone()) else { return };
        self.seen.push_back(figures);
        if self.seen.len() > PAST {
            self.seen.pop_front();
        }
    }

    fn select(&mut self, row: usize) {
        let last = self.shown.len().saturating_sub(1);
        if let Some(&index) = self.shown.get(row.min(last)) {
            self.select_path(self.nodes[index].path.clone());
        }
    }

    /// Returns the selected node.
    pub(super) fn current(&self) -> Option<&Node> {
        self.nodes.iter().find(|node| node.path == self.selected)
    }

    fn toggle(&mut self) {
        let Some(node) = self.current().filter(|node| !node.kids.is_empty()) else { return };
        let path = node.path.clone();
        if !self.closed.remove(&path) {
            self.closed.insert(path);
        }
    }

    fn close(&mut self) {
        let Some(node) = self.current() else { return };
        if !node.kids.is_empty() && self.is_open(node) {
            self.toggle();
        } else if let Some(parent) = node.parent {
            self.select_path(self.nodes[parent].path.clone());
        }
    }

    fn open(&mut self) {
        let Some(node) = self.current().filter(|node| !node.kids.is_empty()) else { return };
        if self.is_open(node) {
            self.select(self.selected() + 1);
        } else {
            self.toggle();
        }
    }

    /// Returns whether a node is open. With a filter, everything that leads to a match is open.
    fn is_open(&self, node: &Node) -> bool {
        !self.filter.is_empty() || !self.closed.contains(&node.path)
    }

    fn is_match(&self, node: &Node) -> bool {
        self.filter.is_empty() || {
            let path = node.shown.to_lowercase();
            node.parent.is_some() && path.contains(&self.filter.to_lowercase())
        }
    }

    /// Decides which rows are shown in which order, and keeps the selection on one of them.
    pub(super) fn arrange(&mut self) {
        let keep = self.kept();
        let mut shown = Vec::new();
        let mut stack: Vec<usize> = if keep.first() == Some(&true) { vec![0] } else { Vec::new() };
        while let Some(index) = stack.pop() {
            shown.push(index);
            let node = &self.nodes[index];
            if !self.is_open(node) {
                continue;
            }
            let mut kids: Vec<usize> = node.kids.iter().copied().filter(|&kid| keep[kid]).collect();
            kids.sort_by(|&a, &b| self.order(a, b).reverse());
            stack.extend(kids);
        }
        self.shown = shown;
        if !self.shown.iter().any(|&index| self.nodes[index].path == self.selected) {
            // The row was folded away: select its closest visible ancestor.
            let mut at = self.current().and_then(|node| node.parent);
            while let Some(index) = at.filter(|index| !self.shown.contains(index)) {
                at = self.nodes[index].parent;
            }
            let index = at.or_else(|| self.shown.first().copied());
            self.select_path(index.map_or_else(String::new, |i| self.nodes[i].path.clone()));
        }
    }

    /// Returns for each node whether it or a descendant matches the filter.
    fn kept(&self) -> Vec<bool> {
        let mut keep: Vec<bool> = self.nodes.iter().map(|node| self.is_match(node)).collect();
        // Children come after their parents, so in reverse order every match reaches the root.
        for index in (0..keep.len()).rev() {
            if keep[index]
                && let Some(parent) = self.nodes[index].parent
            {
                keep[parent] = true;
            }
        }
        keep
    }

    fn order(&self, a: usize, b: usize) -> Ordering {
        let (left, right) = (&self.nodes[a], &self.nodes[b]);
        let by_name = left.path.cmp(&right.path);
        if self.sort == Column::Name {
            return if self.descending { by_name.reverse() } else { by_name };
        }
        let by_value = self.value(left).total_cmp(&self.value(right));
        (if self.descending { by_value.reverse() } else { by_value }).then(by_name)
    }

    fn value(&self, node: &Node) -> f64 {
        // The figure that is shown, although two tenants that are nearly equal may swap places each
        // second: by a mean, rows would seem to be out of order.
        match self.sort {
            Column::Name => 0.0,
            Column::View(at) => node.figures.get(at).copied().flatten().unwrap_or(-1.0),
        }
    }
}
