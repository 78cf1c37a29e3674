/* The functions of the model's code, and the chosen one line by line with what each line costs. */

torchstone.sections.source = {
  async mount(/** @type {HTMLElement} */ root, /** @type {Page} */ page) {
    const { make, status } = torchstone.elements;
    const { priced, checked } = page.section.settings;
    const HEAD_PX = 60;
    const [functions, lines] = await Promise.all([page.table("functions"), page.table("source_lines")]);
    const names = Array.from(functions.columns.name.values, (place, row) => `${functions.strings[place]} ${torchstone.decode.textAt(functions, "place", row)}`);
    const details = torchstone.details.mount("Selected function");
    const view = torchstone.table.mount(functions, {
      label: "Functions", empty: "No function of the model calls an op.", words: ["name", "place"], tall: false,
      choose: (/** @type {number} */ row) => page.go({ fn: names[row] }),
    });
    details.element.firstElementChild?.setAttribute("tabindex", "0"); // code that is wider or longer scrolls by keys
    root.append(make("div", { class: "source" }, view.element, details.element, ...page.section.notes.map((note) => make("p", { class: "muted" }, note))));
    const measures = [
      ...(priced ? [["FLOPs", "flops", "count", "unpriced"], ["Moved", "moved", "bytes", "unpriced"]] : []),
      ["New tensors", "made", "bytes", "unsized"], ["Ops", "ops", "count", ""],
    ];

    /** A number, or at least that where parts of it are not known. @param {Table} table @param {number} row @param {string[]} measure */
    function atLeast(table, row, [, name, shown, missing]) {
      const text = torchstone.format.number(table.columns[name].values[row], shown);
      return missing && table.columns[missing].values[row] > 0 ? `≥ ${text}` : text;
    }

    /** @param {number} row */
    function show(row) {
      const main = priced ? "flops" : "ops";
      const total = functions.columns[main].values[row];
      const body = make("tbody", {});
      for (let line = 0; line < lines.rows; line += 1) {
        if (lines.columns.function.values[line] !== row) continue;
        const amount = lines.columns[main].values[line];
        const known = !Number.isNaN(lines.columns.ops.values[line]);
        const share = known && total > 0 ? (100 * amount) / total : 0;
        const word = torchstone.decode.textAt(lines, "status", line);
        body.append(make("tr", { class: known ? "costs" : null, style: `--share: ${share.toFixed(1)}%` },
          make("td", { class: "number" }, String(lines.columns.line.values[line])),
          ...measures.map((measure) => make("td", {}, known ? atLeast(lines, line, measure) : "")),
          make("td", {}, known && total > 0 ? `${share.toFixed(1)} %` : ""),
          checked ? make("td", { class: "check" }, word === "" ? "" : status(word)) : null,
          make("td", { class: "text" }, make("bdi", {}, torchstone.decode.textAt(lines, "text", line)))));
      }
      const heads = ["Line", ...measures.map(([title]) => title), priced ? "of FLOPs" : "of ops", ...(checked ? ["Check"] : [])];
      details.show(torchstone.decode.textAt(functions, "name", row), torchstone.decode.textAt(functions, "place", row),
        body.childElementCount === 0 ? make("p", { class: "muted" }, "The text of this function is not known.")
          : make("table", { class: "code" }, make("thead", {}, make("tr", {}, ...heads.map((title) => make("th", { scope: "col", class: title === "Check" ? "check" : null }, title)),
            make("th", { scope: "col", class: "text" }, "Code"))), body));
      const first = /** @type {HTMLElement | null} */ (body.querySelector("tr.costs"));
      const around = details.element.firstElementChild;
      // Not the signature; the panel has its size only when it is shown.
      if (first && around) requestAnimationFrame(() => { around.scrollTop += first.getBoundingClientRect().top - around.getBoundingClientRect().top - HEAD_PX; });
    }

    return {
      update(/** @type {State} */ state) {
        const row = state.fn ? names.indexOf(state.fn) : 0;
        if (row < 0) return details.clear("This report has no such function.");
        view.select(row, true);
        return show(row);
      },
    };
  },
};
