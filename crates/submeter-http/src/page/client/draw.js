// Elements and lines. Text from the server enters the page only through `textContent`, without
// invisible characters: names of tenants are chosen by clients.

const SVG = "http://www.w3.org/2000/svg";

function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props || {})) {
    if (key === "text") node.textContent = plain(value);
    else if (key === "on") for (const [name, f] of Object.entries(value)) node.addEventListener(name, f);
    else if (value !== null && value !== undefined) node.setAttribute(key, plain(value));
  }
  node.append(...children);
  return node;
}

function svg(tag, props, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(props || {})) {
    if (key === "text") node.textContent = plain(value); else node.setAttribute(key, plain(value));
  }
  node.append(...children);
  return node;
}

// Puts nodes into the order in which they are to be read. The one with the focus stays where it is,
// and the others move around it: a node that is moved loses the focus.
function arrange(box, nodes) {
  const focused = nodes.findIndex((node) => node.contains(document.activeElement));
  const put = (from, to, next) => {
    for (let i = to; i >= from; i--) {
      if (nodes[i].nextSibling !== next || nodes[i].parentNode !== box) box.insertBefore(nodes[i], next);
      next = nodes[i];
    }
  };
  put(focused + 1, nodes.length - 1, null);
  if (focused >= 0) put(0, focused - 1, nodes[focused]);
}

// Writes only what changed: an untouched node costs the browser nothing.
function setText(node, text) {
  text = plain(text);
  if (node.textContent !== text) node.textContent = text;
}
function setAttr(node, name, value) {
  if (value === null) { if (node.hasAttribute(name)) node.removeAttribute(name); return; }
  const text = plain(String(value));
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

function figure(className) {
  const node = el("span", { class: className || "" });
  const number = el("span", { class: "n" });
  const unit = el("span", { class: "u" });
  node.append(number, unit);
  let was = [];
  node.set = ([n, u]) => {
    if (n === was[0] && u === was[1]) return;
    was = [n, u];
    setText(number, n);
    setText(unit, u);
    // The number of digits after the point, by which a column aligns.
    setAttr(node, "data-digits", (n.split(".")[1] || "").length);
    node.classList.toggle("zero", n === "0" || n === "–" || n === "0.0");
  };
  return node;
}

// The line through `values` (null is a gap) in a box, with the area below it.
function paths(values, width, height, top, slots) {
  const step = width / Math.max(1, slots - 1);
  const offset = slots - values.length;
  const y = (v) => (height - Math.min(1, v / top) * height).toFixed(2);
  let line = "", area = "", start = -1;
  const close = (end) => {
    if (start < 0) return;
    area += `L${(end * step).toFixed(2)} ${height}L${(start * step).toFixed(2)} ${height}Z`;
    start = -1;
  };
  values.forEach((v, i) => {
    if (v === null || v === undefined) { close(offset + i - 1); return; }
    const at = `${((offset + i) * step).toFixed(2)} ${y(v)}`;
    if (start < 0) { start = offset + i; line += "M" + at; area += "M" + at; } else { line += "L" + at; area += "L" + at; }
  });
  close(offset + values.length - 1);
  return [line, area];
}

// The value at the top of a line's box. `floor` keeps the noise of a near-constant line from filling
// the box. A short spike is cut at four times the value that three quarters of the line stay below,
// or the rest would be flat until the spike has left; a burst that lasts is the line.
function ceiling(values, floor) {
  const busy = values.filter((v) => v > 0).sort((a, b) => a - b);
  const most = busy.length ? busy[busy.length - 1] : 0;
  const usual = busy.length ? busy[Math.floor(busy.length * 0.75)] : 0;
  return Math.max(floor || 0, Math.min(most * 1.08, usual * 4)) || 1;
}

function sparkline(className) {
  const area = svg("path", { class: "area" });
  const line = svg("path", { class: "line" });
  const node = svg("svg", { class: "spark " + (className || ""), viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" }, area, line);
  node.draw = (values, slots, floor, most) => {
    const top = most || ceiling(values, floor);
    const [l, a] = paths(values, 100, 22, top, slots);
    setAttr(line, "d", l);
    setAttr(area, "d", a);
    // Nothing happened: a coloured line would suggest in each row that something did.
    node.classList.toggle("still", !values.some((v) => v));
  };
  return node;
}

// `isTrouble`: little left of the limit deserves attention, unlike in a cache, which is meant to be
// full.
function meter(isTrouble) {
  const fill = el("i");
  const node = el("span", { class: "meter", "aria-hidden": "true" }, fill);
  node.set = (value, limit) => {
    const part = limit ? value / limit : 1;
    fill.style.width = (100 * Math.min(1, part)).toFixed(1) + "%";
    node.className = "meter" + (isTrouble && part >= 0.97 ? " warn" : "");
  };
  return node;
}

// A round number above `max` and the ticks up to it.
function scale(max, base) {
  if (!(max > 0)) return { top: 1, ticks: [0] };
  const power = base === 1024 ? 1024 ** Math.floor(Math.log(max) / Math.log(1024)) : 1;
  const unit = max / power;
  const decade = 10 ** Math.floor(Math.log10(unit));
  const step = [0.25, 0.5, 1, 2, 2.5, 5, 10].find((s) => s * decade * 3 >= unit * 0.999) * decade;
  const top = Math.ceil(unit / step - 1e-9) * step;
  const ticks = [];
  for (let t = 0; t <= top + step / 2; t += step) ticks.push(t * power);
  return { top: top * power, ticks };
}
