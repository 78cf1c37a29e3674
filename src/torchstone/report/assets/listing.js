/* A section without a script of its own: its cards, charts and tables, one below the other. Also the toolbar of sections. */

const torchstoneListing = (() => {
  const SEARCHED = 8; // a table with fewer rows needs no search box
  const SENTENCES = 50; // up to this number of texts is a list, more is a table
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

  /** The sentence above everything else. @param {SectionIndex} section */
  function banner(section) {
    if (!section.banner) return null;
    /** @type {Record<string, string>} */
    const icons = { good: "ok", warning: "skipped", bad: "bad" };
    const { text, tone } = section.banner;
    return make("p", { class: `banner ${tone}`, role: "note" }, icons[tone] ? icon(icons[tone]) : null, make("bdi", {}, text));
  }

  /** @param {string[]} notes */
  function notes(notes) {
    if (notes.length === 0) return null;
    return make("section", { class: "panel notes" }, make("h2", {}, "Assumptions and unknowns"),
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

  /** A table of one text is a list of sentences. @param {string} title @param {string[]} texts */
  function sentences(title, texts) {
    return make("section", { class: "panel notes" }, make("h2", {}, title), make("ul", {}, ...texts.map((text) => make("li", {}, make("bdi", {}, text)))));
  }

  /** Names of ops and modules lead to them, where their sections are there. @param {Table} table @param {Page} page */
  async function linksOf(table, page) {
    const present = new Set(page.index.sections.map((section) => section.name));
    /** @type {Record<string, {text: (row: number) => string, act: (row: number) => void}>} */
    const links = {};
    for (const column of Object.values(table.columns)) {
      if (column.shown === "op" && present.has("operators")) {
        const text = (/** @type {number} */ row) => table.strings[column.values[row]];
        links[column.name] = { text, act: (row) => page.go({ tab: "operators", op: text(row) }) };
      } else if (column.shown === "row" && present.has("memory")) {
        const known = (/** @type {number} */ row) => Number.isFinite(column.values[row]);
        links[column.name] = { text: (row) => (known(row) ? `op ${torchstone.format.exact(column.values[row])}` : "–"), act: (row) => { if (known(row)) page.go({ tab: "memory", row: String(column.values[row]) }); } };
      } else if (column.shown === "module" && present.has("modules")) {
        const modules = await page.table("modules");
        const rowOf = torchstone.paths.rows(modules);
        const path = (/** @type {number} */ row) => torchstone.paths.ofRow(modules, rowOf.get(column.values[row]) ?? 0);
        links[column.name] = { text: (row) => (rowOf.has(column.values[row]) ? path(row) || "the model itself" : "outside any module"), act: (row) => page.go({ tab: "modules", node: path(row), q: "" }) };
      }
    }
    return links;
  }

  /**
   * A table with its search, its export and, below it, the chosen row with every value in full.
   * @param {{name: string, title: string, empty: string}} head @param {Table} table @param {Page} page @param {(row: number) => void} chosen
   */
  async function tablePanel({ name, title, empty }, table, page, chosen) {
    const links = await linksOf(table, page);
    const shown = Object.values(table.columns).filter((column) => column.shown !== "hidden");
    const words = shown.filter((column) => column.kind === "text").map((column) => column.name);
    const whole = make("div", { class: "whole-row" });
    const view = torchstone.table.mount(table, { label: title, empty, words, tall: false, links, choose: (row) => { tell(row); chosen(row); } });
    const search = searchBox({ label: `Search ${title}`, hint: "Search", onQuery: (query) => search.tell(view.filter(query), query) });

    /** @param {number} row */
    function tell(row) {
      whole.replaceChildren(torchstone.details.facts(shown.map((column) => [column.title || column.name,
        links[column.name] ? links[column.name].text(row) : column.kind === "text" ? torchstone.elements.cell(table, column, row) : torchstone.format.full(column.values[row], column.shown)])));
    }

    const element = make("section", { class: "panel" }, make("div", { class: "toolbar" }, make("h2", {}, title), table.rows > SEARCHED ? search.element : make("span", { class: "spacer" }),
      torchstone.download.buttons(name, table, view.order)), view.element, whole);
    return {
      element,
      /** @param {number} row */
      select(row) {
        if (row >= table.rows) return;
        view.select(row, true);
        tell(row);
      },
    };
  }

  /** @param {HTMLElement} root @param {Page} page @returns {Promise<Mounted>} */
  async function mount(root, page) {
    const { section } = page;
    const first = banner(section);
    if (first) root.append(first);
    root.append(cards(section.cards));
    const note = notes(section.notes);
    if (note) root.append(note);
    const charts = section.charts.length ? await torchstone.chart.mountAll(section.charts, page) : null;
    if (charts) root.append(charts.element);
    /** @type {Map<string, (row: number) => void>} */
    const views = new Map();
    for (const head of section.tables.filter((table) => table.title)) {
      const table = await page.table(head.name);
      const shown = Object.values(table.columns).filter((column) => column.shown !== "hidden");
      const charted = section.charts.some((chart) => chart.table === head.name);
      if (shown.length === 1 && shown[0].kind === "text" && table.rows <= SENTENCES && table.rows > 0) {
        root.append(sentences(head.title, Array.from(shown[0].values, (place) => table.strings[place])));
      } else {
        const panel = await tablePanel(head, table, page, charted ? (row) => page.go({ row: String(row) }) : () => {});
        if (charted) views.set(head.name, panel.select);
        root.append(panel.element);
      }
    }
    return {
      async update(state) {
        if (charts) await charts.update(state);
        if (/^\d+$/.test(state.row ?? "")) for (const select of views.values()) select(Number(state.row));
      },
    };
  }

  return { mount, banner, cards, notes, searchBox };
})();
torchstone.listing = torchstoneListing;
