// The data from the server, and the rows that follow from it. Knows nothing of the document.

// Where the page is mounted, with a slash at the end.
const BASE = location.pathname.replace(/\/?$/, "/");

const SLOTS = 120;

// How figures of each shape are written, and to which `step` the server rounds them. `top` is the
// whole that a chart shows; `floor` keeps the noise of a nearly constant line from filling its box.
const or = (show) => (v) => v === null || v === undefined ? ["–", ""] : show(v);
const SHAPES = {
  rate: { show: or(format.rate), step: 0.1, floor: 1, width: 74 },
  byte_rate: { show: or(format.byteRate), base: 1024, step: 1, floor: 1024, width: 92 },
  share: { show: format.percent, step: 1e-4, top: 1, floor: 1, width: 64 },
  cores: { show: or((v) => v ? format.percent(v) : ["0", "%"]), step: 1e-4, floor: 0.01, width: 74 },
  count: { show: or(format.count), step: 1, floor: 1, width: 76 },
  bytes: { show: or(format.bytes), base: 1024, step: 1, floor: 1024, width: 84 },
  time: { show: format.ns, step: 1, floor: 1000, width: 70 },
};

// For each unit of the schema: how values and their growth per second are written.
const UNITS = {
  bytes: { show: format.bytes, per: format.byteRate },
  nanoseconds: { show: format.ns, per: format.ns },
  count: { show: format.exact, per: format.rate },
};
const unitOf = (metric) => UNITS[metric.unit] || UNITS.count;

// How many times as much a tenant needs to pass another: two similar ones must not swap each second.
const PASSES = 1.2;
// With more siblings, nobody can follow the order by eye.
const HELD_MOST = 100;

