// One tenant: every metric, the shape of its latency, its limit, its past.

const CHARTS = [
  { key: "requests_per_s", label: "Requests/s", show: format.rate },
  { key: "hit_ratio", label: "Hits", show: format.percent, top: 1 },
  { key: "p99_ns", label: "p99", show: format.ns },
  { key: "cpu_cores", label: "CPU", show: format.percent },
  { key: "memory_bytes", label: "Memory", show: format.bytes, base: 1024 },
  { key: "evictions_per_s", label: "Evictions/s", show: format.rate },
];

const detail = {
  chart: CHARTS[0], doc: null, lost: null, asking: null, cross: null,

  start() {
    this.box = document.getElementById("detail");
    addEventListener("hashchange", () => this.follow());
    this.box.addEventListener("keydown", (event) => { if (event.key === "Escape") this.close(); });
  },

  // The selected tenant is in the address: it can be linked, and Back closes it.
  open(path, focus) {
    this.wantFocus = focus;
    const hash = "#" + encodeURI(path);
    if (location.hash === hash) this.follow(); else location.hash = hash;
  },

  close() {
    const path = model.selected;
    history.pushState(null, "", location.pathname);
    this.follow();
    const node = [...table.nodes.values()].find((n) => n.group.path === path);
    if (node) node.focus({ preventScroll: true });
  },

  follow() {
    let path = null;
    try { path = decodeURI(location.hash.slice(1)) || null; } catch { /* A hand-made address: nothing is selected. */ }
    if (path !== null && !path.startsWith("/")) path = null;
    const changed = path !== model.selected;
    model.selected = path;
    document.querySelector(".columns").classList.toggle("open", path !== null);
    this.box.hidden = path === null;
    if (changed) { this.doc = null; this.lost = null; this.cross = null; this.box.replaceChildren(); this.built = false; }
    if (path !== null) { this.refresh(); if (this.wantFocus) this.box.focus({ preventScroll: true }); }
    this.wantFocus = false;
    table.refresh(true);
  },

  async refresh() {
    const path = model.selected;
    if (path === null || this.asking === path) return;
    if (!model.byPath(path)) { this.gone(path); return; }
    this.asking = path;
    try {
      const answer = await fetch("/api/group?path=" + encodeURIComponent(path), { signal: AbortSignal.timeout(5000) });
      if (model.selected !== path) return;
      if (answer.ok) { this.doc = await answer.json(); if (model.selected === path) this.paint(); }
    } catch { /* The stream of events notices a lost server, and says so. */
    } finally { if (this.asking === path) this.asking = null; }
  },

  gone(path) {
    if (this.lost === path) return;
    this.lost = path;
    this.built = false;
    this.box.replaceChildren(this.header(path), el("p", { class: "lost", text: "This tenant does not exist, or no longer. What it counted is still in its parent's totals." }));
  },

  header(path) {
    const names = path.split("/").slice(1);
    const crumbs = el("p", { class: "crumbs" });
    const link = (label, to) => el("button", { type: "button", text: label, on: { click: () => this.open(to) } });
    if (path !== "/") {
      crumbs.append(link("All tenants", "/"));
      names.slice(0, -1).forEach((name, i) => crumbs.append(" / ", link(name, "/" + names.slice(0, i + 1).join("/"))));
    } else crumbs.append("The root of the tree");
    const close = el("button", { class: "icon close", type: "button", title: "Close (Esc)", "aria-label": "Close", on: { click: () => this.close() } },
      svg("svg", { viewBox: "0 0 16 16" }, svg("path", { d: "m4 4 8 8M12 4l-8 8", "stroke-linecap": "round" })));
    return el("header", {}, el("div", {}, crumbs, el("h2", { text: path === "/" ? "All tenants" : names[names.length - 1] })), close);
  },

  build(doc) {
    const part = this.part = {};
    const section = (title, ...inner) => {
      const aside = el("span", { class: "aside" });
      return [el("section", {}, el("h3", {}, el("span", { text: title }), aside), ...inner), aside];
    };
    const facts = (className, names) => {
      const list = el("dl", { class: className });
      for (const [key, label] of names) {
        part[key] = el("dd");
        part[key].append(part[key].figure = figure());
        list.append(el("div", {}, el("dt", { text: label }), part[key]));
      }
      return list;
    };
    const figures = el("section", {}, facts("figures", [["req", "Requests/s"], ["hit", "Hits"], ["p99", "p99 latency"], ["cpu", "CPU"], ["in", "Received"], ["out", "Sent"]]));

    part.tabs = el("div", { class: "tabs", role: "tablist" });
    for (const chart of CHARTS) {
      part.tabs.append(el("button", { type: "button", role: "tab", text: chart.label, on: { click: () => { this.chart = chart; this.paint(); } } }));
    }
    part.chart = svg("svg", { class: "chart", role: "img" });
    part.chart.addEventListener("pointermove", (event) => this.point(event));
    part.chart.addEventListener("pointerleave", () => { this.cross = null; this.paintChart(); });
    const [past, pastAside] = section("Last two minutes", part.tabs, part.chart);
    part.pastAside = pastAside;

    part.histogram = svg("svg", { class: "histogram", role: "img" });
    part.legend = el("p", { class: "legend" }, el("span", {}, el("i"), "last second"), el("span", {}, el("i", { class: "all" }), "since the start"));
    const [latency, latencyAside] = section("Latency", part.histogram, part.legend,
      facts("quantiles", [["q50", "p50"], ["q90", "p90"], ["q99", "p99"], ["q999", "p99.9"]]));
    part.latencyAside = latencyAside;

    part.meter = meter();
    part.held = el("span");
    part.peak = el("span");
    const [memory, memoryAside] = section("Memory", part.meter, el("div", { class: "limit-line" }, part.held, part.peak));
    part.memoryAside = memoryAside;

    const body = part.metrics = el("tbody");
    const [all, allAside] = section("All metrics", el("table", { class: "all-metrics" },
      el("thead", {}, el("tr", {}, el("th", { text: "Metric", scope: "col" }), el("th", { text: "Total", scope: "col" }), el("th", { text: "Per second", scope: "col" }))), body));
    part.allAside = allAside;
    for (const metric of model.schema) {
      const total = el("td"), rate = el("td");
      body.append(el("tr", {}, el("td", {}, el("code", { text: metric.name }), el("span", { class: "help", text: metric.help })), total, rate));
      part["m:" + metric.name] = [total, rate];
    }
    this.lost = null;
    this.box.replaceChildren(this.header(doc.group.path), figures, past, memory, latency, all);
    this.built = true;
  },

  paint() {
    const doc = this.doc;
    if (!this.built) this.build(doc);
    const { part } = this;
    const row = doc.group.overview;
    part.req.figure.set(format.rate(row.requests_per_s));
    part.hit.figure.set(format.percent(row.hit_ratio));
    part.p99.figure.set(format.ns(row.p99_ns));
    part.cpu.figure.set(row.cpu_cores ? format.percent(row.cpu_cores) : ["0", "%"]);
    part.in.figure.set(format.byteRate(row.bytes_in_per_s));
    part.out.figure.set(format.byteRate(row.bytes_out_per_s));
    setText(part.allAside, doc.children ? `${doc.children} ${doc.children === 1 ? "child" : "children"} included` : "");
    this.paintChart();
    this.paintMemory(doc.group.values.memory, row);
    const latency = doc.group.values.latency;
    for (const [key, q] of [["q50", "p50"], ["q90", "p90"], ["q99", "p99"], ["q999", "p999"]]) part[key].figure.set(format.ns(latency && latency[q]));
    if (doc.histograms.latency) this.paintHistogram(doc.histograms.latency, latency);
    for (const metric of model.schema) this.paintMetric(metric, doc.group);
  },

  paintMetric(metric, group) {
    const [total, rate] = this.part["m:" + metric.name];
    const value = group.values[metric.name];
    const show = metric.unit === "bytes" ? format.bytes : metric.unit === "nanoseconds" ? format.ns : format.exact;
    const per = metric.unit === "bytes" ? format.byteRate : metric.unit === "nanoseconds" ? format.ns : format.rate;
    if (metric.kind === "histogram") setText(total, format.exact(value.count)[0]);
    else setText(total, format.text(show(metric.kind === "quota" ? value.current : value)));
    const r = group.rates[metric.name];
    setText(rate, r === undefined ? "" : format.text(per(r)));
    rate.className = r ? "" : "zero";
  },

  paintMemory(memory, row) {
    if (!memory) return;
    const { part } = this;
    const text = (n) => format.text(format.bytes(n));
    part.meter.set(memory.current, memory.limit, memory.peak || 1);
    setText(part.memoryAside, memory.limit === null ? "no limit of its own" : `limit ${text(memory.limit)}`);
    const share = memory.limit ? ` (${format.text(format.percent(memory.current / memory.limit))})` : "";
    setText(part.held, `${text(memory.current)} held${share}, peak ${text(memory.peak)}`);
    const evicts = row.evictions_per_s > 0 ? `${format.text(format.rate(row.evictions_per_s))} evictions/s` : "";
    const refused = memory.refused ? `${format.exact(memory.refused)[0]} refused` : "none refused";
    setText(part.peak, [evicts, refused].filter(Boolean).join(", "));
  },

  point(event) {
    const box = this.part.chart.getBoundingClientRect();
    const slots = this.doc.history.ago_s.length;
    this.cross = Math.round((event.clientX - box.left - 40) / (box.width - 44) * (slots - 1));
    this.paintChart();
  },

  paintChart() {
    const { part, chart, doc } = this;
    for (const [i, tab] of [...part.tabs.children].entries()) setAttr(tab, "aria-selected", String(CHARTS[i] === chart));
    const ago = doc.history.ago_s;
    let values = doc.history[chart.key];
    const memory = chart.key === "memory_bytes";
    // The server keeps no past of an idle tenant: what it holds has not changed.
    if (memory && values.every((v) => v === null)) values = values.map(() => doc.group.overview.memory_bytes);
    const limit = memory ? doc.group.overview.memory_limit_bytes : null;
    const [left, width, height] = [40, 356, 108];
    const { top, ticks } = scale(chart.top || Math.max(...values.map((v) => v || 0), limit || 0), chart.base);
    const nodes = [];
    for (const tick of ticks) {
      const y = (4 + height - tick / top * height).toFixed(1);
      nodes.push(svg("line", { class: "grid", x1: left, x2: left + width, y1: y, y2: y }));
      nodes.push(svg("text", { x: left - 6, y: +y + 3.5, "text-anchor": "end", text: format.tick(chart.show(tick)) }));
    }
    const span = ago.length ? ago[0] : 0;
    for (const [at, anchor] of [[0, "start"], [0.5, "middle"], [1, "end"]]) {
      const seconds = Math.round(span * (1 - at));
      nodes.push(svg("text", { x: left + at * width, y: 128, "text-anchor": anchor, text: at === 1 ? "now" : `−${NBSP}${seconds}${NBSP}s` }));
    }
    const [line, area] = paths(values, width, height, top, Math.max(2, values.length));
    const plot = svg("g", { transform: `translate(${left} 4)` }, svg("path", { class: "area", d: area }), svg("path", { class: "line", d: line }));
    if (limit) { const y = (height - limit / top * height).toFixed(1); plot.append(svg("line", { class: "limit", x1: 0, x2: width, y1: y, y2: y })); }
    const at = this.cross === null ? null : Math.max(0, Math.min(values.length - 1, this.cross));
    if (at !== null && values.length > 1) {
      const x = at / (values.length - 1) * width;
      plot.append(svg("line", { class: "cross", x1: x, x2: x, y1: 0, y2: height }));
      if (values[at] !== null) plot.append(svg("circle", { class: "dot", r: 4, cx: x, cy: height - Math.min(1, values[at] / top) * height }));
      setText(part.pastAside, `${format.text(chart.show(values[at]))}, ${Math.round(ago[at])}${NBSP}s ago`);
    } else setText(part.pastAside, "");
    part.chart.setAttribute("viewBox", "0 0 400 132");
    part.chart.setAttribute("aria-label", `${chart.label} over the last ${Math.round(span)} seconds`);
    part.chart.replaceChildren(...nodes, plot);
  },

  paintHistogram({ upper, total, recent }, quantiles) {
    const { part } = this;
    const used = total.map((n, i) => n ? i : -1).filter((i) => i >= 0);
    const sum = (counts) => counts.reduce((a, b) => a + b, 0);
    setText(part.latencyAside, `${format.text(format.count(sum(recent)))} in the last second, ${format.text(format.count(sum(total)))} in all`);
    part.histogram.setAttribute("viewBox", "0 0 400 118");
    part.histogram.setAttribute("aria-label", "Distribution of latency");
    if (!used.length) {
      part.histogram.replaceChildren(svg("text", { x: 200, y: 56, "text-anchor": "middle", text: "Nothing was answered yet" }));
      return;
    }
    // A margin of two octaves at most, so that a lone bucket is not as wide as the box.
    const first = Math.max(0, used[0] - 2), last = Math.min(upper.length - 1, Math.max(used[used.length - 1] + 2, first + 15));
    const slots = last - first + 1, step = 400 / slots, height = 92;
    const [all, now] = [Math.max(...total) || 1, Math.max(...recent) || 1];
    const nodes = [];
    for (let i = first; i <= last; i++) {
      const x = (i - first) * step;
      const bar = (n, most, className) => {
        const h = n ? Math.max(1.5, n / most * (height - 14)) : 0;
        return svg("rect", { class: className, x: (x + step * 0.08).toFixed(2), width: (step * 0.84).toFixed(2), y: (height - h).toFixed(2), height: h.toFixed(2), rx: Math.min(2, step * 0.2).toFixed(2) });
      };
      nodes.push(bar(total[i], all, "all"), bar(recent[i], now, "now"));
    }
    // Decades, not the buckets' own bounds: "1 ms" is read at a glance, "1.05 ms" is not.
    let free = 24;
    for (let ns = 1; ns < 1e12; ns *= 10) {
      const i = upper.findIndex((u) => u === null || u >= ns);
      if (i < first || i > last || !upper[i]) continue;
      const low = i ? upper[i - 1] : upper[i] / 2;
      const x = (i - first + Math.log(ns / low) / Math.log(upper[i] / low)) * step;
      if (x < free || x > 376) continue;
      nodes.push(svg("text", { x: x.toFixed(1), y: 111, "text-anchor": "middle", text: format.tick(format.ns(ns)) }));
      free = x + 56;
    }
    if (quantiles && quantiles.p99) {
      const i = upper.findIndex((u) => u !== null && quantiles.p99 < u);
      if (i >= first && i <= last) {
        const x = ((i - first + 0.5) * step).toFixed(1), right = x > 300;
        nodes.push(svg("line", { class: "mark-line", x1: x, x2: x, y1: 2, y2: height }));
        nodes.push(svg("text", { class: "mark-text", x: +x + (right ? -5 : 5), y: 10, "text-anchor": right ? "end" : "start", text: "p99 since the start" }));
      }
    }
    for (let i = first; i <= last; i++) {
      const hit = svg("rect", { class: "hit-area", x: (i - first) * step, width: step, y: 0, height });
      const range = `${i ? format.text(format.ns(upper[i - 1])) : "0"} to ${upper[i] === null ? "∞" : format.text(format.ns(upper[i]))}`;
      hit.append(svg("title", { text: `${range}: ${recent[i]} in the last second, ${total[i]} in all` }));
      nodes.push(hit);
    }
    part.histogram.replaceChildren(...nodes);
  },
};
