// Tables that the program declares: nothing here knows their contents.

const panels = {
  said: null, parts: [],

  // Rebuilt only when the program declares something else: a table that is rebuilt loses its
  // selection.
  declare(docs) {
    const said = JSON.stringify(docs.map(({ title, columns }) => [title, columns]));
    if (said === this.said) return;
    this.said = said;
    const box = document.getElementById("panels");
    box.replaceChildren();
    this.parts = docs.map((doc) => {
      const head = el("tr");
      for (const column of doc.columns) head.append(el("th", { scope: "col", title: column.help, text: column.title, class: this.side(column) }));
      const rows = el("tbody");
      box.append(el("section", { class: "panel", "aria-label": doc.title },
        el("h2", { text: doc.title }), el("table", {}, el("thead", {}, head), rows)));
      return rows;
    });
  },

  side(column) { return column.kind === "gauge" || column.kind === "counter" ? "num" : ""; },

  text(cell) {
    if (typeof cell === "string") return visible(cell);
    return format.text((SHAPES[cell.shape] || SHAPES.count).show(cell.value));
  },

  paint(docs) {
    this.declare(docs);
    docs.forEach((doc, at) => {
      const body = this.parts[at];
      while (body.rows.length > doc.rows.length) body.deleteRow(-1);
      while (body.rows.length < doc.rows.length) {
        const row = body.insertRow();
        for (const column of doc.columns) row.append(el("td", { class: this.side(column) }));
      }
      doc.rows.forEach((row, r) => row.forEach((cell, c) => {
        const td = body.rows[r].cells[c];
        setText(td, this.text(cell));
        td.classList.toggle("hot", (doc.columns[c].states || []).indexOf(cell) > 0);
      }));
    });
  },
};
