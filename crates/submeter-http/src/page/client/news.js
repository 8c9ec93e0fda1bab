// Draws who is harmed, by whom, and who is at a limit, which the server has judged.

// Pressure below this part is noise: it is an average that never falls to 0 again.
const STALLED_PART = 0.01;

// The label beside the name of a group with a verdict.
const MARKS = { bursts: "bursts", takes: "takes most", waits: "waits", slower: "slow", finds_less: "finds less", gets_less: "gets less", refused: "refused", throttled: "throttled", stalls: "waits for room" };
const BLAME = ["bursts", "takes"];

const news = {
  marks: new Map(),

  // Writes the sentences. A screen reader announces them when another tenant is concerned, not each
  // second with new figures.
  paint() {
    const { verdicts, earlier } = model;
    this.marks = new Map();
    // The first verdict on a group is the worst.
    for (const [id, kind] of model.marks) if (!this.marks.has(id)) this.marks.set(id, MARKS[kind] || kind);
    const box = document.getElementById("news");
    box.hidden = !verdicts.length;
    // No tenant takes from others: amber, not red.
    box.classList.toggle("calm", !verdicts.some(({ kind }) => BLAME.includes(kind)));
    this.write(box, verdicts, "span", (verdict) => ago(verdict));
    setText(document.getElementById("news-said"), verdicts.map(({ group, short }) => visible(group) + short).join(" "));
    const over = document.getElementById("earlier");
    over.hidden = !earlier.length;
    this.write(over.lastElementChild, earlier, "li", ({ since_ms, ended_ms }) => ` ${clock(since_ms)} to ${clock(ended_ms)}`);
  },

  // A name may be written from right to left, and must not take figures along. It links to the
  // tenant, at the moment of the verdict. Each line stays that of its tenant, so that no button
  // becomes another tenant's under a finger.
  write(box, verdicts, tag, when) {
    const had = document.activeElement;
    const left = [...box.children];
    const items = verdicts.map((verdict) => {
      const at = left.findIndex((item) => item.verdict.group === verdict.group && (tag === "span" || item.verdict.since_ms === verdict.since_ms));
      const item = at < 0 ? this.line(tag) : left.splice(at, 1)[0];
      item.fill(verdict, when(verdict));
      return item;
    });
    const isLost = box.contains(had) && (left.some((item) => item.contains(had)) || had.hidden);
    for (const item of left) item.remove();
    arrange(box, items);
    if (isLost) this.rescue(items.find((item) => item.contains(had)));
  },

  // Where the focus goes when its button goes away: never to the button of another tenant.
  rescue(item) {
    const earlier = document.getElementById("earlier");
    if (item) item.firstChild.focus({ preventScroll: true });
    else if (model.earlier.length) { earlier.hidden = false; earlier.firstElementChild.focus({ preventScroll: true }); } else table.grid.focus({ preventScroll: true });
  },

  line(tag) {
    const button = (className, text, click) => el("button", { type: "button", class: className, text, on: { click } });
    const name = button("name", "", () => this.show(item.verdict));
    name.append(el("bdi", { dir: "ltr" }));
    const text = el("span"), because = el("span", { class: "because", hidden: "" });
    const remedy = button("remedy", "limit…", () => detail.limit(item.verdict.group, item.verdict.remedy));
    const open = (is) => { because.hidden = !is; setAttr(why, "aria-expanded", String(is)); };
    const why = button("remedy", "why", () => open(because.hidden));
    open(false);
    const item = el(tag, {}, name, text, why, remedy, because);
    item.fill = (verdict, when) => {
      item.verdict = verdict;
      const path = visible(verdict.group);
      setText(name.firstChild, path);
      setText(text, verdict.text + when);
      why.hidden = !verdict.why;
      setAttr(why, "aria-label", `why ${path}`);
      if (why.hidden) open(false);
      setText(because, verdict.why);
      remedy.hidden = !verdict.remedy || verdict.ended_ms !== undefined;
      setAttr(remedy, "aria-label", `limit ${path}`);
    };
    return item;
  },

  show({ group, ended_ms }) {
    detail.open(group, true);
    const ago = (model.at - ended_ms) / 1000;
    if (ago < SLOTS) moment.set(ago);
  },
};

// When a past verdict ended.
function ago({ ended_ms }) {
  return ended_ms === undefined ? "" : ` Ended ${duration(model.at - ended_ms)} ago.`;
}
function clock(ms) { return new Date(ms).toLocaleTimeString(); }
