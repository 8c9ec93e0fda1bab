// One tenant: its views and their past, its quotas, the shape of its histograms, every metric.

const detail = {
  chart: null, doc: null, lost: null, asking: null, wanted: null, opener: null,

  start() {
    this.box = document.getElementById("detail");
    addEventListener("hashchange", () => this.follow());
    this.box.addEventListener("keydown", (event) => { if (event.key === "Escape") this.close(); });
    addEventListener("resize", () => this.cover());
    // Beside a detail that covers the page nothing else can be hit: that closes it. The click that
    // opened it was on something that it has since covered.
    addEventListener("click", (event) => {
      if (this.isCovering() && !event.composedPath().includes(this.box) && !event.target.closest("[inert]")) this.close();
    });
  },

  // The selected tenant is in the address: it can be linked, and Back closes it.
  open(path, focus) {
    this.wantFocus = focus;
    location.hash = "#" + encodeURI(path);
    // Now, not on the event: a sentence that leads here then sets its moment, which `follow` would reset.
    this.follow();
  },

  close() {
    history.pushState(null, "", location.pathname);
    this.follow();
  },

  // Whether it lies over the page, as on a phone, instead of beside the table.
  isCovering() { return !this.box.hidden && getComputedStyle(this.box).position === "fixed"; },

  // What it covers is out of reach; what is announced still is.
  cover() {
    const isCovering = this.isCovering();
    for (let node = this.box; node !== document.body; node = node.parentNode) {
      for (const other of node.parentNode.children) {
        if (other !== node && !other.matches("script, .notice, .heard")) other.inert = isCovering;
      }
    }
  },

  // Replaces what it shows. If that had the focus, it stays here.
  fill(...nodes) {
    const isIn = this.box.contains(document.activeElement);
    this.box.replaceChildren(...nodes);
    if (isIn) this.box.focus({ preventScroll: true });
  },

  // Where the focus goes when it closes: to what opened it, or to its row.
  leave(path) {
    const row = [...table.nodes.values()].find((node) => node.group.path === path);
    const isThere = (node) => node && node !== document.body && node.isConnected && node.checkVisibility();
    ([this.opener, row].find(isThere) || table.grid).focus({ preventScroll: true });
    this.opener = null;
  },

  follow() {
    let path = null;
    try { path = decodeURI(location.hash.slice(1)) || null; } catch { /* A hand-made address: nothing is selected. */ }
    if (path !== null && !path.startsWith("/")) path = null;
    const before = model.selected, changed = path !== before;
    const had = document.activeElement, wasHere = this.box.contains(had);
    if (before === null) this.opener = had;
    model.selected = path;
    document.querySelector(".columns").classList.toggle("open", path !== null);
    this.box.hidden = path === null;
    // When a chart is removed under the pointer, no leave event comes.
    if (changed) { this.doc = null; this.lost = null; this.fill(); this.built = false; moment.set(null); }
    this.cover();
    if (path !== null) { this.refresh(); if (this.wantFocus || changed && this.isCovering()) this.box.focus({ preventScroll: true }); }
    this.wantFocus = false;
    table.refresh(true);
    if (path === null && before !== null && (wasHere || had === document.body)) this.leave(before);
  },

  async refresh() {
    const path = model.selected;
    if (path === null || this.asking === path) return;
    if (!model.byPath(path)) { this.gone(path); return; }
    this.asking = path;
    try {
      const answer = await fetch(BASE + "api/group?path=" + encodeURIComponent(path), { signal: AbortSignal.timeout(5000) });
      if (model.selected !== path) return;
      if (answer.ok) { this.doc = await answer.json(); if (model.selected === path) this.paint(); }
    } catch { /* The stream of events notices a lost server, and says so. */
    } finally { if (this.asking === path) this.asking = null; }
  },

  gone(path) {
    if (this.lost === path) return;
    this.lost = path;
    this.built = false;
    this.fill(this.header(path), el("p", { class: "lost", text: "This tenant does not exist, or no longer exists. Until the program ends, its parent's totals keep its counts." }));
  },

  header(path) {
    const names = path.split("/").slice(1);
    const crumbs = el("p", { class: "crumbs" });
    const link = (label, to) => el("button", { type: "button", text: label, on: { click: () => this.open(to) } });
    if (path !== "/") {
      crumbs.append(link("All tenants", "/"));
      names.slice(0, -1).forEach((name, i) => crumbs.append(" / ", link(visible(name), "/" + names.slice(0, i + 1).join("/"))));
    } else crumbs.append("The root of the tree");
    const close = el("button", { class: "icon close", type: "button", title: "Close (Esc)", "aria-label": "Close", on: { click: () => this.close() } },
      svg("svg", { viewBox: "0 0 16 16" }, svg("path", { d: "m4 4 8 8M12 4l-8 8", "stroke-linecap": "round" })));
    return el("header", {}, el("div", {}, crumbs, el("h2", { text: path === "/" ? "All tenants" : visible(names[names.length - 1]) })), close);
  },

  build(doc) {
    const part = this.part = {};
    const section = (title, ...inner) => {
      const aside = el("span", { class: "aside" });
      return [el("section", {}, el("h3", {}, el("span", { text: title }), aside), ...inner), aside];
    };
    const facts = (className, names) => {
      const list = el("dl", { class: className });
      const figures = names.map((label) => {
        const one = figure();
        list.append(el("div", {}, el("dt", { text: label }), el("dd", {}, one)));
        return one;
      });
      return [list, figures];
    };
    this.chart ||= model.headlines[0] || null;
    part.views = model.views.filter((view) => view.place !== "nowhere");
    const [list, all] = facts("figures", part.views.map((view) => view.title));
    part.figures = all;
    const sections = [el("section", {}, list)];

    if (this.chart) {
      part.tabs = el("div", { class: "tabs", role: "tablist", "aria-label": "Figure of the chart" });
      for (const [i, view] of model.headlines.entries()) {
        part.tabs.append(el("button", { type: "button", role: "tab", id: `tab-${i}`, "aria-controls": "past", text: view.title, on: { click: () => { this.chart = view; this.paint(); } } }));
      }
      part.tabs.addEventListener("keydown", (event) => this.turn(event));
      part.chart = svg("svg", { class: "chart", role: "img" });
      part.panel = el("div", { id: "past", role: "tabpanel" }, part.chart);
      moment.watch(part.chart, 40, 4, 400);
      const [past, pastAside] = section("Last two minutes", part.tabs, part.panel);
      part.pastAside = pastAside;
      sections.push(past);
    }

    part.limits = model.views.filter((view) => view.limit).map((view) => {
      const one = { view, meter: meter(view.is_trouble || view.shape === "rate"), used: el("span") };
      one.box = el("div", {}, el("div", { class: "limit-line" }, el("span", { text: view.title }), one.used), one.meter);
      return one;
    });
    if (part.limits.length || model.server.limit_example) {
      const [limits, limitsAside] = section("Limits of its own", ...part.limits.map((one) => one.box));
      part.limitsAside = limitsAside;
      if (model.server.limit_example && doc.group.path !== "/") limits.append(part.form = limiter(doc.group.path));
      sections.push(limits);
    }

    const byKind = (kind) => model.schema.filter((metric) => metric.kind === kind);
    part.quotas = byKind("quota").map((metric) => {
      const one = { metric, meter: meter(), held: el("span"), refused: el("span"), waits: el("div", { class: "limit-line waits" }) };
      [one.box, one.aside] = section(titled(metric.name), one.meter, el("div", { class: "limit-line" }, one.held, one.refused), one.waits);
      sections.push(one.box);
      return one;
    });
    part.histograms = byKind("histogram").map((metric) => {
      const one = { metric, plot: svg("svg", { class: "histogram", role: "img" }) };
      const legend = el("p", { class: "legend" }, el("span", {}, el("i"), "last second"), el("span", {}, el("i", { class: "all" }), "since the start"));
      const [quantiles, figures] = facts("quantiles", ["p50", "p90", "p99", "p99.9"]);
      one.figures = figures;
      [one.box, one.aside] = section(titled(metric.name), one.plot, legend, quantiles);
      sections.push(one.box);
      return one;
    });

    const body = part.metrics = el("tbody");
    const [metrics, allAside] = section("All metrics", el("table", { class: "all-metrics" },
      el("thead", {}, el("tr", {}, el("th", { text: "Metric", scope: "col" }), el("th", { text: "Total", scope: "col" }), el("th", { text: "Per second", scope: "col" }))), body));
    part.allAside = allAside;
    for (const metric of model.schema) {
      const total = el("td"), rate = el("td");
      body.append(el("tr", {}, el("td", {}, el("code", { text: metric.name }), el("span", { class: "help", text: metric.help })), total, rate));
      part["m:" + metric.name] = [total, rate];
    }
    this.lost = null;
    this.fill(this.header(doc.group.path), ...sections, metrics);
    this.built = true;
    this.prefill();
  },

  // From one tab to another: all of them are one stop of the keyboard.
  turn(event) {
    const tabs = [...this.part.tabs.children], at = model.headlines.indexOf(this.chart);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const tab = tabs.at(to % tabs.length);
    tab.click();
    tab.focus();
  },

  // Opens a tenant at its limits, with the limit that would help.
  limit(path, remedy) {
    this.wanted = [path, remedy];
    this.open(path);
    if (this.built) this.prefill();
  },

  prefill() {
    if (!this.wanted || !this.part.form || this.wanted[0] !== model.selected) return;
    this.part.form.fill(this.wanted[1]);
    this.wanted = null;
  },

  paint() {
    const doc = this.doc;
    if (!this.built) this.build(doc);
    const { part } = this;
    part.views.forEach((view, i) => part.figures[i].set(view.as.show(doc.group.overview[view.key])));
    setText(part.allAside, doc.children ? `${doc.children} ${doc.children === 1 ? "child" : "children"} included` : "");
    if (this.chart) this.paintChart();
    let bound = 0;
    for (const { view, box, meter, used } of part.limits) {
      const [value, limit] = [view, view.limit].map(({ key }) => doc.group.overview[key]);
      box.hidden = limit === null;
      if (box.hidden) continue;
      bound++;
      meter.set(value, limit);
      setText(used, `${format.text(view.as.show(value))} of ${format.text(view.as.show(limit))}`);
    }
    if (part.limitsAside) setText(part.limitsAside, bound ? "" : "none");
    for (const quota of part.quotas) this.paintQuota(quota, doc.group.values[quota.metric.name]);
    for (const one of part.histograms) {
      const value = doc.group.values[one.metric.name];
      ["p50", "p90", "p99", "p999"].forEach((q, i) => one.figures[i].set(or(unitOf(one.metric).show)(value && value[q])));
      if (doc.histograms[one.metric.name]) this.paintHistogram(one, doc.histograms[one.metric.name], value);
    }
    for (const metric of model.schema) this.paintMetric(metric, doc.group);
  },

  paintMetric(metric, group) {
    const [total, rate] = this.part["m:" + metric.name];
    const value = group.values[metric.name];
    const { show, per } = unitOf(metric);
    if (metric.kind === "histogram") setText(total, format.exact(value.count)[0]);
    else setText(total, format.text(show(metric.kind === "quota" ? value.current : value)));
    const r = group.rates[metric.name];
    setText(rate, r === undefined ? "" : format.text(per(r)));
    rate.className = r ? "" : "zero";
  },

  paintQuota({ metric, box, aside, meter, held, refused, waits }, usage) {
    // A quota that the group never used and that does not bind it is left out.
    box.hidden = !usage || (!usage.peak && usage.limit === null && !usage.pressure);
    if (box.hidden) return;
    const text = (n) => format.text(unitOf(metric).show(n));
    meter.hidden = usage.limit === null;
    meter.set(usage.current, usage.limit);
    setText(aside, usage.limit === null ? "no limit of its own" : `${usage.soft ? "soft " : ""}limit ${text(usage.limit)}`);
    const share = usage.limit ? ` (${format.text(format.percent(usage.current / usage.limit))})` : "";
    setText(held, `${text(usage.current)} held${share}, peak ${text(usage.peak)}`);
    const number = (n) => format.exact(n)[0];
    const events = [[usage.refused, number, "refused"], [usage.overdrafts, number, "beyond the limit"], [usage.paused, number, "paused"],
      [usage.reclaimed, text, "reclaimed"], [usage.reclaimed_low, number, "times despite low"]].filter(([n]) => n);
    setText(refused, events.map(([n, show, what]) => `${show(n)} ${what}`).join(", ") || "none refused");
    // Like memory.pressure of a cgroup.
    const { some, full } = usage.pressure || {};
    const stall = (name, { avg10, avg60, total_us }) => `${name} ${avg10.toFixed(1)}${NBSP}% of 10${NBSP}s, ${avg60.toFixed(1)}${NBSP}% of a minute, ${format.text(format.ns(total_us * 1000))} in all`;
    const lines = some ? ["waited for room", stall("some", some), stall("full", full)] : [];
    while (waits.children.length > lines.length) waits.lastChild.remove();
    lines.forEach((line, i) => { if (!waits.children[i]) waits.append(el("span")); setText(waits.children[i], line); });
    waits.classList.toggle("hot", Boolean(some) && some.avg10 >= 100 * STALLED_PART);
  },

  paintChart() {
    const { part, chart, doc } = this;
    for (const [i, tab] of [...part.tabs.children].entries()) {
      const isShown = model.headlines[i] === chart;
      setAttr(tab, "aria-selected", String(isShown));
      setAttr(tab, "tabindex", isShown ? 0 : -1);
      if (isShown) setAttr(part.panel, "aria-labelledby", tab.id);
    }
    const ago = doc.history.ago_s;
    let values = doc.history.series[chart.key] || [];
    const level = chart.limit || ["bytes", "count"].includes(chart.shape);
    // The server keeps no past of an idle tenant: the amount held has not changed.
    if (level && values.every((v) => v === null)) values = values.map(() => doc.group.overview[chart.key]);
    const limit = chart.limit ? doc.group.overview[chart.limit.key] : null;
    const [left, width, height] = [40, 356, 108];
    const { top, ticks } = scale(chart.as.top || Math.max(...values.map((v) => v || 0), limit || 0), chart.as.base);
    const nodes = [];
    for (const tick of ticks) {
      const y = (4 + height - tick / top * height).toFixed(1);
      nodes.push(svg("line", { class: "grid", x1: left, x2: left + width, y1: y, y2: y }));
      nodes.push(svg("text", { x: left - 6, y: +y + 3.5, "text-anchor": "end", text: format.tick(chart.as.show(tick)) }));
    }
    const span = ago.length ? ago[0] : 0;
    for (const [at, anchor] of [[0, "start"], [0.5, "middle"], [1, "end"]]) {
      const seconds = Math.round(span * (1 - at));
      nodes.push(svg("text", { x: left + at * width, y: 128, "text-anchor": anchor, text: at === 1 ? "now" : `−${NBSP}${seconds}${NBSP}s` }));
    }
    const [line, area] = paths(values, width, height, top, Math.max(2, values.length));
    const plot = svg("g", { transform: `translate(${left} 4)` }, svg("path", { class: "area", d: area }), svg("path", { class: "line", d: line }));
    if (limit) { const y = (height - limit / top * height).toFixed(1); plot.append(svg("line", { class: "limit", x1: 0, x2: width, y1: y, y2: y })); }
    const at = moment.ago === null ? null : ago.reduce((best, s, i) => Math.abs(s - moment.ago) < Math.abs(ago[best] - moment.ago) ? i : best, 0);
    if (at !== null && values.length > 1) {
      const x = at / (values.length - 1) * width;
      plot.append(svg("line", { class: "cross", x1: x, x2: x, y1: 0, y2: height }));
      if (values[at] !== null) plot.append(svg("circle", { class: "dot", r: 4, cx: x, cy: height - Math.min(1, values[at] / top) * height }));
      setText(part.pastAside, `${format.text(chart.as.show(values[at]))}, ${Math.round(ago[at])}${NBSP}s ago`);
    } else setText(part.pastAside, "");
    part.chart.setAttribute("viewBox", "0 0 400 132");
    part.chart.setAttribute("aria-label", `${chart.title} over the last ${Math.round(span)} seconds`);
    part.chart.replaceChildren(...nodes, plot);
  },

  paintHistogram({ metric, plot, aside }, { upper, total, recent }, quantiles) {
    const { show } = unitOf(metric);
    const used = total.map((n, i) => n ? i : -1).filter((i) => i >= 0);
    const sum = (counts) => counts.reduce((a, b) => a + b, 0);
    setText(aside, `${format.text(format.count(sum(recent)))} in the last second, ${format.text(format.count(sum(total)))} in all`);
    plot.setAttribute("viewBox", "0 0 400 118");
    plot.setAttribute("aria-label", `Distribution of ${metric.name}`);
    if (!used.length) {
      plot.replaceChildren(svg("text", { x: 200, y: 56, "text-anchor": "middle", text: "Nothing recorded yet" }));
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
    for (let n = 1; n < 1e12; n *= 10) {
      const i = upper.findIndex((u) => u === null || u >= n);
      if (i < first || i > last || !upper[i]) continue;
      const low = i ? upper[i - 1] : upper[i] / 2;
      const x = (i - first + Math.log(n / low) / Math.log(upper[i] / low)) * step;
      if (x < free || x > 376) continue;
      nodes.push(svg("text", { x: x.toFixed(1), y: 111, "text-anchor": "middle", text: format.tick(show(n)) }));
      free = x + 56;
    }
    if (quantiles && quantiles.p99) {
      const i = upper.findIndex((u) => u !== null && quantiles.p99 <= u);
      if (i >= first && i <= last) {
        const x = ((i - first + 0.5) * step).toFixed(1), right = x > 300;
        nodes.push(svg("line", { class: "mark-line", x1: x, x2: x, y1: 2, y2: height }));
        nodes.push(svg("text", { class: "mark-text", x: +x + (right ? -5 : 5), y: 10, "text-anchor": right ? "end" : "start", text: "p99 since the start" }));
      }
    }
    for (let i = first; i <= last; i++) {
      const hit = svg("rect", { class: "hit-area", x: (i - first) * step, width: step, y: 0, height });
      const range = `${i ? format.text(show(upper[i - 1])) : "0"} to ${upper[i] === null ? "∞" : format.text(show(upper[i]))}`;
      hit.append(svg("title", { text: `${range}: ${recent[i]} in the last second, ${total[i]} in all` }));
      nodes.push(hit);
    }
    plot.replaceChildren(...nodes);
  },
};

// The form that limits a tenant: by a line for the program's file, by a command, or by a button.
function limiter(path) {
  const { limit_example, sets_limits } = model.server;
  const input = el("input", { type: "text", "aria-label": `Limits of ${visible(path)}`, placeholder: limit_example, autocomplete: "off", spellcheck: "false", maxlength: 200 });
  const said = el("p", { class: "said", role: "status" });
  const button = (text, click) => el("button", { type: "button", class: "quiet framed", text, on: { click } });
  const line = (limits) => `${inFile(path)} ${limits}`;
  const address = `${location.origin}${BASE}api/limit?path=${encodeURIComponent(path)}`;
  const command = (limits) => curl(address, limits, model.server.asks_token);
  // The example in the empty field is nobody's limit.
  const given = (then) => () => {
    const limits = input.value.trim();
    if (limits) { then(limits); return; }
    setText(said, `Write the limits into the field, as in ${limit_example}`);
    input.focus();
  };
  const copy = (text) => given(async (limits) => {
    try { await navigator.clipboard.writeText(text(limits)); setText(said, `Copied: ${text(limits)}`); } catch { setText(said, text(limits)); }
  });
  // Whatever is hidden under the focus hands it to the field.
  const hide = (...nodes) => {
    const isLost = nodes.some((node) => node.contains(document.activeElement));
    for (const node of nodes) node.hidden = true;
    if (isLost) input.focus({ preventScroll: true });
  };
  const post = async (text) => {
    hide(ask, undo);
    try {
      const answer = await fetch(address, { method: "POST", headers: { "X-Submeter": "1", "Content-Type": "text/plain" }, body: text, signal: AbortSignal.timeout(10000) });
      if (!answer.ok) { setText(said, (await answer.text()).trim()); return; }
      const now = await answer.json();
      setText(said, `Set: ${now.limits || "no limits"}`);
      undo.hidden = false;
      undo.was = now.undo;
    } catch { setText(said, "The server does not answer: it is unknown whether the limits were set."); }
  };
  // The question is about these limits, whatever the field holds later.
  const sure = button("", () => post(sure.limits));
  setAttr(sure, "aria-describedby", "limit-means");
  const means = el("span", { class: "means", id: "limit-means" });
  const ask = el("p", { class: "ask", hidden: "" }, means, sure, button("Cancel", () => hide(ask)));
  const undo = el("button", { type: "button", class: "quiet framed", hidden: "", text: "Undo", on: { click: () => post(undo.was) } });
  const set = given((limits) => {
    sure.limits = limits;
    setText(sure, `Set ${limits} for ${visible(path)}`);
    const { text, isLess } = meaning(limits, path);
    setText(means, text);
    means.classList.toggle("hot", isLess);
    ask.hidden = false;
    sure.focus();
  });
  const form = el("div", { class: "limiter" }, input,
    el("p", {}, ...sets_limits ? [button("Set…", set)] : [], button("Copy line for the file", copy(line)), ...sets_limits ? [button("Copy curl", copy(command))] : []),
    ask, said, undo);
  input.addEventListener("input", () => hide(ask));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); if (!event.repeat) (sets_limits ? set : copy(line))(); }
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !ask.hidden) { event.stopPropagation(); hide(ask); }
  });
  form.fill = (text) => { hide(ask); input.value = text; form.scrollIntoView({ block: "center" }); input.focus({ preventScroll: true }); };
  return form;
}