const model = {
  groups: new Map(), root: null, server: null, schema: [], number: 0, at: 0, rootHistory: {},
  verdicts: [], marks: [], earlier: [], divided: null, process: [], times: [],
  // Rows of the message whose end has not come yet.
  ahead: [],
  views: null, headlines: [], columns: [], folded: new Map(), filter: "", sort: null, selected: null,

  // The views are declared by the program: nothing here knows a metric.
  declare(views) {
    this.views = views.map((view, at) => ({ ...view, at, as: SHAPES[view.shape] || SHAPES.count }));
    for (const view of this.views) view.limit = this.views.find((other) => other.key === view.limit) || null;
    this.headlines = this.views.filter((view) => view.place === "headline");
    const columns = this.views.filter((view) => view.place === "headline" || view.place === "table");
    this.columns = columns.filter((view) => !view.is_refusal);
    // One column shows what is refused, and by what.
    const of = columns.filter((view) => view.is_refusal);
    if (of.length) this.columns.push({ key: "refused", title: "Refused/s, by", shape: "rate", place: "table", is_trouble: true, of, as: { ...SHAPES.rate, width: 158 }, help: of.map((view) => view.help || view.title).join("; ") });
    this.sort = { key: this.columns.length ? this.columns[0].key : "name", down: true };
  },

  full(doc) {
    if (!this.views) this.declare(doc.views);
    // The server restarted as a program that shows something else, or a library has added metrics.
    const said = JSON.stringify([doc.views, doc.schema]);
    this.said ||= said;
    if (this.said !== said) location.reload();
    const before = this.groups;
    this.groups = new Map();
    this.root = null;
    this.ahead = [];
    for (const group of doc.groups) this.add(group, before);
    for (const [id, line] of doc.lines) {
      const group = this.groups.get(id);
      if (group) group.line = line.slice(-SLOTS).map((value) => value || 0);
      if (group) group.sum = group.line.reduce((sum, value) => sum + value, 0);
    }
    this.divided = this.views.find((view) => view.key === doc.divided) || null;
    this.process = doc.process.slice(-SLOTS);
    this.times = (doc.root_history ? doc.root_history.ago_s : []).slice(-SLOTS).map((ago) => doc.at_ms - ago * 1000);
    Object.assign(this, { server: doc.server, schema: doc.schema, number: doc.number, at: doc.at_ms });
    this.judged(doc);
    const past = doc.root_history ? doc.root_history.series : {};
    this.rootHistory = Object.fromEntries(this.lined().map(({ key }) => [key, (past[key] || []).slice(-SLOTS)]));
    this.bound();
  },

  tick(doc) {
    for (const id of doc.gone) this.remove(id);
    for (const group of doc.new) this.add(group);
    for (const rows of [...this.ahead, doc.rows]) for (const [id, row] of rows) {
      const group = this.groups.get(id);
      if (group) group.row = row;
    }
    this.ahead = [];
    this.number = doc.number;
    this.at = doc.at_ms;
    this.server.notice = doc.notice;
    this.judged(doc);
    push(this.process, doc.process);
    push(this.times, doc.at_ms);
    if (this.divided) for (const group of this.groups.values()) {
      const value = this.get(group, this.divided) || 0;
      // A tenant that was never busy has no line: a line at zero would be a waste.
      if (!group.line && value === 0) continue;
      group.line ||= [];
      group.sum = (group.sum || 0) + value - (push(group.line, value) || 0);
    }
    if (this.root) for (const view of this.lined()) push(this.rootHistory[view.key], this.get(this.root, view));
    this.bound();
  },

  // A line second by second: a large tree or a busy machine has fewer samples, and each lasts until
  // the next. `before` is the value where none is known.
  seconds(line, before = null) {
    const { times, at } = this;
    const first = times.length - (line || []).length;
    let i = times.length - 1;
    const values = Array(SLOTS);
    for (let ago = 0; ago < SLOTS; ago++) {
      while (i >= 0 && times[i] > at - ago * 1000 + 500) i--;
      values[SLOTS - 1 - ago] = i < Math.max(0, first) ? before : line[i - first] ?? before;
    }
    return values;
  },

  // The views whose past is known.
  lined() { return this.divided && !this.headlines.includes(this.divided) ? [...this.headlines, this.divided] : this.headlines; },

  // Which views have a limit anywhere: the others need no room for one.
  bound() {
    for (const view of this.columns) {
      view.bound = false;
      if (view.limit) for (const group of this.groups.values()) if (this.get(group, view.limit) !== null) { view.bound = true; break; }
    }
  },

  // Marks and past verdicts come only when they change.
  judged({ verdicts = [], marks = this.marks, earlier = this.earlier }) { Object.assign(this, { verdicts, marks, earlier }); },

  // A group that was there `before` this connection stays the same object: a new one would have a new
  // row, and the keyboard would lose its place with each reconnection.
  add([id, parentId, name, row], before) {
    const parent = parentId === null ? null : this.groups.get(parentId);
    const path = parent ? (parent.path === "/" ? "" : parent.path) + "/" + name : "/";
    const known = before?.get(id), title = visible(path);
    const group = known && known.path === path ? known : { id, name, path, title, depth: parent ? parent.depth + 1 : 0, search: title.toLowerCase() };
    Object.assign(group, { parent, kids: [], row, line: null, sum: 0, order: null });
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

  get(group, view) { return view.of ? view.of.reduce((sum, one) => sum + (group.row[one.at] || 0), 0) : group.row[view.at]; },
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

  // The rows from top to bottom: siblings in order, without those that do not match.
  rows() {
    if (!this.root) return [];
    const keep = this.filter ? this.matching() : null;
    this.isHeld = false;
    const rows = [];
    const stack = [this.root];
    while (stack.length) {
      const group = stack.pop();
      rows.push(group);
      if (!keep && this.isFolded(group)) continue;
      const { kids, isHeld } = this.ordered(group);
      this.isHeld ||= isHeld;
      for (let i = kids.length - 1; i >= 0; i--) if (!keep || keep.has(kids[i])) stack.push(kids[i]);
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

  // Siblings in their order, which is made once for each message: a filter leaves rows out, and moves
  // none.
  ordered(group) {
    const by = `${this.sort.key} ${this.sort.down}`;
    if (group.order && group.order.by === by && group.order.number === this.number) return group.order;
    // In place: what was in order a second ago nearly is, and is sorted the faster for it.
    return group.order = { by, number: this.number, ...this.sorted(group.kids, by) };
  },

  sorted(kids, by) {
    const { key, down } = this.sort;
    const byName = (a, b) => a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
    if (key === "name") return { kids: kids.sort(down ? (a, b) => byName(b, a) : byName), isHeld: false };
    const view = this.columns.find((column) => column.key === key);
    for (const kid of kids) kid.value = (down ? 1 : -1) * (this.get(kid, view) ?? -1);
    const order = (a, b) => b.value - a.value || byName(a, b);
    if (kids.length > HELD_MOST) return { kids: kids.sort(order), isHeld: false };
    const rank = (kid) => kid.ranked === by ? kid.rank : Infinity;
    kids.sort((a, b) => rank(a) - rank(b) || order(a, b));
    const passes = (a, b) => a.value > b.value && a.value - b.value > (PASSES - 1) * Math.abs(b.value);
    for (let i = 1; i < kids.length; i++) {
      for (let j = i; j > 0 && passes(kids[j], kids[j - 1]); j--) [kids[j - 1], kids[j]] = [kids[j], kids[j - 1]];
    }
    kids.forEach((kid, i) => { kid.ranked = by; kid.rank = i; });
    return { kids, isHeld: kids.some((kid, i) => i > 0 && kid.value > kids[i - 1].value) };
  },
};

function push(line, value) {
  line.push(value);
  return line.length > SLOTS ? line.shift() : 0;
}
