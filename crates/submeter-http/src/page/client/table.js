// The tree: only the rows in view are in the document, so that ten thousand tenants cost what forty do.

// Characters of the second line on a phone.
const SUB_MOST = 44;

// A little longer than rows take to their new places.
const GLIDE_MS = 360;

const table = {
  // `seen`: ids of the groups whose rows are in view, or nearly.
  rows: [], nodes: new Map(), seen: new Set(), focus: null, hoverUntil: 0, structure: true,

  start() {
    this.box = document.getElementById("rows");
    this.grid = document.getElementById("table");
    this.emptyBox = document.getElementById("empty");
    this.sheet = el("style");
    document.head.append(this.sheet);
    document.getElementById("sort-select").addEventListener("change", (event) => this.sortBy(event.target.value, event.target.value !== "name"));
    this.box.addEventListener("click", (event) => this.clicked(event));
    this.box.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") this.hoverUntil = Date.now() + 2500; });
    this.box.addEventListener("pointerleave", () => { this.hoverUntil = 0; });
    this.grid.addEventListener("keydown", (event) => this.key(event));
    addEventListener("scroll", () => this.paint(false, true), { passive: true });
    addEventListener("resize", () => this.paint());
    // The detail takes a part of the width, and the browser's window another.
    new ResizeObserver(() => this.fit()).observe(this.grid);
  },

  // Makes the heads of the columns, once the columns are known.
  columns() {
    const head = document.getElementById("head");
    const select = document.getElementById("sort-select");
    if (head.children.length) return;
    const name = { key: "name", title: "Tenant", help: "Path of the group; figures include everything below it" };
    for (const [i, column] of [name, ...model.columns].entries()) {
      const button = el("button", { type: "button", title: column.help, on: { click: () => this.sortBy(column.key) } },
        el("span", { class: "arrow", "aria-hidden": "true" }), el("span", { text: column.title }));
      head.append(el("div", { class: i ? `num v${i - 1}${column.of ? " by" : ""}` : "c-name", role: "columnheader", "data-key": column.key }, button));
      select.append(el("option", { value: column.key, text: column.title }));
    }
    this.showSort();
    this.fit();
  },

  // Shows the columns that fit: later ones are dropped first, and refusals last but for the one that
  // rows are sorted by. A phone shows the first, and the others below the name.
  fit() {
    if (!model.views) return;
    const gap = 18, name = 230;
    const wide = (column) => Math.max(column.as.width, 48 + column.title.length * 7) + (column.bound ? 70 : 0);
    const { columns } = model;
    const phone = matchMedia("(max-width: 720px)").matches;
    // The column that explains the order of the rows comes before all others but the first.
    const rank = (column) => column === columns[0] ? 0 : column.key === model.sort.key ? 1 : column.of ? 2 : 3;
    const ranked = columns.slice().sort((a, b) => rank(a) - rank(b));
    let room = this.grid.clientWidth - 26 - name;
    const last = ranked.findIndex((column, i) => i > 0 && phone || (room -= gap + wide(column)) < 0 && i > 0);
    const fitting = new Set(last < 0 ? ranked : ranked.slice(0, last));
    const shown = columns.map((column) => fitting.has(column));
    columns.forEach((column, i) => { for (const cell of this.grid.querySelectorAll(`.v${i}`)) cell.classList.toggle("bound-column", Boolean(column.bound)); });
    const off = shown.map((is, i) => is ? "" : `.v${i}`).filter(Boolean).join(",");
    const tracks = columns.filter((_, i) => shown[i]).map((column) => wide(column) + "px").join(" ");
    setText(this.sheet, (phone ? "" : `.head, .r { grid-template-columns: minmax(0, 1fr) ${tracks}; }`) + (off ? `${off} { display: none; }` : ""));
  },

  sortBy(key, down) {
    const sort = model.sort;
    model.sort = { key, down: down !== undefined ? down : sort.key === key ? !sort.down : key !== "name" };
    this.showSort();
    this.fit();
    this.hoverUntil = 0;
    this.refresh(true);
  },

  showSort() {
    const { key, down } = model.sort;
    document.getElementById("sort-select").value = key;
    for (const cell of document.getElementById("head").children) {
      const active = cell.dataset.key === key;
      setAttr(cell, "aria-sort", active ? (down ? "descending" : "ascending") : "none");
      const held = model.isHeld || Date.now() < this.hoverUntil;
      setText(cell.querySelector(".arrow"), active ? (down ? (held ? "▽" : "▼") : held ? "△" : "▲") : "");
      setAttr(cell.querySelector(".arrow"), "title", active && held ? "Rows swap only if one is a fifth larger, and never under the pointer" : null);
    }
  },

  // `structure`: rows came, went, opened or closed, so order is due even under the pointer.
  refresh(structure) {
    const still = !structure && !this.structure && Date.now() < this.hoverUntil;
    if (!still) this.rows = model.rows();
    else this.rows = this.rows.filter((group) => model.groups.get(group.id) === group);
    this.showSort();
    const bound = model.columns.map((column) => column.bound).join();
    if (this.bound !== bound) { this.bound = bound; this.fit(); }
    this.structure = false;
    const all = model.tenants();
    const filtered = model.filter !== "";
    const shown = () => this.rows.filter((group) => model.isTenant(group) && model.matches(group)).length;
    setText(document.getElementById("count"), filtered ? `${format.exact(shown())[0]} of ${format.exact(all)[0]}` : all === 1 ? "1 tenant" : `${format.exact(all)[0]} tenants`);
    this.empty(all <= 0, filtered && !this.rows.length);
    this.paint(!structure);
  },

  empty(none, unmatched) {
    this.emptyBox.hidden = !none && !unmatched;
    for (const id of ["head", "keys"]) document.getElementById(id).hidden = none || unmatched;
    if (none) this.rows = [];
    const kind = none ? "none" : unmatched ? "unmatched" : "";
    const said = kind + (kind === "unmatched" ? model.filter : "");
    if (this.said === said) return;
    this.said = said;
    this.emptyBox.replaceChildren();
    if (none) {
      this.emptyBox.append(el("h2", { text: "No tenants yet" }));
      const steps = model.server.first_steps;
      if (steps) this.emptyBox.append(el("p", { text: steps.text }), el("pre", { tabindex: 0, text: steps.command }));
    } else if (unmatched) {
      this.emptyBox.append(
        el("h2", { text: "Nothing matches" }),
        el("p", {}, "No tenant's path contains “", el("bdi", { text: model.filter }), "”."),
        el("button", { class: "quiet", type: "button", text: "Clear the filter", on: { click: clearFilter } }));
    }
  },

  rowHeight() { return parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row")) || 38; },

  // `isScrolled`: rows came into view, and those that were there say the same.
  paint(glide, isScrolled) {
    const height = this.rowHeight();
    const box = this.box.getBoundingClientRect();
    this.box.style.height = this.rows.length * height + "px";
    const first = Math.max(0, Math.floor(-box.top / height) - 4);
    const last = Math.min(this.rows.length, Math.ceil((innerHeight - box.top) / height) + 4);
    const calm = glide === true && first === this.first;
    this.first = first;
    this.box.classList.toggle("glide", calm);
    const seen = new Set();
    const place = (node, at) => {
      node.style.transform = `translateY(${at * height}px)`;
      setAttr(node, "aria-rowindex", at + 2);
    };
    for (let i = first; i < last; i++) {
      const group = this.rows[i];
      let node = this.nodes.get(group.id);
      if (node && node.group !== group) { node.remove(); node = null; }
      const isSame = node && isScrolled && this.seen.has(group.id);
      if (!node) {
        node = makeRow(group);
        this.nodes.set(group.id, node);
        this.box.append(node);
      }
      seen.add(group.id);
      if (isSame) continue;
      place(node, i);
      fillRow(node, group);
    }
    this.seen = seen;
    for (const [id, node] of this.nodes) {
      if (seen.has(id)) continue;
      // The focused row stays, or the keyboard would lose its place on scrolling.
      const at = node === document.activeElement && model.groups.get(id) === node.group ? this.rows.indexOf(node.group) : -1;
      if (at >= 0) { place(node, at); continue; }
      node.remove();
      this.nodes.delete(id);
    }
    setAttr(this.grid, "aria-rowcount", this.rows.length + 1);
    this.tabStop();
    // After the rows have glided, and nobody scrolls: a node that is moved stops at once.
    clearTimeout(this.arranging);
    this.arranging = setTimeout(() => {
      arrange(this.box, [...this.nodes.values()].sort((a, b) => a.getAttribute("aria-rowindex") - b.getAttribute("aria-rowindex")));
    }, GLIDE_MS);
  },

  // One row takes part in the tab order; the arrows move from there.
  tabStop() {
    if (!this.rows.includes(this.focus)) this.focus = this.rows[0] || null;
    for (const node of this.nodes.values()) setAttr(node, "tabindex", node.group === this.focus ? 0 : -1);
  },

  clicked(event) {
    const node = event.target.closest(".r");
    if (!node) return;
    this.focus = node.group;
    if (event.target.closest(".fold")) this.toggle(node.group);
    else detail.open(node.group.path);
    this.tabStop();
  },

  toggle(group) {
    if (!group.kids.length || model.filter) return;
    model.fold(group, !model.isFolded(group));
    this.refresh(true);
  },

  move(to) {
    const index = Math.max(0, Math.min(this.rows.length - 1, to));
    this.focus = this.rows[index];
    if (!this.focus) return;
    const height = this.rowHeight();
    const top = this.box.getBoundingClientRect().top + index * height;
    if (top < 60) scrollBy(0, top - 60);
    else if (top + height > innerHeight - 12) scrollBy(0, top + height - innerHeight + 12);
    this.paint();
    const node = this.nodes.get(this.focus.id);
    if (node) node.focus({ preventScroll: true });
  },

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !event.target.classList.contains("r")) return;
    const group = event.target.group;
    const at = this.rows.indexOf(group);
    const page = Math.max(1, Math.floor(innerHeight / this.rowHeight()) - 3);
    const open = group.kids.length && !model.isFolded(group);
    const act = {
      ArrowDown: () => this.move(at + 1), ArrowUp: () => this.move(at - 1),
      PageDown: () => this.move(at + page), PageUp: () => this.move(at - page),
      Home: () => this.move(0), End: () => this.move(this.rows.length - 1),
      ArrowRight: () => open || !group.kids.length ? this.move(at + 1) : this.toggle(group),
      ArrowLeft: () => open ? this.toggle(group) : group.parent && this.move(this.rows.indexOf(group.parent)),
      Enter: () => detail.open(group.path, true), " ": () => this.toggle(group),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  },
};

