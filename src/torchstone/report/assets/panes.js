/* Two module trees next to each other: what is opened, chosen or scrolled on one side is on the other. */

torchstone.sections.panes = {
  async mount(/** @type {HTMLElement} */ root, /** @type {Page} */ page) {
    const { make, button, status } = torchstone.elements;
    const { sides, models, priced, checked, golden } = page.section.settings;
    const OPENED = 100; // ways to differences that are open at first
    const WORDS = ["before", "after"];
    /** @type {Record<string, string>} */
    const SIGNS = { added: "+", removed: "\u2212", changed: "\u2260" };
    const table = await page.table("panes");
    const change = (/** @type {number} */ row) => torchstone.decode.textAt(table, "change", row);
    const differs = Uint8Array.from({ length: table.rows }, (_, row) => (change(row) === "same" ? 0 : 1));
    const details = torchstone.details.mount("Selected module");
    details.element.firstElementChild?.setAttribute("tabindex", "0"); // it scrolls by keys
    const heads = [
      ...(checked ? [{ name: "status", title: "Status", shown: "status", bar: false }] : []),
      ...(checked && priced ? [] : [{ name: "parameters", title: "Parameters", shown: "count", bar: false }]), // details have it
      ...(priced ? [{ name: "flops", title: "FLOPs", shown: "count", bar: false }, { name: "moved", title: "Moved", shown: "bytes", bar: false }] : []),
    ];

    /** The columns of one side under the names that a tree has. @param {string} word @returns {Table} */
    function sideOf(word) {
      const { columns } = table;
      /** @type {Record<string, Column>} */
      const own = {};
      for (const name of ["class", "class_path", "shapes", "status", "parameters", "flops", "moved", "peak"]) own[name] = columns[`${name}_${word}`];
      return { ...table, columns: { parent: columns.parent, module: columns.module, members: columns.members, name: columns.name, change: columns.change, ...own } };
    }

    /** @param {string} word @param {number} row @returns {TreeMark | null} */
    function mark(word, row) {
      const what = change(row);
      if (what === "same") return null;
      if (table.columns[`absent_${word}`].values[row]) return { sign: "absent", text: `not in ${sides[WORDS.indexOf(word)]}`, tone: "absent" };
      return { sign: SIGNS[what], text: what, tone: what };
    }

    const choose = (/** @type {number} */ row) => page.go({ node: left.pathOf(row) });
    const left = torchstone.treeview.mount(sideOf("before"), { heads, choose, label: `Modules of ${sides[0]}`, id: "before", mark: (row) => mark("before", row) });
    const right = torchstone.treeview.mount(sideOf("after"), { heads, choose, label: `Modules of ${sides[1]}`, id: "after", state: left.state, mark: (row) => mark("after", row) });
    for (const [one, other] of [[left.element, right.element], [right.element, left.element]]) {
      one.addEventListener("scroll", () => {
        if (other.scrollTop !== one.scrollTop) other.scrollTop = one.scrollTop;
        if (other.scrollLeft !== one.scrollLeft) other.scrollLeft = one.scrollLeft;
      }, { passive: true });
    }
    const changed = Array.from(differs.keys()).filter((row) => differs[row] === 1);
    const shape = torchstone.tree.shape(table.columns.parent.values);
    // Where a change comes from: what is above it only changed with it.
    const origin = changed.find((row) => change(row) !== "changed" || !differs.subarray(row + 1, shape.end[row]).includes(1));
    for (const row of changed.slice(0, OPENED)) torchstone.tree.openAbove(shape, left.state.open, row);

    const only = button("Show only the modules that differ", "search", () => setOnly(only.getAttribute("aria-pressed") !== "true"), "Only differences");
    const search = torchstone.listing.searchBox({
      label: "Search modules", hint: "Search names and classes, change:added, flops:>1M",
      onQuery: (query) => { only.setAttribute("aria-pressed", "false"); search.tell(find(query), query); torchstone.state.set({ q: query }, true); },
      onStep: left.stepHit,
    });
    root.append(
      make("div", { class: "toolbar" }, search.element, only,
        make("span", { class: "group" }, button("Expand all", "open", left.openAll, "Expand all"), button("Collapse all", "close", left.closeAll, "Collapse all"))),
      make("div", { class: "panes" }, ...[left, right].map((view, side) => make("section", { class: "pane", "aria-label": WORDS[side] },
        make("h2", {}, make("bdi", {}, sides[side]), make("span", { class: "count" }, make("bdi", {}, models[side]))), view.element))),
      details.element, ...page.section.notes.map((note) => make("p", { class: "muted" }, note)));

    /** Hits of either side. @param {string} query @returns {Found} */
    function find(query) {
      if (query.trim() === "") return left.filter("");
      left.filter(query);
      const first = left.state.hits;
      right.filter(query);
      const second = right.state.hits;
      return left.keep(Uint8Array.from({ length: table.rows }, (_, row) => (first?.[row] || second?.[row] ? 1 : 0)));
    }

    /** @param {boolean} on */
    function setOnly(on) {
      only.setAttribute("aria-pressed", String(on));
      search.input.value = "";
      torchstone.state.set({ q: "" }, true);
      search.tell(on ? left.keep(differs.slice()) : left.filter(""), "");
    }
    only.setAttribute("aria-pressed", "false");

    /** @param {number} row */
    function show(row) {
      const what = change(row);
      const cell = (/** @type {string} */ name, /** @type {string} */ word, /** @type {string} */ shown) => {
        if (table.columns[`absent_${word}`].values[row]) return "";
        const column = table.columns[`${name}_${word}`];
        if (shown !== "text" && shown !== "status") return torchstone.format.full(column.values[row], shown);
        const text = torchstone.decode.textAt(table, `${name}_${word}`, row);
        return shown === "status" && text ? status(text) : text;
      };
      const facts = [
        ["Class", "class_path", "text"], ["First call", "shapes", "text"], ["Parameters of its own", "parameters", "count"],
        ...(priced ? [["FLOPs", "flops", "count"], ["Bytes moved", "moved", "bytes"], ["Live memory", "peak", "bytes"]] : []),
        ...(checked ? [["Status", "status", "status"]] : []),
      ];
      const body = make("tbody", {}, ...facts.map(([title, name, shown]) => {
        const pair = WORDS.map((word) => cell(name, word, shown));
        const texts = pair.map((one) => (typeof one === "string" ? one : one.textContent));
        return make("tr", { class: texts[0] === texts[1] ? null : "differs" }, make("th", { scope: "row" }, title), ...pair.map((one) => make("td", {}, make("bdi", {}, one))), make("td", {}, ratio(name, shown, row)));
      }));
      const tensors = table.columns.tensors.values[row];
      details.show(left.pathOf(row) || "the model", what === "same" ? "the same on both sides" : what === "changed" ? "changed" : `${what}: only in ${sides[what === "added" ? 1 : 0]}`,
        make("table", { class: "compare" }, make("thead", {}, make("tr", {}, ...["", ...sides, "Change"].map((title) => (title ? make("th", { scope: "col" }, make("bdi", {}, title)) : make("td", {}))))), body),
        golden ? make("p", { class: "muted" }, tensors ? `${tensors} of its golden tensors or weights differ.` : "Its golden tensors and weights are the same.") : null);
    }

    /** @param {string} name @param {string} shown @param {number} row */
    function ratio(name, shown, row) {
      if (shown === "text" || shown === "status") return "";
      const [before, after] = WORDS.map((word) => table.columns[`${name}_${word}`].values[row]);
      if (Number.isNaN(before) || Number.isNaN(after) || before === after) return "";
      return before === 0 ? "new" : `${Number((after / before).toPrecision(3))}x`;
    }

    let first = true;
    return {
      update(/** @type {State} */ state) {
        const query = state.q ?? "";
        if (search.input.value !== query || (first && query)) {
          search.input.value = query;
          search.tell(find(query), query);
        }
        const row = state.node === undefined ? (first && origin !== undefined ? origin : left.selected()) : left.rowOf(state.node);
        first = false;
        if (row < 0) return details.clear("Neither side has such a module.");
        show(row); // first: the trees have the height that it leaves
        return left.select(row, true);
      },
    };
  },
};
