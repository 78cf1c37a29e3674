/* The module tree on the page: rows in view, keyboard, selection, search. */

const torchstoneTreeview = (() => {
  const { make, icon, cell } = torchstone.elements;
  const ROW = 30;
  const OPENED_ROWS = 40; // the tree opens as deep as this many rows allow
  const DEEPEST = 12;

  /** @param {Table} table @param {TreeShape} tree */
  function paths(table, tree) {
    const names = table.columns.name.values;
    const modules = table.columns.module.values;
    /** @type {Map<string, number> | null} */
    let known = null;
    /** @type {string[]} */
    let all = [];
    function every() {
      if (known) return all;
      all = new Array(table.rows);
      known = new Map();
      for (let row = 0; row < table.rows; row += 1) {
        const above = tree.parent[row];
        const before = above < 0 ? "" : all[above];
        const own = modules[row] < 0 || above < 0 ? before : before ? `${before}.${table.strings[names[row]]}` : table.strings[names[row]];
        all[row] = own;
        if (modules[row] >= 0) known.set(own, row);
      }
      return all;
    }
    return {
      /** @param {number} row */
      pathOf: (row) => torchstone.paths.ofRow(table, row),
      every,
      /** @param {string} path */
      rowOf: (path) => (every(), /** @type {Map<string, number>} */ (known).get(path) ?? -1),
    };
  }

  /** What to open first: the top, as deep as fits, and the way to a failure; gives the row to start at or -1. @param {Table} table @param {TreeShape} tree @param {Uint8Array} open */
  function openWhatMatters(table, tree, open) {
    const status = table.columns.status;
    const bad = status ? new Set(["failed", "ir_export_failed", "crashed", "wrong"].map((word) => table.strings.indexOf(word))) : new Set();
    bad.delete(-1);
    let deepest = -1;
    for (let row = 0; row < table.rows && status; row += 1) {
      if (bad.has(status.values[row]) && (deepest < 0 || tree.depth[row] > tree.depth[deepest])) deepest = row;
    }
    const modules = table.columns.module.values;
    for (let depth = 1; depth <= DEEPEST; depth += 1) {
      const candidate = open.map((_, row) => (tree.depth[row] < depth && modules[row] >= 0 ? 1 : 0));
      if (depth > 1 && torchstone.tree.visible(tree, candidate, null).length > OPENED_ROWS) break;
      open.set(candidate);
    }
    if (deepest >= 0) torchstone.tree.openAbove(tree, open, deepest);
    return deepest;
  }

  /** @param {Table} table @returns {TreeState} */
  function begin(table) {
    const open = new Uint8Array(table.rows);
    const selected = Math.max(openWhatMatters(table, torchstone.tree.shape(table.columns.parent.values), open), 0);
    return { open, selected, kept: null, hits: null, views: [] };
  }

  /**
   * @param {Table} table structure and columns together
   * @param {{heads: ColumnHead[], choose: (row: number) => void, label: string, id?: string, state?: TreeState, mark?: (row: number) => TreeMark | null}} options
   *   two trees of the same rows that are given the same state move together
   * @returns {TreeView}
   */
  function mount(table, { heads, choose, label, id = "module", state = begin(table), mark = () => null }) {
    const tree = torchstone.tree.shape(table.columns.parent.values);
    const path = paths(table, tree);
    const { open } = state;
    const modules = table.columns.module.values.filter((module) => module >= 0).length;
    let shown = new Int32Array(0);

    const header = make("div", { class: "tree-head", "aria-hidden": "true" }, make("span", { class: "tree-name" }, "Module"));
    for (const head of heads) header.append(make("span", { class: `tree-cell ${head.shown}` }, head.title));
    const body = make("div", { class: "tree-body", role: "tree", tabindex: "0", "aria-label": label });
    const least = heads.reduce((sum, head) => sum + Number(/** @type {RegExpMatchArray} */ (width(head).match(/\d+/))[0]), 0);
    const element = make("div", { class: "tree", style: `--cells: ${heads.map(width).join(" ")}; --rest: ${least}px` }, header, body);
    const rows = torchstone.rows.mount(element, body, { height: ROW, draw });

    /** @param {ColumnHead} head */
    function width(head) {
      return head.shown === "text" ? "minmax(184px, 1fr)" : head.shown === "status" ? "148px" : head.bar ? "156px" : `${Math.max(torchstone.elements.titleWidth(head.title), 88)}px`;
    }

    /** @param {ColumnHead} head @param {number} row */
    function drawCell(head, row) {
      const column = table.columns[head.name];
      const element = make("span", { class: `tree-cell ${head.shown}` });
      const value = cell(table, column, row);
      if (head.bar && column.values[0] > 0 && !Number.isNaN(column.values[row])) {
        const share = Math.min(column.values[row] / column.values[0], 1);
        element.append(make("span", { class: "bar", style: `--share: ${(share * 100).toFixed(2)}%` }));
      }
      if (head.shown === "text") element.title = String(value);
      element.append(make("span", {}, value));
      return element;
    }

    /** @param {number} place in the list of shown rows */
    function draw(place) {
      const row = shown[place];
      const parent = torchstone.tree.hasChildren(tree, row);
      const members = table.columns.members.values[row];
      const marked = mark(row);
      const element = make("div", {
        role: "treeitem", id: `${id}-${row}`, class: `tree-row${members ? " fold" : ""}${state.hits && state.hits[row] ? " hit" : ""}${marked ? ` ${marked.tone}` : ""}`,
        "aria-level": tree.depth[row] + 1, "aria-setsize": tree.siblings[row], "aria-posinset": tree.place[row],
        "aria-expanded": parent ? (open[row] ? "true" : "false") : null, "aria-selected": row === state.selected ? "true" : "false",
        on: { click: () => pick(row) },
      });
      const twisty = make("span", { class: parent ? "twisty" : "twisty none", "aria-hidden": "true" });
      if (parent) {
        twisty.append(icon("open"));
        twisty.addEventListener("click", (event) => { event.stopPropagation(); toggle(row); });
      }
      const title = make("span", { class: "tree-name", style: `--depth: ${tree.depth[row]}` }, twisty,
        members ? make("span", { class: "times" }, `${members} ×`) : null,
        marked ? make("span", { class: "mark", title: marked.text, role: "img", "aria-label": marked.text }, marked.sign) : null,
        ...["name", "class"].map((part) => make("bdi", { class: part }, clipped(torchstone.decode.textAt(table, part, row)))));
      title.title = `${path.pathOf(row) || "model"} · ${torchstone.decode.textAt(table, "class_path", row)}`.slice(0, 500);
      element.append(title, ...heads.map((head) => drawCell(head, row)));
      return element;
    }

    /** Very long names are cut on the page only; details show them whole. @param {string} text */
    function clipped(text) {
      return text.length > 200 ? `${text.slice(0, 200)}…` : text;
    }

    function refresh() {
      for (const one of state.views) one.draw();
    }

    state.views.push({
      draw() {
        shown = torchstone.tree.visible(tree, open, state.kept);
        rows.setCount(shown.length);
        body.setAttribute("aria-activedescendant", `${id}-${state.selected}`);
      },
      reveal: () => rows.reveal(shown.indexOf(state.selected)),
    });

    /** @param {number} row @param {boolean} [to] */
    function toggle(row, to = !open[row]) {
      open[row] = to ? 1 : 0;
      if (to && state.kept) for (let below = row + 1; below < tree.end[row]; below = tree.end[below]) state.kept[below] = 1;
      refresh();
    }

    /** @param {number} row @param {boolean} [quietly] without telling the page */
    function select(row, quietly = false) {
      if (row < 0) return;
      state.selected = row;
      torchstone.tree.openAbove(tree, open, row);
      if (state.kept) for (let above = row; above >= 0; above = tree.parent[above]) state.kept[above] = 1;
      refresh();
      for (const one of state.views) one.reveal();
      if (!quietly) choose(row);
    }

    /** @param {number} row */
    function pick(row) {
      body.focus({ preventScroll: true });
      select(row);
    }

    /** @param {KeyboardEvent} event */
    function onKey(event) {
      const { selected } = state;
      const place = shown.indexOf(selected);
      const page = Math.max(Math.floor(element.clientHeight / ROW) - 2, 1);
      /** @param {number} to */
      const move = (to) => select(shown[Math.min(Math.max(to, 0), shown.length - 1)]);
      /** @type {Record<string, () => void>} */
      const keys = {
        ArrowDown: () => move(place + 1), ArrowUp: () => move(place - 1), j: () => move(place + 1), k: () => move(place - 1),
        Home: () => move(0), End: () => move(shown.length - 1), PageDown: () => move(place + page), PageUp: () => move(place - page),
        ArrowRight: () => (torchstone.tree.hasChildren(tree, selected) && !open[selected] ? toggle(selected, true) : move(place + 1)),
        ArrowLeft: () => (open[selected] && torchstone.tree.hasChildren(tree, selected) ? toggle(selected, false) : select(tree.parent[selected])),
        Enter: () => toggle(selected), " ": () => toggle(selected), "*": openSiblings,
      };
      const act = keys[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      act();
    }

    function openSiblings() {
      const above = tree.parent[state.selected];
      for (let row = 0; row < table.rows; row += 1) if (tree.parent[row] === above) open[row] = 1;
      refresh();
    }

    /** @param {string} query */
    function filter(query) {
      if (query.trim() === "") {
        state.kept = state.hits = null;
        refresh();
        return { hits: modules, rows: modules };
      }
      return keep(torchstone.search.find(table, query, { words: ["name", "class"], dotted: byPath }));
    }

    /** Show these rows and the way to each. @param {Uint8Array} found */
    function keep(found) {
      let count = 0;
      for (let row = 0; row < table.rows; row += 1) {
        if (table.columns.module.values[row] < 0) found[row] = 0;
        count += found[row];
      }
      const above = torchstone.tree.withAncestors(tree, found);
      for (let row = 0; row < table.rows; row += 1) if (above[row] && !found[row]) open[row] = 1;
      [state.hits, state.kept] = [found, above];
      refresh();
      return { hits: count, rows: modules };
    }

    /** @param {string} text @param {Uint8Array} found */
    function byPath(text, found) {
      const all = path.every();
      for (let row = 0; row < found.length; row += 1) if (found[row] && !all[row].toLowerCase().includes(text)) found[row] = 0;
    }

    /** @param {number} step */
    function stepHit(step) {
      const { hits, selected } = state;
      if (!hits) return;
      const found = shown.filter((row) => hits[row] === 1);
      if (found.length === 0) return;
      const next = step > 0 ? found.findIndex((row) => row > selected) : found.findLastIndex((row) => row < selected);
      select(found[next < 0 ? (step > 0 ? 0 : found.length - 1) : next]);
    }

    body.addEventListener("keydown", onKey);
    return {
      element, state, filter, keep, select, stepHit, selected: () => state.selected, rowOf: path.rowOf, pathOf: path.pathOf,
      openAll: () => { open.fill(1); refresh(); },
      closeAll: () => { open.fill(0); open[0] = 1; refresh(); },
    };
  }

  return { mount };
})();
torchstone.treeview = torchstoneTreeview;
