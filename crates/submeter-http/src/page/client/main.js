// Connection, tiles, and the rest of the page's furniture.

const tiles = {
  all: null,

  start() {
    const box = document.getElementById("tiles");
    this.all = model.headlines.map((view) => {
      const tile = { view, figure: figure("figure"), note: el("span", { class: "note" }), line: sparkline(view.shape === "time" ? "second" : ""), cross: el("i", { class: "cross" }) };
      const node = el("div", { class: "tile", title: view.help }, el("h2", { text: view.title }), tile.note, tile.figure, tile.line, tile.cross);
      moment.watch(node);
      box.append(node);
      return tile;
    });
  },

  // Its limit, or else its range.
  note(view, past) {
    const limit = view.limit && model.get(model.root, view.limit);
    if (typeof limit === "number") return "of " + format.text(view.as.show(limit));
    if (view.shape === "cores") return `of ${model.server.cpus * 100}${NBSP}%`;
    const known = past.filter((v) => typeof v === "number");
    const [least, most] = known.length ? [Math.min(...known), Math.max(...known)].map((v) => format.text(view.as.show(v))) : ["", ""];
    return least === most ? "" : `${least} – ${most}`;
  },

  paint() {
    if (!model.root) return;
    if (!this.all) this.start();
    for (const { view, figure, note, line, cross } of this.all) {
      const past = model.seconds(model.rootHistory[view.key]);
      figure.set(view.as.show(moment.ago === null ? model.get(model.root, view) : past[moment.slot()]));
      setText(note, this.note(view, past));
      cross.hidden = moment.ago === null;
      cross.style.left = (100 * moment.slot() / (SLOTS - 1)).toFixed(2) + "%";
      const limit = view.limit && model.get(model.root, view.limit);
      line.draw(past, SLOTS, view.as.floor, view.as.top || limit);
    }
    this.title();
  },

  // A figure only while it is that of now: of a tab in the background nothing else is seen.
  title() {
    const [first] = model.headlines, value = first && model.root && model.get(model.root, first);
    const text = link.was === "lost" || link.was === "paused" ? link.said() : value ? `${format.text(first.as.show(value))} ${first.title}` : "";
    document.title = text ? plain(`${text} · submeter`) : "submeter";
  },
};

const link = {
  source: null, last: 0, was: "connecting", isPaused: false,

  // The page stays as it is: the server still knows the last two minutes when the page continues.
  pause() {
    this.isPaused = !this.isPaused;
    const button = document.getElementById("pause");
    setAttr(button, "aria-pressed", String(this.isPaused));
    setAttr(button, "title", this.isPaused ? "Resume (p)" : "Pause (p)");
    if (this.isPaused) { this.source.close(); this.state("paused"); } else this.open();
  },

  open() {
    if (this.source) this.source.close();
    this.opened = Date.now();
    const source = this.source = new EventSource(BASE + "api/events");
    const take = (f) => (event) => { if (source === this.source && !this.isPaused) { this.last = Date.now(); f(JSON.parse(event.data)); this.state("live"); } };
    source.addEventListener("full", take((doc) => {
      model.full(doc);
      table.columns();
      setText(document.getElementById("where"), doc.server.listen);
      panels.paint(doc.panels);
      painter.all(true);
      detail.follow();
    }));
    source.addEventListener("rows", take((rows) => model.ahead.push(rows)));
    source.addEventListener("tick", take((doc) => {
      const structure = doc.new.length + doc.gone.length > 0;
      model.tick(doc);
      panels.paint(doc.panels);
      painter.ask(structure);
      detail.refresh();
    }));
    source.addEventListener("error", () => { if (source === this.source && !this.isPaused) this.state(this.last ? "lost" : "connecting"); });
  },

  state(state) {
    this.was = state;
    setAttr(document.getElementById("state"), "data-state", state);
    setText(document.getElementById("state-text"), this.said());
    tiles.title();
    document.getElementById("main").classList.toggle("stale", state === "lost");
    this.notice();
  },

  said() { return { live: "live", paused: "paused", lost: "connection lost, retrying", connecting: "connecting" }[this.was]; },

  notice() {
    const box = document.getElementById("notice");
    const isLost = this.was === "lost";
    const text = isLost ? "The server does not answer. Retrying." : model.server && model.server.notice || "";
    // What is announced at once must not change each second.
    setText(document.getElementById("notice-text"), text);
    setText(document.getElementById("notice-age"), isLost ? `Its figures are from ${duration(Date.now() - this.last)} ago.` : "");
    box.hidden = !text;
  },

  // Notices what the browser does not: a server that is connected but silent.
  watch() {
    if (this.isPaused) return;
    const now = Date.now();
    if (this.was === "live" && now - this.last > 5000) this.state("lost");
    if (this.was === "lost") this.notice();
    const stuck = this.was !== "live" && now - this.opened > 12000;
    if (this.source.readyState === EventSource.CLOSED ? now - this.opened > 2000 : stuck) this.open();
  },
};

