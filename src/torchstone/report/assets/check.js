/* The check section: what to fix, the module tree by status, and everything about the chosen module. */

torchstone.sections.check = {
  async mount(/** @type {HTMLElement} */ root, /** @type {Page} */ page) {
    const { make, button, status } = torchstone.elements;
    const FAILING = ["failed", "ir_export_failed", "wrong", "crashed"];
    const [table, findings] = await Promise.all([page.table("check.tree"), page.table("check.findings")]);
    const files = page.section.settings.files;
    const details = torchstone.details.mount("Selected module");
    const heads = [
      { name: "status", title: "Status", shown: "status", bar: false },
      { name: "outcome", title: "Outcome", shown: "status", bar: false },
      { name: "noise", title: "Times the noise", shown: "number", bar: false },
      { name: "pcc", title: "PCC", shown: "number", bar: false },
      { name: "reason", title: "Reason", shown: "text", bar: false },
    ];
    const view = torchstone.treeview.mount(table, { heads, label: "Modules by status", choose: (/** @type {number} */ row) => page.go({ unit: view.pathOf(row) }) });
    const search = torchstone.listing.searchBox({
      label: "Search checked modules", hint: "Search names and classes, status:failed, outcome:crashed",
      onQuery: (query) => { search.tell(view.filter(query), query); torchstone.state.set({ cq: query }, true); },
      onStep: view.stepHit,
    });
    const mounted = await torchstone.listing.mount(root, page);
    const tree = make("section", { class: "panel" }, make("div", { class: "toolbar" }, make("h2", {}, "Modules"), search.element,
      make("span", { class: "group" },
        button("Failures only", "bad", () => { search.input.value = "status:failed"; search.tell(view.filter("status:failed"), "status:failed"); torchstone.state.set({ cq: "status:failed" }, true); }, "Failures only"),
        button("Expand all", "open", view.openAll, "Expand all"), button("Collapse all", "close", view.closeAll, "Collapse all"))),
    make("div", { class: "split" }, view.element, details.element));
    const after = root.querySelector(".notes") ?? root.querySelector(".cards");
    const sentence = make("p", { class: "verdict" }, make("bdi", {}, page.section.settings.sentence));
    root.querySelector(".cards")?.after(sentence);
    const firstTable = root.querySelectorAll("section.panel:not(.notes)")[page.section.settings.forms ? 1 : 0];
    const meaning = /** @type {string[]} */ (page.section.settings.meaning ?? []);
    const meant = meaning.length === 0 ? [] : [make("section", { class: "panel" }, make("h2", {}, "What the findings mean"),
      make("ul", {}, ...meaning.map((text) => make("li", {}, make("bdi", {}, text)))))];
    (firstTable ?? after ?? sentence).after(...meant, tree);

    /** @param {number} row */
    function show(row) {
      const text = (/** @type {string} */ name) => torchstone.decode.textAt(table, name, row);
      const members = table.columns.members.values[row];
      const path = view.pathOf(row);
      /** @type {[string, Node | string][]} */
      const pairs = [["Status", status(text("status"))]];
      if (text("children")) pairs.push(["Worst child status", status(text("children"))]);
      pairs.push(["Outcome", status(text("outcome"))]);
      for (const [title, name] of [["Reason", "reason"], ["Error metrics", "numbers"], ["Calls and inputs", "shapes"], ["IR error", "ir_error"], ["Time", "took"], ["Result", "ran"], ["ID", "id"], ["Note", "notes"]]) {
        if (text(name)) pairs.push([title, text(name)]);
      }
      if (members) pairs.push(["Repeated", `${members} identical consecutive layers, checked once`]);
      const repros = text("findings").split("\n").filter(Boolean).map((id) => findingOf(id)).filter((found) => found !== null);
      details.show(members ? `${members} × ${text("class")}` : path || text("class"), text("class_path"), torchstone.details.facts(pairs),
        text("error") ? folded("Error", text("error"), FAILING.includes(text("status"))) : null,
        ...repros.flatMap((found) => scriptsOf(found.file)).map((file) => folded(`Repro: ${file}`, files[file] ?? "See the results folder.", false)),
        ...text("irs").split("\n").filter(Boolean).map((file) => folded(`IR: ${file.split("/").pop()}`, files[file] ?? `See ${file}.`, false)));
    }

    /** @param {string} id finding_003 is row 2 of the findings @returns {{file: string} | null} */
    function findingOf(id) {
      const row = Number(id.replace("finding_", "")) - 1;
      if (!(row >= 0 && row < findings.rows)) return null;
      const file = torchstone.decode.textAt(findings, "repro", row).replace(" (not confirmed)", "");
      return file === "none" ? null : { file };
    }

    /** A script, and those in its folder: the same failure in other forms, and what passes. @param {string} file */
    function scriptsOf(file) {
      return [file, ...Object.keys(files).filter((name) => name.startsWith(`${file.replace(/\.py$/, "")}/`))];
    }

    /** @param {string} title @param {string} text @param {boolean} open */
    function folded(title, text, open) {
      return make("details", { open, class: "folded" }, make("summary", {}, make("bdi", {}, title)), make("pre", { class: "file", tabindex: "0" }, text));
    }

    let last = "\0";
    return {
      async update(/** @type {State} */ state) {
        await mounted.update(state);
        const query = state.cq ?? "";
        if (search.input.value !== query) search.input.value = query;
        search.tell(view.filter(query), query);
        if (state.unit !== undefined && (view.pathOf(view.selected()) !== state.unit || last === "\0")) view.select(view.rowOf(state.unit), true);
        last = state.unit ?? "";
        show(view.selected());
      },
    };
  },
};
