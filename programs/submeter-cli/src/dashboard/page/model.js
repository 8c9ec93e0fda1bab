// What the server said, and which rows follow from it. Knows nothing of the document.

const SLOTS = 60;

const columns = [
  { key: "name", label: "Tenant", title: "Path of the group; figures include everything below it" },
  { key: "req", label: "Requests/s", title: "Requests answered in the last second" },
  { key: "hit", label: "Hits", title: "Retrievals of the last second that found the item" },
  { key: "p99", label: "p99", title: "99 of 100 requests of the last second were answered within this" },
  { key: "cpu", label: "CPU", title: "Time of worker threads; 100 % is one processor" },
  { key: "mem", label: "Memory", title: "Held by items, and its limit if there is one" },
  { key: "evict", label: "Evictions/s", title: "Items dropped to make room in the last second" },
  { key: "items", label: "Items", title: "Items held" },
];

// The server's name of each figure that is shown.
const FIELDS = {
  req: "requests_per_s", hit: "hit_ratio", mem: "memory_bytes", limit: "memory_limit_bytes", p99: "p99_ns",
  cpu: "cpu_cores", evict: "evictions_per_s", refused: "refused_per_s", items: "items",
  in: "bytes_in_per_s", out: "bytes_out_per_s",
};

const model = {
  groups: new Map(), root: null, server: null, schema: [], number: 0, at: 0, rootHistory: {},
  folded: new Map(), filter: "", sort: { key: "req", down: true }, selected: null, at_: {},

  full(doc) {
    const at = Object.fromEntries(doc.columns.map((name, i) => [name, i]));
    this.at_ = Object.fromEntries(Object.entries(FIELDS).map(([key, name]) => [key, at[name]]));
    this.groups = new Map();
    this.root = null;
    for (const group of doc.groups) this.add(group);
    for (const [id, req, p99] of doc.lines) {
      const group = this.groups.get(id);
      if (group) { group.lines = { req: req.slice(-SLOTS), p99: p99.slice(-SLOTS) }; }
    }
    Object.assign(this, { server: doc.server, schema: doc.schema, number: doc.number, at: doc.at_ms });
    const past = doc.root_history || {};
    const keys = { req: "requests_per_s", hit: "hit_ratio", p99: "p99_ns", cpu: "cpu_cores", mem: "memory_bytes", evict: "evictions_per_s" };
    this.rootHistory = Object.fromEntries(Object.entries(keys).map(([k, name]) => [k, (past[name] || []).slice(-SLOTS)]));
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
    for (const group of this.groups.values()) {
      const req = this.get(group, "req");
      // A tenant that was never busy has no line, which is a line at zero for nothing.
      if (!group.lines && req === 0) continue;
      group.lines ||= { req: [], p99: [] };
      push(group.lines.req, req);
      push(group.lines.p99, this.get(group, "p99"));
      group.calm = group.calm === undefined ? req : group.calm + (req - group.calm) * 0.3;
    }
    if (this.root) for (const [key, line] of Object.entries(this.rootHistory)) push(line, this.get(this.root, key));
  },

  add([id, parentId, name, row]) {
    const parent = parentId === null ? null : this.groups.get(parentId);
    const path = parent ? (parent.path === "/" ? "" : parent.path) + "/" + name : "/";
    const group = { id, parent, name, path, depth: parent ? parent.depth + 1 : 0, kids: [], row, lines: null, search: path.toLowerCase() };
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

  get(group, key) { return group.row[this.at_[key]]; },
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
    // Requests are ordered by a moving average, so that two alike do not change places each second.
    const value = (g) => (key === "req" && g.calm !== undefined ? g.calm : this.get(g, key)) ?? -1;
    return (a, b) => (down ? value(b) - value(a) : value(a) - value(b)) || byName(a, b);
  },
};

function push(line, value) {
  line.push(value);
  if (line.length > SLOTS) line.shift();
}