// What a message changes is painted in parts, one between two frames: with ten thousand tenants all
// of it took so long that frames were missed. A tab in the background has no frames: its parts stay
// due until it is seen. Only the first message of a connection is painted at once.
const painter = {
  structure: false, due: new Set(), isAsked: false,

  // A row shows the mark that the news give it, and the colour of its tenant in the band.
  parts: [
    () => { tiles.paint(); news.paint(); if (model.server) setText(document.getElementById("uptime"), `up ${duration(model.at - model.server.started_ms)}`); },
    () => band.paint(),
    () => { const { structure } = painter; painter.structure = false; table.refresh(structure); },
  ],

  // Parts that are still due keep their place before the others.
  ask(structure) {
    this.structure ||= structure;
    for (const part of this.parts) this.due.add(part);
    this.next();
  },

  next() {
    if (this.isAsked || !this.due.size) return;
    this.isAsked = true;
    // After the frame, whose own work is not to wait for it.
    requestAnimationFrame(() => setTimeout(() => {
      this.isAsked = false;
      const [part] = this.due;
      if (part) { this.due.delete(part); part(); }
      this.next();
    }));
  },

  all(structure) {
    this.structure ||= structure;
    this.due.clear();
    for (const part of this.parts) part();
  },
};

function clearFilter() {
  const input = document.getElementById("filter");
  input.value = "";
  input.dispatchEvent(new Event("input"));
  input.focus();
}

const theme = {
  names: ["auto", "light", "dark"],
  // Without storage (a private window, a file) the choice lasts as long as the page.
  read() { try { return localStorage.getItem("submeter-theme") || "auto"; } catch { return "auto"; } },
  write(name) { try { localStorage.setItem("submeter-theme", name); } catch { /* see read */ } },
  now: "auto",
  set(name) {
    this.now = this.names.includes(name) ? name : "auto";
    setAttr(document.documentElement, "data-theme", this.now === "auto" ? null : this.now);
    const label = `Colours: ${this.now === "auto" ? "system" : this.now}`;
    const button = document.getElementById("theme");
    setAttr(button, "title", label);
    setAttr(button, "aria-label", label);
  },
  next() {
    const name = this.names[(this.names.indexOf(this.now) + 1) % this.names.length];
    this.write(name);
    this.set(name);
  },
};

theme.set(theme.read());
document.getElementById("pause").addEventListener("click", () => link.pause());
document.getElementById("theme").addEventListener("click", () => theme.next());
table.start();
detail.start();
document.getElementById("filter").addEventListener("input", (event) => {
  model.filter = event.target.value.trim().toLowerCase();
  table.refresh(true);
  // Announced here alone: tenants come and go.
  setText(document.getElementById("found"), document.getElementById("count").textContent);
});
document.getElementById("expand").addEventListener("click", () => { model.foldAll(false); table.refresh(true); });
document.getElementById("collapse").addEventListener("click", () => { model.foldAll(true); table.refresh(true); });
addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    document.getElementById("filter").focus();
  } else if (!typing && !event.ctrlKey && !event.metaKey && !event.altKey && (event.key === "p" || event.key === " " && event.target === document.body)) {
    event.preventDefault();
    link.pause();
  } else if (event.key === "Escape" && typing && typing.id === "filter") {
    if (typing.value) clearFilter(); else table.move(0);
  } else if (event.key === "ArrowDown" && typing && typing.id === "filter") {
    event.preventDefault();
    table.move(0);
  } else if (event.key === "Escape" && model.selected !== null) {
    detail.close();
  }
});
link.open();
setInterval(() => link.watch(), 1000);
