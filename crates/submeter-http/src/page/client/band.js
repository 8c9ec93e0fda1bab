// Who had the server: two minutes of each tenant's part of it, one above the other.

// How many tenants have a colour of their own; the others share one.
const BANDS = 8;

const NOBODY = "the page, the network, the program's own housekeeping";

const band = {
  // Tenants with a colour, in its order: a tenant keeps its colour, and its place in the pile.
  tenants: Array(BANDS).fill(null), parts: null,

  start() {
    this.plot = svg("svg", { viewBox: `0 0 ${SLOTS - 1} 100`, preserveAspectRatio: "none", "aria-hidden": "true" });
    this.cross = el("i", { class: "cross" });
    this.marks = el("div", { class: "marks" });
    this.top = el("span", { class: "top-value", "aria-hidden": "true" });
    this.aside = el("span", { class: "aside" });
    this.legend = el("ul", { class: "legend-list" });
    this.slider = el("div", { class: "plot", role: "slider", tabindex: 0, "aria-label": "Moment of the last two minutes", "aria-valuemin": 1 - SLOTS, "aria-valuemax": 0 },
      this.plot, this.top, this.marks, this.cross);
    moment.watch(this.slider);
    this.slider.addEventListener("keydown", (event) => moment.key(event));
    const axis = el("p", { class: "axis", "aria-hidden": "true" }, ...["−2 min", "−1 min", "now"].map((text) => el("span", { text })));
    this.why = el("p", { class: "why", role: "status", hidden: "" });
    this.box.append(el("h2", {}, el("span", { text: "Who had the server" }), this.aside), el("div", { class: "both" }, el("div", {}, this.slider, axis), this.legend), this.why);
    // The last two are the other tenants, and time that belongs to none.
    this.parts = [...this.tenants.map((_, i) => `c${i}`), "others", "nobody"].map((name) => {
      const path = svg("path", { class: name });
      this.plot.append(path);
      const figures = figure("figure");
      const label = el("bdi", { class: "label", dir: "ltr" });
      const button = el("button", { type: "button", on: { click: () => part.group ? detail.open(part.group.path, true) : this.explain() } }, el("i", { class: name }), label, figures);
      const item = el("li", { hidden: "" }, button);
      this.legend.append(item);
      const part = { path, item, button, label, figures, group: null };
      return part;
    });
    setAttr(this.parts[BANDS + 1].button, "aria-expanded", "false");
  },

  // Explains the time that belongs to no tenant, and names the alert about it.
  explain() {
    this.why.hidden = !this.why.hidden;
    setAttr(this.parts[BANDS + 1].button, "aria-expanded", String(!this.why.hidden));
  },

  // A newcomer must have a fifth more than the tenant it replaces, or two similar ones would take turns.
  choose() {
    // After a pause the same tenants are different objects.
    const now = (group) => { const known = group && model.groups.get(group.id); return known && known.path === group.path ? known : null; };
    this.tenants = this.tenants.map(now);
    // The greatest so far: sorting ten thousand took a fourth of the time of a message.
    const known = new Set(this.tenants), most = [];
    for (const group of model.groups.values()) {
      const rank = group.sum * (known.has(group) ? 1.2 : 1);
      if (!(group.sum > 1e-9) || !model.isTenant(group) || most.length === BANDS && rank <= most[BANDS - 1].rank) continue;
      const at = most.findIndex((one) => rank > one.rank);
      most.splice(at < 0 ? most.length : at, 0, { group, rank });
      if (most.length > BANDS) most.pop();
    }
    const chosen = new Set(most.map(({ group }) => group));
    this.tenants = this.tenants.map((group) => chosen.delete(group) ? group : null);
    for (const group of chosen) this.tenants[this.tenants.indexOf(null)] = group;
  },

  paint() {
    const view = model.divided;
    this.box ||= document.getElementById("band");
    this.box.hidden = !view || !model.tenants();
    if (this.box.hidden) return;
    if (!this.parts) this.start();
    this.choose();
    const root = model.seconds(model.rootHistory[view.key], 0), whole = model.seconds(model.process, 0);
    const lines = this.tenants.map((group) => group ? model.seconds(group.line, 0) : null);
    // The server rounds each figure: less than the sum of what that leaves is nobody's.
    const rounding = view.as.step * (BANDS + 1) / 2;
    const rest = root.map((all, at) => {
      const left = all - lines.reduce((sum, line) => sum + (line ? line[at] : 0), 0);
      return left > rounding ? left : 0;
    });
    const nobody = view.shape === "cores" ? whole.map((all, at) => Math.max(0, all - root[at])) : null;
    const most = root.reduce((most, all, at) => Math.max(most, all + (nobody ? nobody[at] : 0)), 0);
    const all = view.shape === "cores" ? model.server.cpus : 0;
    // Against the whole machine, unless only a tiny part of it is used; slightly more than all comes
    // from a late sample.
    this.most = most * 2 > all && most <= all * 1.1 ? all : scale(most || 1).top;
    let below = Array(SLOTS).fill(0);
    this.values = [...lines, rest, nobody];
    this.values.forEach((line, i) => {
      if (!line || !line.some(Boolean)) { setAttr(this.parts[i].path, "d", ""); return; }
      const above = below.map((sum, at) => sum + line[at]);
      setAttr(this.parts[i].path, "d", area(below, above, this.most));
      below = above;
    });
    setText(this.top, format.tick(view.as.show(this.most)));
    // The alert's condition, over the time shown.
    const sum = (line) => line.reduce((sum, one) => sum + one, 0);
    this.isMuch = nobody !== null && sum(nobody) * 2 > sum(whole) && sum(whole) > SLOTS / 2;
    setText(this.why, `${this.isMuch ? "More than half of the CPU time of these two minutes belongs" : "Some CPU time belongs"} to no tenant: ${NOBODY}. `
      + "If that is most of a busy process, threads are working outside of groups, and limits and bills miss their work: the alert SubmeterUnattributedCpu in monitoring/rules.yml reports it.");
    this.paintMarks();
    this.paintMoment();
  },

  // The times of verdicts, below the pile.
  paintMarks() {
    const all = [...model.verdicts, ...model.earlier.filter((past) => !model.verdicts.some((now) => now.since_ms === past.since_ms && now.group === past.group))];
    const part = (ms) => Math.max(0, Math.min(1, 1 - (model.at - ms) / 1000 / (SLOTS - 1)));
    const shown = all.filter(({ ended_ms }) => ended_ms === undefined || part(ended_ms) > 0);
    while (this.marks.children.length > shown.length) this.marks.lastChild.remove();
    shown.forEach((verdict, i) => {
      if (!this.marks.children[i]) this.marks.append(el("i"));
      const mark = this.marks.children[i], from = part(verdict.since_ms), to = verdict.ended_ms === undefined ? 1 : part(verdict.ended_ms);
      mark.className = BLAME.includes(verdict.kind) ? "blame" : "";
      mark.style.left = (100 * from).toFixed(2) + "%";
      mark.style.width = (100 * Math.max(0.004, to - from)).toFixed(2) + "%";
    });
  },

  // The figures of the moment under the pointer.
  paintMoment() {
    if (!this.parts || this.box.hidden || !this.values) return;
    const view = model.divided, at = moment.slot();
    this.cross.hidden = moment.ago === null;
    this.cross.style.left = (100 * at / (SLOTS - 1)).toFixed(2) + "%";
    // Parts of the whole pile, so that they can be compared with each other.
    const sum = this.values.reduce((sum, line) => sum + (line ? line[at] : 0), 0);
    const said = [];
    this.parts.forEach((part, i) => {
      const line = this.values[i], group = this.tenants[i] || null;
      part.item.hidden = !line || !line.some(Boolean);
      if (part.item.hidden) return;
      part.group = group;
      const name = i < BANDS ? visible(group.path) : i === BANDS ? "other tenants" : "no tenant";
      setText(part.label, name);
      setAttr(part.button, "title", i < BANDS ? group.title : i === BANDS ? null : `CPU time of the process that belongs to no tenant: ${NOBODY}`);
      part.button.disabled = i === BANDS;
      part.figures.classList.toggle("hot", i > BANDS && this.isMuch);
      part.figures.set(format.percent(sum ? line[at] / sum : 0));
      if (line[at]) said.push(`${name} ${format.text(format.percent(line[at] / sum))}`);
    });
    const [whose, of] = view.shape === "cores" ? ["process ", ` of ${model.server.cpus * 100}${NBSP}%`] : ["", ""];
    setText(this.aside, `${moment.said()}${whose}${view.title} ${format.text(view.as.show(sum))}${of}`);
    setAttr(this.slider, "aria-valuenow", -(moment.ago || 0));
    setAttr(this.slider, "aria-valuetext", `${moment.ago ? `${moment.ago} seconds ago` : "now"}: ${said.join(", ") || "nobody"}`);
  },

  colour(group) {
    const at = this.tenants.indexOf(group);
    return at < 0 ? "" : `c${at}`;
  },
};

