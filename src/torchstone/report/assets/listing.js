/* A section without a script of its own: its cards, charts and tables, one below the other. Also the toolbar of sections. */

const torchstoneListing = (() => {
  const { make, icon } = torchstone.elements;

  /** @param {Card[]} cards */
  function cards(cards) {
    /** @type {Record<string, string>} */
    const icons = { good: "ok", warning: "skipped", bad: "bad" };
    return make("div", { class: "cards" }, ...cards.map((card) => make("div", { class: `card ${card.tone}` },
      make("div", { class: "card-title" }, icons[card.tone] ? icon(icons[card.tone]) : null, card.title),
      make("div", { class: "card-value" }, make("bdi", {}, card.value)),
      make("div", { class: "card-detail" }, make("bdi", {}, card.detail)))));
  }

  /** @param {string[]} notes */
  function notes(notes) {
    if (notes.length === 0) return null;
    return make("section", { class: "panel notes" }, make("h2", {}, "Not known, or made up"),
      make("ul", {}, ...notes.map((note) => make("li", {}, make("bdi", {}, note.length > 1000 ? `${note.slice(0, 1000)}…` : note)))));
  }

  /**
   * A search box that says how many rows are left.
   * @param {{label: string, hint: string, onQuery: (query: string) => void, onStep?: (step: number) => void}} options
   */
  function searchBox({ label, hint, onQuery, onStep }) {
    const input = /** @type {HTMLInputElement} */ (make("input", { type: "search", class: "search", placeholder: hint, "aria-label": label, spellcheck: "false", autocomplete: "off" }));
    const count = make("span", { class: "count", role: "status" });
    input.addEventListener("input", () => onQuery(input.value));
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && onStep) onStep(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") {
        if (input.value) { input.value = ""; onQuery(""); } else input.blur();
      }
    });
    return {
      element: make("div", { class: "search-box" }, icon("search"), input, count),
      input,
      /** @param {{hits: number, rows: number}} found @param {string} query */
      tell: (found, query) => { count.textContent = query.trim() ? `${torchstone.format.exact(found.hits)} of ${torchstone.format.exact(found.rows)}` : ""; },
    };
  }

  /** @param {HTMLElement} root @param {Page} page @returns {Promise<Mounted>} */
  async function mount(root, page) {
    const { section } = page;
    root.append(cards(section.cards));
    const note = notes(section.notes);
    if (note) root.append(note);
    const charts = section.charts.length ? await torchstone.chart.mountAll(section.charts, page) : null;
    if (charts) root.append(charts.element);
    /** @type {Map<string, any>} */
    const views = new Map();
    for (const { name, title, empty } of section.tables.filter((table) => table.title)) {
      const table = await page.table(name);
      const words = Object.values(table.columns).filter((column) => column.kind === "text").map((column) => column.name);
      const charted = section.charts.some((chart) => chart.table === name);
      const choose = charted ? (/** @type {number} */ row) => page.go({ row: String(row) }) : undefined;
      const view = torchstone.table.mount(table, { label: title, empty, words, tall: false, choose });
      if (charted) views.set(name, view);
      const search = searchBox({ label: `Search ${title}`, hint: "Search", onQuery: (query) => search.tell(view.filter(query), query) });
      root.append(make("section", { class: "panel" }, make("div", { class: "toolbar" }, make("h2", {}, title), search.element,
        torchstone.download.buttons(name, table, view.order)), view.element));
    }
    return {
      async update(state) {
        if (charts) await charts.update(state);
        if (/^\d+$/.test(state.row ?? "")) for (const view of views.values()) view.select(Number(state.row), true);
      },
    };
  }

  return { mount, cards, notes, searchBox };
})();
torchstone.listing = torchstoneListing;
