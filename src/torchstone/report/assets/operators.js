/* The operators, and for the chosen one its signatures and the modules that call it. */

torchstone.sections.operators = {
  async mount(/** @type {HTMLElement} */ root, /** @type {Page} */ page) {
    const { make, link } = torchstone.elements;
    const LISTED = 100;
    const table = await page.table("operators");
    const ops = Array.from(table.columns.op.values, (place) => table.strings[place]);
    const details = torchstone.details.mount("Selected operator");
    const view = torchstone.table.mount(table, {
      label: "Operators", empty: page.section.tables[0].empty, words: ["op", "dtypes"],
      choose: (/** @type {number} */ row) => page.go({ op: ops[row] }),
    });
    const search = torchstone.listing.searchBox({
      label: "Search operators", hint: "Search names and types, calls:>100",
      onQuery: (query) => { search.tell(view.filter(query), query); torchstone.state.set({ oq: query }, true); },
    });
    root.append(make("div", { class: "toolbar" }, search.element, torchstone.download.buttons("operators", table, view.order)),
      make("div", { class: "split" }, view.element, details.element));
    details.clear("Select an operator to see its signatures and the modules that call it.");

    /** @param {string} op */
    async function show(op) {
      const [variants, uses, modules] = await Promise.all([page.table("variants"), page.table("uses"), page.table("modules")]);
      const ofOp = (/** @type {Table} */ of) => Array.from({ length: of.rows }, (_, row) => row).filter((row) => torchstone.decode.textAt(of, "op", row) === op);
      const users = ofOp(uses).sort((left, right) => uses.columns.calls.values[right] - uses.columns.calls.values[left]);
      const shapes = ofOp(variants);
      const rowOf = torchstone.paths.rows(modules);
      const calls = table.columns.calls.values[ops.indexOf(op)];
      details.show(op, `${torchstone.format.exact(calls)} ${calls === 1 ? "call" : "calls"}`,
        torchstone.details.list("Signatures", shapes.length, shapes.slice(0, LISTED).map((row) => make("div", { class: "variant" },
          make("span", { class: "count" }, `${torchstone.format.exact(variants.columns.calls.values[row])} ×`),
          make("code", {}, torchstone.decode.textAt(variants, "arguments", row)), make("span", { class: "muted" }, " → "),
          make("code", {}, torchstone.decode.textAt(variants, "output", row))))),
        torchstone.details.list("Modules that call it", users.length, users.slice(0, LISTED).map((row) => {
          const module = uses.columns.module.values[row];
          const path = module < 0 ? null : torchstone.paths.ofRow(modules, rowOf.get(module) ?? 0);
          return make("span", { class: "pair" },
            path === null ? "outside any module" : link((path || "the model itself").slice(0, 300), () => page.go({ tab: "modules", node: path, q: "" })),
            make("span", { class: "count" }, `${torchstone.format.exact(uses.columns.calls.values[row])} ×`));
        })));
    }

    return {
      update(/** @type {State} */ state) {
        const query = state.oq ?? "";
        if (search.input.value !== query) search.input.value = query;
        search.tell(view.filter(query), query);
        if (!state.op) return undefined;
        const row = ops.indexOf(state.op);
        if (row < 0) return details.clear(`This model does not call ${state.op.slice(0, 200)}.`);
        view.select(row, true);
        return show(state.op);
      },
    };
  },
};
