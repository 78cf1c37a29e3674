/* The first page: headline numbers of all sections, the failure, provenance, what is unknown. */

torchstone.sections.overview = {
  async mount(/** @type {HTMLElement} */ root, /** @type {Page} */ page) {
    const { make, icon, link } = torchstone.elements;
    const { settings } = page.section;
    const failure = settings.failure;
    const MOST = 10;

    if (failure) {
      root.append(make("section", { class: "panel failure", role: "note", "aria-label": "Failure" },
        make("h2", {}, icon("bad"), "The forward pass failed"),
        make("p", {}, "In ", link(failure.module || "the model itself", () => page.go({ tab: "modules", node: failure.module })),
          failure.op ? make("span", {}, " at ", make("code", {}, failure.op)) : " between two ops", ". What ran before it is shown in this report."),
        make("pre", {}, failure.error),
        failure.arguments ? make("p", { class: "muted" }, "Arguments: ", make("code", {}, failure.arguments)) : null,
        failure.location ? make("p", { class: "muted" }, "At ", make("code", {}, failure.location)) : null));
    }
    const { sections } = page.index;
    for (const section of sections) {
      const banner = torchstone.listing.banner(section);
      if (banner) root.append(banner);
    }
    const leading = [...sections.filter((section) => section.banner), ...sections.filter((section) => !section.banner)];
    root.append(torchstone.listing.cards(leading.flatMap((section) => section.cards)));

    const columns = make("div", { class: "columns" });
    for (const panel of [await mostCalled(), byClass()]) if (panel) columns.append(panel);
    columns.append(make("section", { class: "panel" }, make("h2", {}, "Provenance"),
      make("dl", { class: "facts" }, ...settings.facts.flatMap((/** @type {{name: string, value: string}} */ fact) => [
        make("dt", {}, fact.name), make("dd", {}, make("bdi", {}, fact.value))]))));
    const notes = torchstone.listing.notes([...new Set(sections.flatMap((section) => section.notes))]);
    if (notes) columns.append(notes);
    root.append(columns);
    return { update: () => {} };

    /** The operators by number of calls, as bars. */
    async function mostCalled() {
      if (!page.index.sections.some((section) => section.name === "operators")) return null;
      const table = await page.table("operators");
      if (table.rows === 0) return null;
      const calls = table.columns.calls.values;
      const panel = make("section", { class: "panel" }, make("h2", {}, "Most called operators"), bars(Array.from({ length: Math.min(table.rows, MOST) }, (_, row) => {
        const op = torchstone.decode.textAt(table, "op", row);
        return { name: op, value: calls[row], text: torchstone.format.exact(calls[row]), act: () => page.go({ tab: "operators", op }) };
      })));
      if (table.rows > MOST) panel.append(make("p", {}, link(`All ${table.rows} operators`, () => page.go({ tab: "operators" }))));
      return panel;
    }

    /** The classes whose modules hold the parameters. */
    function byClass() {
      /** @type {{class_name: string, parameters: number, modules: number}[]} */
      const shares = settings.by_class;
      if (shares.length === 0) return null;
      const panel = make("section", { class: "panel" }, make("h2", {}, "Parameters by class"), bars(shares.slice(0, MOST).map((share) => ({
        name: share.class_name, value: share.parameters, text: torchstone.format.number(share.parameters, "count"),
        act: () => page.go({ tab: "modules", q: `class:${share.class_name}` }) }))));
      if (shares.length > MOST) panel.append(make("p", { class: "muted" }, `and ${shares.length - MOST} more classes`));
      return panel;
    }

    /** @param {{name: string, value: number, text: string, act: () => void}[]} rows */
    function bars(rows) {
      const most = Math.max(...rows.map((row) => row.value), 1);
      return make("ul", { class: "bars" }, ...rows.map((row) => make("li", {}, make("bdi", { class: "bar-name" }, link(row.name.slice(0, 200), row.act)),
        make("span", { class: "bar-track", "aria-hidden": "true" }, make("span", { class: "bar-fill", style: `--share: ${(100 * row.value) / most}%` })),
        make("span", { class: "bar-value" }, row.text))));
    }
  },
};
