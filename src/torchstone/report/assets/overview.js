/* The first page: headline numbers of all sections, the failure, provenance, what is unknown. */

torchstone.sections.overview = {
  async mount(/** @type {HTMLElement} */ root, /** @type {Page} */ page) {
    const { make, icon, link } = torchstone.elements;
    const { settings } = page.section;
    const failure = settings.failure;

    if (failure) {
      root.append(make("section", { class: "panel failure", role: "note", "aria-label": "Failure" },
        make("h2", {}, icon("bad"), "The capture ended early"),
        make("p", {}, "In ", link(failure.module || "the model itself", () => page.go({ tab: "modules", node: failure.module })),
          failure.op ? make("span", {}, " at ", make("code", {}, failure.op)) : " between two ops", ". What ran before it is shown in this report."),
        make("pre", {}, failure.error),
        failure.arguments ? make("p", { class: "muted" }, "Arguments: ", make("code", {}, failure.arguments)) : null,
        failure.location ? make("p", { class: "muted" }, "At ", make("code", {}, failure.location)) : null));
    }
    root.append(torchstone.listing.cards(page.index.sections.flatMap((section) => section.cards)));

    const columns = make("div", { class: "columns" });
    const most = await mostCalled();
    if (most) columns.append(most);
    columns.append(make("section", { class: "panel" }, make("h2", {}, "Where this comes from"),
      make("dl", { class: "facts" }, ...settings.facts.flatMap((/** @type {{name: string, value: string}} */ fact) => [
        make("dt", {}, fact.name), make("dd", {}, make("bdi", {}, fact.value))]))));
    root.append(columns);
    const notes = torchstone.listing.notes(page.index.sections.flatMap((section) => section.notes));
    if (notes) root.append(notes);
    return { update: () => {} };

    /** The operators by number of calls, as bars. */
    async function mostCalled() {
      if (!page.index.sections.some((section) => section.name === "operators")) return null;
      const table = await page.table("operators");
      if (table.rows === 0) return null;
      const calls = table.columns.calls.values;
      const rows = Array.from({ length: Math.min(table.rows, 10) }, (_, row) => row);
      const panel = make("section", { class: "panel" }, make("h2", {}, "Most called operators"), make("ul", { class: "bars" }, ...rows.map((row) => {
        const op = torchstone.decode.textAt(table, "op", row);
        return make("li", {}, make("bdi", { class: "bar-name" }, link(op.slice(0, 200), () => page.go({ tab: "operators", op }))),
          make("span", { class: "bar-track", "aria-hidden": "true" }, make("span", { class: "bar-fill", style: `--share: ${(100 * calls[row]) / calls[0]}%` })),
          make("span", { class: "bar-value" }, torchstone.format.exact(calls[row])));
      })));
      if (table.rows > rows.length) panel.append(make("p", {}, link(`All ${table.rows} operators`, () => page.go({ tab: "operators" }))));
      return panel;
    }
  },
};
