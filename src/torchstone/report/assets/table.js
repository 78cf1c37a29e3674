/* A table on the page: rows in view, sorting by any column, filtering, keyboard. */

const torchstoneTable = (() => {
  const { make, cell, link } = torchstone.elements;
  const ROW = 32;
  const NARROW = 640; // px, as in report.css
  const LOOKED_AT = 300; // rows
  const [CHARACTER, PADDING] = [7.6, 26]; // px

  /**
   * @param {Table} table
   * @param {{label: string, empty: string, words: string[], choose?: (row: number) => void, rows?: Int32Array,
   *   links?: Record<string, {text: (row: number) => string, act: (row: number) => void}>, tall?: boolean}} options
   * @returns {TableView}
   */
  function mount(table, { label, empty, words, choose, rows: only, links = {}, tall = true }) {
    const heads = Object.values(table.columns).filter((column) => column.shown !== "hidden");
    const all = only ?? new Int32Array(table.rows).map((_, row) => row);
    let kept = all;
    let order = all;
    let sortedBy = "";
    let falling = true;
    let selected = -1;

    const buttons = heads.map((head) => make("button", { type: "button", class: "sort", on: { click: () => sort(head.name) } }, head.title));
    const headers = heads.map((head, place) => make("div", { role: "columnheader", class: `table-cell ${head.shown}`, "aria-sort": "none" }, buttons[place]));
    const header = make("div", { class: "table-head", role: "rowgroup" }, make("div", { class: "table-row", role: "row" }, ...headers));
    const body = make("div", { class: "table-body", role: "rowgroup" });
    const least = heads.reduce((sum, head) => sum + Number(/** @type {RegExpMatchArray} */ (width(head).match(/\d+/))[0]), 0);
    const element = make("div", {
      class: tall ? "table tall" : "table", role: choose ? "grid" : "table", tabindex: "0", "aria-label": label, "aria-rowcount": all.length + 1,
      style: `--cells: ${heads.map(width).join(" ")}; --least: ${least}px; --rows: ${Math.min(all.length, 12)}`,
    }, header, body);
    const nothing = make("p", { class: "empty" }, empty);
    const rows = torchstone.rows.mount(element, body, { height: ROW, draw });

    /** Columns of text get room by their longest text among the first rows. @param {Column} head */
    function width(head) {
      const title = torchstone.elements.titleWidth(head.title);
      if (head.shown === "status") return `${Math.max(title, 140)}px`;
      if (head.kind !== "text" && head.shown !== "module") return `minmax(${Math.max(title, 112)}px, 8fr)`;
      let longest = 0;
      for (const row of all.subarray(0, LOOKED_AT)) longest = Math.max(longest, links[head.name] ? links[head.name].text(row).length : table.strings[head.values[row]].length);
      const most = innerWidth < NARROW ? 190 : 240;
      const least = Math.min(Math.max(title, Math.ceil(longest * CHARACTER + PADDING)), most);
      return `minmax(${least}px, ${Math.min(Math.max(longest, head.title.length), 60)}fr)`;
    }

    /** @param {number} place */
    function draw(place) {
      const row = order[place];
      const element = make("div", {
        role: "row", id: `${label}-${row}`.replaceAll(" ", "-"), class: "table-row", "aria-rowindex": place + 2,
        "aria-selected": choose ? (row === selected ? "true" : "false") : null, on: { click: () => select(row) },
      });
      for (const head of heads) {
        const found = links[head.name];
        const value = found ? link(found.text(row), () => found.act(row)) : cell(table, head, row);
        const one = make("div", { role: choose ? "gridcell" : "cell", class: `table-cell ${head.shown}` }, make("bdi", {}, value));
        if (typeof value === "string") one.title = head.kind === "text" ? value.slice(0, 2000) : torchstone.format.full(head.values[row], head.shown);
        element.append(one);
      }
      return element;
    }

    function refresh() {
      order = sortedBy ? torchstone.sorting.sorted(table, sortedBy, falling, kept) : kept;
      rows.setCount(order.length);
      if (order.length === 0) element.append(nothing);
      else nothing.remove();
      headers.forEach((cellOf, place) => cellOf.setAttribute("aria-sort", heads[place].name !== sortedBy ? "none" : falling ? "descending" : "ascending"));
    }

    /** @param {string} name */
    function sort(name) {
      const numeric = table.columns[name].kind !== "text";
      falling = sortedBy === name ? !falling : numeric;
      sortedBy = name;
      refresh();
    }

    /** @param {string} query */
    function filter(query) {
      const hits = torchstone.search.find(table, query, { words });
      kept = all.filter((row) => hits[row] === 1);
      refresh();
      return { hits: kept.length, rows: all.length };
    }

    /** @param {number} row @param {boolean} [quietly] */
    function select(row, quietly = false) {
      if (!choose) return;
      selected = row;
      element.setAttribute("aria-activedescendant", `${label}-${row}`.replaceAll(" ", "-"));
      const place = order.indexOf(row);
      if (place >= 0) rows.reveal(place);
      if (!quietly) choose(row);
    }

    element.addEventListener("keydown", (event) => {
      const step = /** @type {Record<string, number>} */ ({ ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: 15, PageUp: -15, Home: -Infinity, End: Infinity })[event.key];
      if (step === undefined || event.target !== element || !choose || order.length === 0 || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      const place = order.indexOf(selected);
      select(order[Math.min(Math.max(place + step, 0), order.length - 1)]);
    });
    queueMicrotask(refresh);
    return { element, filter, select, order: () => order };
  }

  return { mount };
})();
torchstone.table = torchstoneTable;
