/* The module tree with its search box, its columns and the details of the chosen module. */

torchstone.sections.modules = {
  async mount(/** @type {HTMLElement} */ root, /** @type {Page} */ page) {
    const { make, button, link } = torchstone.elements;
    const LISTED = 60;
    const [structure, columns] = await Promise.all([page.table("modules"), page.table("modules.columns")]);
    const table = joined(structure, columns);
    const details = torchstone.details.mount("Selected module");
    const view = torchstone.treeview.mount(table, { heads: page.index.module_columns, label: "Module tree", choose: (/** @type {number} */ row) => page.go({ node: view.pathOf(row) }) });
    const search = torchstone.listing.searchBox({
      label: "Search modules", hint: `Search names and classes, class:Linear, ${table.columns.status ? "status:failed, " : ""}parameters:>1M`,
      onQuery: (query) => { search.tell(view.filter(query), query); torchstone.state.set({ q: query }, true); },
      onStep: view.stepHit,
    });
    const every = () => Array.from({ length: table.rows }, (_, row) => row).filter((row) => table.columns.module.values[row] >= 0);
    root.append(
      make("div", { class: "toolbar" }, search.element,
        make("span", { class: "group" }, button("Expand all", "open", view.openAll, "Expand all"), button("Collapse all", "close", view.closeAll, "Collapse all")),
        torchstone.download.buttons("modules", withPaths(table), every)),
      make("div", { class: "split" }, view.element, details.element));

    /** The columns of all sections beside the structure, under one string table. @param {Table} left @param {Table} right @returns {Table} */
    function joined(left, right) {
      const shift = left.strings.length;
      /** @type {Record<string, Column>} */
      const shifted = {};
      for (const [name, column] of Object.entries(right.columns)) {
        shifted[name] = column.kind === "text" ? { ...column, values: column.values.map((place) => place + shift) } : column;
      }
      return { rows: left.rows, strings: [...left.strings, ...right.strings], columns: { ...left.columns, ...shifted } };
    }

    /** For export: the path in front. @param {Table} from @returns {Table} */
    function withPaths(from) {
      return { ...from, get strings() { return [...from.strings, ...pathTexts()]; }, columns: {
        path: { name: "path", title: "Path", shown: "text", kind: "text", values: Float64Array.from({ length: from.rows }, (_, row) => from.strings.length + row) },
        class: { ...from.columns.class, shown: "text" }, ...Object.fromEntries(page.index.module_columns.map((head) => [head.name, from.columns[head.name]])) } };
    }

    /** @type {string[] | null} */
    let texts = null;
    function pathTexts() {
      texts ??= Array.from({ length: table.rows }, (_, row) => view.pathOf(row));
      return texts;
    }

    /** @param {number} row */
    async function show(row) {
      const path = view.pathOf(row);
      const text = (/** @type {string} */ name) => torchstone.decode.textAt(table, name, row);
      const members = table.columns.members.values[row];
      /** @type {[string, Node | string][]} */
      const pairs = [["Class", text("class_path")]];
      if (members) pairs.push(["Repeated", `${members} identical consecutive layers; attributes of the first`]);
      for (const head of page.index.module_columns) {
        const column = table.columns[head.name];
        const value = column.kind === "text" ? torchstone.elements.cell(table, column, row) : torchstone.format.full(column.values[row], head.shown);
        if (value !== "") pairs.push([head.title, value]);
      }
      if (text("attributes")) pairs.push(["Attributes", text("attributes")]);
      if (text("source")) pairs.push(["Defined in", text("source")]);
      const call = table.columns.first_call.values[row];
      const inGraph = page.index.sections.some((section) => section.name === "graph") && call >= 0 && !members
        ? make("p", {}, button("Show in the graph", "graph", () => page.go({ tab: "graph", at: String(call) }), "Show in the graph")) : null;
      details.show(members ? `${members} × ${text("class")}` : path || text("class"), members ? `${path ? `${path}.` : ""}${text("name")}` : text("class"), torchstone.details.facts(pairs), inGraph, await operatorsOf(row));
    }

    /** The ops that a module calls itself. @param {number} row */
    async function operatorsOf(row) {
      if (!page.index.sections.some((section) => section.name === "operators")) return null;
      const uses = await page.table("uses");
      const module = table.columns.module.values[row];
      /** @type {number[]} */
      const found = [];
      for (let use = 0; use < uses.rows; use += 1) if (uses.columns.module.values[use] === module && module >= 0) found.push(use);
      if (found.length === 0) return null;
      found.sort((left, right) => uses.columns.calls.values[right] - uses.columns.calls.values[left]);
      return torchstone.details.list("Operators called directly", found.length, found.slice(0, LISTED).map((use) => {
        const op = torchstone.decode.textAt(uses, "op", use);
        return make("span", { class: "pair" }, link(op.slice(0, 300), () => page.go({ tab: "operators", op })), make("span", { class: "count" }, `${torchstone.format.exact(uses.columns.calls.values[use])} ×`));
      }));
    }

    let lastNode = "\0";
    return {
      update(/** @type {State} */ state) {
        const query = state.q ?? "";
        if (search.input.value !== query) search.input.value = query;
        search.tell(view.filter(query), query);
        if (state.node === undefined) {
          return show(view.selected());
        }
        const row = view.rowOf(state.node);
        const selected = view.selected();
        if (view.pathOf(selected) !== state.node || lastNode === "\0") view.select(row, true);
        lastNode = state.node;
        return show(view.selected());
      },
    };
  },
};
