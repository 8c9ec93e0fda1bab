// Who hurts whom, in a sentence: judged by the first headline of each tenant, if it is a rate,
// against what it usually is, and by the figures that are trouble.

// A burst is so many times a tenant's usual rate, and such a part of all; who suffers has lost such
// a part of its own. Below, it is noise.
// Of pressure, an average that never falls to 0 again, less than such a part is noise too.
const BURSTS = 2, STALLED_PART = 0.01, BURST_PART = 0.25, SUFFERS = 0.3, NOTICED_PART = 0.002, RECENT = 2, NOTICED_MOST = 200, HELD_MS = 6500;

// What a line, partly null, usually is: its median. By a lower quantile, who recovers from another's
// burst would seem to burst.
function usualOf(line) {
  const sorted = line.filter((v) => v !== null && v !== undefined).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor(sorted.length / 2)] : 0;
}

// What each tenant does: { group, kind: "bursts" | "suffers" | "refused" | "stalls", … }.
function judge(tree) {
  const [first] = tree.headlines;
  const found = { bursts: [], suffers: [], refused: [], stalls: [] };
  const troubles = tree.columns.filter((view) => view.is_trouble && view.shape === "rate");
  const pressures = tree.columns.filter((view) => view.is_pressure);
  const rated = first && (first.shape === "rate" || first.shape === "byte_rate");
  const lineOf = (group) => rated && group.lines && group.lines[0].length > RECENT + 1 ? group.lines[0] : null;
  const recent = (line) => line.slice(-RECENT).reduce((sum, v) => sum + (v || 0), 0) / RECENT;
  const whole = tree.root && lineOf(tree.root);
  const all = whole ? recent(whole) : 0;
  const tenants = [...tree.groups.values()].filter((group) => tree.isTenant(group));
  for (const group of tenants) {
    const trouble = troubles.find((view) => tree.get(group, view) > 0);
    if (trouble) found.refused.push({ group, view: trouble, value: tree.get(group, trouble) });
    const part = Math.max(0, ...pressures.map((view) => tree.get(group, view) || 0));
    if (part >= STALLED_PART) found.stalls.push({ group, part });
    const line = lineOf(group);
    const now = line ? recent(line) : 0;
    // Few have a quarter of all: ten thousand sorted lines would take longer than a frame.
    if (!now || now < all * BURST_PART) continue;
    const usual = usualOf(line);
    if (now > usual * BURSTS) found.bursts.push({ group, now, usual, part: now / all });
  }
  // Who has less than usual suffers only while another bursts: else it has less to do.
  if (found.bursts.length) {
    const bursting = new Set(found.bursts.map(({ group }) => group));
    const noticed = tenants.filter((group) => !bursting.has(group) && (lineOf(group) || []).some((v) => v >= all * NOTICED_PART));
    for (const group of noticed.slice(0, NOTICED_MOST)) {
      const line = lineOf(group);
      const usual = usualOf(line);
      if (recent(line) < usual * (1 - SUFFERS)) found.suffers.push({ group, part: 1 - recent(line) / usual });
    }
    found.suffers.sort((a, b) => b.part - a.part);
  }
  found.bursts.sort((a, b) => b.now - a.now);
  found.refused.sort((a, b) => b.value - a.value);
  found.stalls.sort((a, b) => b.part - a.part);
  return found;
}

const news = {
  marks: new Map(), last: null,

  // A burst that is over stays for some seconds, in the past tense: who looks up from other work
  // should not have to wait for the next.
  hold(found) {
    const { last } = this;
    if (found.bursts.length) {
      // Its worst second, as the last ones of a burst are like any other.
      const worst = last && last.goesOn && last.bursts[0].part > found.bursts[0].part ? last : found;
      this.last = { at: model.at, goesOn: true, bursts: worst.bursts, suffers: worst.suffers };
    } else if (last && model.at - last.at < HELD_MS) {
      last.goesOn = false;
      return { ...found, bursts: last.bursts, suffers: last.suffers, ago: Math.round((model.at - last.at) / 1000) };
    }
    return found;
  },

  // Writes the sentence. A screen reader hears of it when another tenant is concerned, not each
  // second with other figures.
  paint() {
    const found = this.hold(judge(model));
    this.marks = new Map();
    const past = found.ago !== undefined;
    for (const { group } of found.suffers) if (!past) this.marks.set(group, "gets less");
    for (const { group } of found.stalls) this.marks.set(group, "stalls");
    for (const { group } of found.refused) this.marks.set(group, "over its limit");
    for (const { group } of found.bursts) this.marks.set(group, past ? "burst" : "bursts");
    const said = sentences(found, false).flat().join("");
    const box = document.getElementById("news");
    box.hidden = !found.bursts.length && !found.refused.length && !found.stalls.length;
    // Nobody takes from others: amber, not red.
    box.classList.toggle("calm", !found.bursts.length);
    const parts = sentences(found, true);
    while (box.children.length > parts.length) box.lastChild.remove();
    parts.forEach(([name, text], i) => {
      // A name may be written from right to left, and is not to take figures along.
      if (!box.children[i]) box.append(el("span", {}, el("bdi", { dir: "ltr" }), el("span")));
      setText(box.children[i].firstChild, name);
      setText(box.children[i].lastChild, text);
    });
    setText(document.getElementById("news-said"), said);
  },
};

// Sentences, each as the name it begins with and the rest.
function sentences({ bursts, suffers, refused, stalls, ago }, figures) {
  const past = ago !== undefined;
  const parts = [];
  const say = (group, text) => parts.push([group.title, text]);
  const percent = (part) => `${Math.round(part * 100)}${NBSP}%`;
  const more = (list) => list.length > 1 ? ` and ${list.length - 1} more` : "";
  const [first] = model.headlines;
  if (bursts.length) {
    const [{ group, now, usual, part }] = bursts;
    const times = usual > 0 ? `, ${(now / usual).toFixed(1)} times its usual` : "";
    say(group, `${more(bursts)} ${past || bursts.length > 1 ? "burst" : "bursts"}` + (figures ? `${past ? ` ${ago}${NBSP}s ago` : ""}: ${percent(part)} of all ${first.title}${times}.` : "."));
  }
  if (suffers.length) {
    const [{ group, part }] = suffers;
    say(group, `${more(suffers)} ${past ? "got" : suffers.length > 1 ? "get" : "gets"} less` + (figures ? `: ${percent(part)} below usual.` : " than usual."));
  }
  if (refused.length) {
    const [{ group, view, value }] = refused;
    say(group, `${more(refused)} ${refused.length > 1 ? "are" : "is"} refused` + (figures ? `: ${format.text(view.as.show(value))} ${view.title}.` : "."));
  }
  if (stalls.length) {
    const [{ group, part }] = stalls;
    say(group, `${more(stalls)} ${stalls.length > 1 ? "wait" : "waits"} for room` + (figures ? `: ${percent(part)} of the last 10${NBSP}s.` : "."));
  }
  return parts;
}