function makeRow(group) {
  const part = {
    fold: el("span", { class: "fold", "aria-hidden": "true" }, svg("svg", { viewBox: "0 0 10 10" }, svg("path", { d: "M3.5 1.8 6.8 5 3.5 8.2" }))),
    dot: el("i", { class: "dot", "aria-hidden": "true" }), label: el("bdi", { class: "label" }), mark: el("span", { class: "tag" }), kids: el("span", { class: "kids" }), sub: el("div", { class: "sub", "aria-hidden": "true" }),
  };
  part.cells = model.columns.map((view, i) => {
    const cell = { figure: figure() };
    const node = el("div", { class: `num v${i} s-${view.shape}`, role: "gridcell" });
    node.classList.toggle("bound-column", Boolean(view.bound));
    if (view.limit) {
      cell.of = el("span", { class: "of" });
      cell.meter = meter(view.is_trouble || view.shape === "rate");
      node.classList.add("limited");
      node.append(cell.figure, cell.of, cell.meter);
    } else if (view.of) {
      cell.by = el("span", { class: "by" });
      node.append(cell.figure, cell.by);
    } else node.append(cell.figure);
    cell.node = node;
    return cell;
  });
  const node = el("div", { class: "r", role: "row", "aria-level": group.depth + 1 },
    el("div", { class: "c-name", role: "rowheader" }, part.fold, part.dot, part.label, part.mark, part.kids), ...part.cells.map((cell) => cell.node), part.sub);
  node.group = group;
  node.cells = part;
  node.style.setProperty("--depth", Math.min(group.depth, 12));
  setAttr(node, "title", group.title);
  setText(part.label, group.parent ? visible(group.name) : "All tenants");
  return node;
}