// The shape between two lines.
function area(below, above, most) {
  const y = (value) => (100 - Math.min(1, value / most) * 100).toFixed(1);
  const there = above.map((value, x) => `${x} ${y(value)}`).join("L");
  const back = below.map((value, x) => `${x} ${y(value)}`).reverse().join("L");
  return `M${there}L${back}Z`;
}

// The moment that all lines show while the pointer is on one.
const moment = {
  // Seconds before the newest sample, or null: now.
  ago: null,

  slot() { return SLOTS - 1 - (this.ago || 0); },
  said() { return this.ago === null ? "" : `${this.ago}${NBSP}s ago: `; },

  set(ago) {
    ago = ago === null ? null : Math.max(0, Math.min(SLOTS - 1, Math.round(ago)));
    if (this.ago === ago) return;
    this.ago = ago;
    band.paintMoment();
    tiles.paint();
    if (detail.built && detail.chart && detail.doc) detail.paintChart();
  },

  // Follows the pointer: `left` and `right` are the margins beside the line, in its units.
  watch(node, left = 0, right = 0, width = 1) {
    node.addEventListener("pointermove", (event) => {
      const box = node.getBoundingClientRect();
      const at = ((event.clientX - box.left) / box.width * width - left) / (width - left - right);
      this.set((1 - at) * (SLOTS - 1));
    });
    node.addEventListener("pointerleave", () => this.set(null));
  },

  key(event) {
    const by = { ArrowLeft: 1, ArrowDown: 1, ArrowRight: -1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: SLOTS, End: -SLOTS }[event.key];
    if (event.key === "Escape" && this.ago !== null) this.set(null);
    else if (by) this.set((this.ago || 0) + by);
    else return;
    event.preventDefault();
    event.stopPropagation();
  },
};