// Sizes in limits, as `submeter::limits` reads them: 4 is four bytes, 4m is four mebibytes. Another
// program's limits may mean something else by other names, and are left alone.
const SIZE = /^(\d+\.?\d*|\.\d+)(?:([kmgt])(?:i?b)?|b)?$/i;
function meaning(limits, path) {
  const quotas = model.schema.filter(({ kind, unit }) => kind === "quota" && unit === "bytes").map(({ name }) => name);
  const group = detail.doc.group;
  const parts = [];
  let held = 0;
  for (const part of limits.split(",")) {
    const [value, name = ""] = part.split("=").reverse();
    const quota = quotas.includes(name) ? name : ["", "high", "low", "min"].includes(name) && quotas[0];
    const [, number, unit] = SIZE.exec(value) || [];
    if (!quota || !number) continue;
    const size = number * 1024 ** (unit ? "kmgt".indexOf(unit.toLowerCase()) + 1 : 0);
    parts.push(`${name || quota}: ${format.text(format.bytes(size))}`);
    const { current } = group.values[quota] || {};
    // A tenant may hold more than what is kept for it.
    if (current > size && !["low", "min"].includes(name)) held = Math.max(held, current);
  }
  const now = held ? ` ${visible(path)} holds ${format.text(format.bytes(held))} now.` : "";
  return { text: parts.length ? `${parts.join(", ")}.${now}` : "", isLess: held > 0 };
}

// A metric's name as a heading.
function titled(name) {
  return name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " ");
}