function fillRow(node, group) {
  const part = node.cells;
  const parent = group.kids.length > 0;
  const folded = model.isFolded(group) && !model.filter;
  setAttr(node, "aria-expanded", parent ? String(!folded) : null);
  setAttr(node, "aria-selected", String(model.selected === group.path));
  node.classList.toggle("parent", parent);
  node.classList.toggle("context", model.filter !== "" && !(group.parent && model.matches(group)));
  setText(part.kids, parent && folded ? format.exact(group.kids.length)[0] : "");
  const mark = news.marks.get(group.id) || "";
  setText(part.mark, mark);
  for (const name of ["data-mark", "title"]) setAttr(part.mark, name, mark || null);
  part.dot.className = "dot " + band.colour(group);
  // On a phone, below the name: whatever is out of the ordinary, the use of each limit, that of the
  // first figure, which is beside the name, and the rest.
  const [hot, used, limits, rest] = [[], [], [], []];
  for (const [i, view] of model.columns.entries()) {
    const cell = part.cells[i];
    const value = model.get(group, view);
    const shown = view.as.show(value);
    cell.figure.set(shown);
    const isHot = view.is_trouble && !view.limit && value >= (view.is_pressure ? STALLED_PART : Number.MIN_VALUE);
    cell.figure.classList.toggle("hot", isHot);
    const by = view.of ? view.of.filter((one) => model.get(group, one)).map(reason).join(", ") : "";
    let text = view.shape === "bytes" ? format.text(shown) : `${view.of ? "refused" : view.title} ${format.text(shown)}`;
    if (view.of) { setText(cell.by, by); text = `${format.text(shown)}/s ${by}`; }
    let most = "";
    if (view.limit) {
      const limit = model.get(group, view.limit);
      if (limit !== null) most = format.text(view.as.show(limit));
      setText(cell.of, most && "of " + most);
      if (most && !i) limits.push("limit " + most);
      if (most && i && value) used.push(text + " of " + most);
      // Without a limit a bar would have a scale of its own.
      cell.meter.hidden = limit === null;
      if (limit !== null) cell.meter.set(value, limit);
    }
    // Zeros are left out.
    if (value && isHot) hot.unshift(text);
    else if (i && value && view.place === "headline" && !most) rest.push(text);
  }
  // Whole figures only.
  let text = "";
  for (const one of [...hot, ...used, ...limits, ...rest]) { if (text.length + one.length > SUB_MOST) break; text += (text && " · ") + one; }
  setText(part.sub, text);
}

// The subject of a view of refusals: its title without the unit.
function reason(view) { return view.title.replace(/\/s$/, "").toLowerCase(); }
