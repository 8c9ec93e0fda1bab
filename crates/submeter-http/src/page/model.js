// What the server said, and which rows follow from it. Knows nothing of the document.

// Where the page is mounted, with a slash at the end.
const BASE = location.pathname.replace(/\/?$/, "/");

const SLOTS = 60;

// How figures of each shape are written. `top` is the whole that a chart shows, `floor` what keeps
// the noise of a nearly constant line from filling its box.
const or = (show) => (v) => v === null || v === undefined ? ["–", ""] : show(v);
const SHAPES = {
  rate: { show: or(format.rate), floor: 1, width: 74 },
  byte_rate: { show: or(format.byteRate), base: 1024, floor: 1024, width: 92 },
  share: { show: format.percent, top: 1, floor: 1, width: 64 },
  cores: { show: or((v) => v ? format.percent(v) : ["0", "%"]), floor: 0.01, width: 74 },
  count: { show: or(format.count), floor: 1, width: 76 },
  bytes: { show: or(format.bytes), base: 1024, floor: 1024, width: 84 },
  time: { show: format.ns, floor: 1000, width: 70 },
};

// Of each unit of the schema: how values are written, and their growth per second.
const UNITS = {
  bytes: { show: format.bytes, per: format.byteRate },
  nanoseconds: { show: format.ns, per: format.ns },
  count: { show: format.exact, per: format.rate },
};
const unitOf = (metric) => UNITS[metric.unit] || UNITS.count;

// How many of the first headlines have a line in each row.
const LINES = 2;

const model = {
  groups: new Map(), root: null, server: null, schema: [], number: 0, at: 0, rootHistory: {},
  verdicts: [], marks: [], earlier: [],
  views: null, headlines: [], columns: [], folded: new Map(), filter: "", sort: null, selected: null,

  // The views are declared by the program: nothing here knows a metric.
  declare(views) {
    this.views = views.map((view, at) => ({ ...view, at, as: SHAPES[view.shape] || SHAPES.count }));
    for (const view of this.views) view.limit = this.views.find((other) => other.key === view.limit) || null;
    this.headlines = this.views.filter((view) => view.place === "headline");
    this.columns = this.views.filter((view) => view.place === "headline" || view.place === "table");
    this.sort = { key: this.columns.length ? this.columns[0].key : "name", down: true };
  },

  full(doc) {
    if (!this.views) this.declare(doc.views);
    // The server came back as a program that shows something else, or a library has added metrics.
    const said = JSON.stringify([doc.views, doc.schema]);
    this.said ||= said;
    if (this.said !== said) location.reload();
    this.groups = new Map();
    this.root = null;
    for (const group of doc.groups) this.add(group);
    for (const [id, lines] of doc.lines) {
      const group = this.groups.get(id);
      if (group) group.lines = lines.map((line) => line.slice(-SLOTS));
    }
    Object.assign(this, { server: doc.server, schema: doc.schema, number: doc.number, at: doc.at_ms });
    this.judged(doc);
    const past = doc.root_history ? doc.root_history.series : {};
    this.rootHistory = Object.fromEntries(this.headlines.map(({ key }) => [key, (past[key] || []).slice(-SLOTS)]));
  },

  tick(doc) {
    for (const id of doc.gone) this.remove(id);
    for (const group of doc.new) this.add(group);
    for (const [id, row] of doc.rows) {
      const group = this.groups.get(id);
      if (group) group.row = row;
    }
    this.number = doc.number;
    this.at = doc.at_ms;
    this.judged(doc);
    for (const group of this.groups.values()) {
      const [first] = this.headlines;
      if (!first) continue;
      const value = this.get(group, first) || 0;
      // A tenant that was never busy has no line, which is a line at zero for nothing.
      if (!group.lines && value === 0) continue;
      const lined = this.headlines.slice(0, LINES);
      group.lines ||= lined.map(() => []);
      lined.forEach((view, i) => push(group.lines[i], this.get(group, view)));
      group.calm = group.calm === undefined ? value : group.calm + (value - group.calm) * 0.3;
    }
    if (this.root) for (const view of this.headlines) push(this.rootHistory[view.key], this.get(this.root, view));
  },

  // Marks and what is over come only where they change.
  judged({ verdicts = [], marks = this.marks, earlier = this.earlier }) { Object.assign(this, { verdicts, marks, earlier }); },

  add([id, parentId, name, row]) {
    const parent = parentId === null ? null : this.groups.get(parentId);
    const path = parent ? (parent.path === "/" ? "" : parent.path) + "/" + name : "/";
    const title = visible(path);
    const group = { id, parent, name, path, title, depth: parent ? parent.depth + 1 : 0, kids: [], row, lines: null, search: title.toLowerCase() };
    this.groups.set(id, group);
    if (parent) parent.kids.push(group); else this.root = group;
  },

  remove(id) {
    const group = this.groups.get(id);
    if (!group) return;
    this.groups.delete(id);
    if (group.parent) group.parent.kids = group.parent.kids.filter((kid) => kid !== group);
  },

  // A group with others below it is a level, not a tenant.
  isTenant(group) { return group.parent && !group.kids.length; },
  tenants() {
    let n = 0;
    for (const group of this.groups.values()) if (this.isTenant(group)) n++;
    return n;
  },

  get(group, view) { return group.row[view.at]; },
  byPath(path) {
    for (const group of this.groups.values()) if (group.path === path) return group;
    return null;
  },

  // Small trees open, large ones show their first level.
  isFolded(group) {
    const chosen = this.folded.get(group.path);
    return chosen === undefined ? group.depth > 0 && this.groups.size > 200 : chosen;
  },
  fold(group, folded) { if (group.kids.length) this.folded.set(group.path, folded); },
  foldAll(folded) {
    this.folded.clear();
    for (const group of this.groups.values()) if (group.kids.length && group.depth > 0) this.folded.set(group.path, folded);
  },

  // The rows from top to bottom: siblings in order, what does not match left out.
  rows() {
    if (!this.root) return [];
    const keep = this.filter ? this.matching() : null;
    const order = this.order();
    const rows = [];
    const stack = [this.root];
    while (stack.length) {
      const group = stack.pop();
      rows.push(group);
      if (!keep && this.isFolded(group)) continue;
      const kids = keep ? group.kids.filter((kid) => keep.has(kid)) : group.kids.slice();
      kids.sort(order);
      for (let i = kids.length - 1; i >= 0; i--) stack.push(kids[i]);
    }
    return keep && !keep.size ? [] : rows;
  },

  matches(group) { return !this.filter || group.search.includes(this.filter); },

  matching() {
    const keep = new Set();
    for (const group of this.groups.values()) {
      if (!group.parent || !this.matches(group)) continue;
      for (let at = group; at && !keep.has(at); at = at.parent) keep.add(at);
    }
    return keep;
  },

  order() {
    const { key, down } = this.sort;
    const byName = (a, b) => a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
    if (key === "name") return down ? (a, b) => byName(b, a) : byName;
    const view = this.columns.find((column) => column.key === key);
    // The first is ordered by a moving average, so that two alike do not change places each second.
    const value = (g) => (view === this.headlines[0] && g.calm !== undefined ? g.calm : this.get(g, view)) ?? -1;
    return (a, b) => (down ? value(b) - value(a) : value(a) - value(b)) || byName(a, b);
  },
};

function push(line, value) {
  line.push(value);
  if (line.length > SLOTS) line.shift();
}
