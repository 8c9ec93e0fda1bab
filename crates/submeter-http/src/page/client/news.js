// Draws who is harmed, by whom, and who is at a limit, which the server has judged.

// Pressure below this part is noise: it is an average that never falls to 0 again.
const STALLED_PART = 0.01;

// The label beside the name of a group with a verdict.
const MARKS = { bursts: "bursts", takes: "takes most", waits: "waits", slower: "slow", finds_less: "finds less", gets_less: "gets less", refused: "over its limit", stalls: "stalls" };
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
    setAttr(box, "title", verdicts.length && verdicts[0].why ? visible(verdicts[0].why) : null);
    this.write(box, verdicts, "span", (verdict) => ago(verdict));
    setText(document.getElementById("news-said"), verdicts.map(({ group, short }) => visible(group) + short).join(" "));
    const over = document.getElementById("earlier");
    over.hidden = !earlier.length;
    this.write(over.lastElementChild, earlier, "li", ({ since_ms, ended_ms }) => ` ${clock(since_ms)} to ${clock(ended_ms)}`);
  },

  // A name may be written from right to left, and must not take figures along. It links to the
  // tenant, at the moment of the verdict.
  write(box, verdicts, tag, when) {
    while (box.children.length > verdicts.length) box.lastChild.remove();
    verdicts.forEach((verdict, i) => {
      if (!box.children[i]) {
        const item = el(tag, {},
          el("button", { type: "button", class: "name", on: { click: () => this.show(item.verdict) } }, el("bdi", { dir: "ltr" })), el("span"),
          el("button", { type: "button", class: "remedy", text: "limit…", on: { click: () => detail.limit(item.verdict.group, item.verdict.remedy) } }));
        box.append(item);
      }
      const item = box.children[i], [name, text, remedy] = item.children;
      item.verdict = verdict;
      setText(name.firstChild, visible(verdict.group));
      setText(text, verdict.text + when(verdict));
      remedy.hidden = !verdict.remedy || verdict.ended_ms !== undefined;
      setAttr(remedy, "aria-label", `limit ${visible(verdict.group)}`);
    });
  },

  show({ group, ended_ms }) {
    detail.open(group, true);
    const ago = (model.at - ended_ms) / 1000;
    if (ago < SLOTS) moment.set(ago);
  },
};

// When a past verdict ended.
function ago({ ended_ms }) {
  return ended_ms === undefined ? "" : ` ${duration(model.at - ended_ms)} ago.`;
}
function clock(ms) { return new Date(ms).toLocaleTimeString(); }
