/* Buffers as rectangles: by address over ops, by lifetime over ops, and the cores of a chip by how full they are. */

torchstone.sections.buffers = {
  async mount(/** @type {HTMLElement} */ root, /** @type {Page} */ page) {
    const { make, button } = torchstone.elements;
    const { format, decode } = torchstone;
    const [LEFT, BOTTOM, TOP, HEIGHT, CORE] = [76, 34, 8, 360, 34];
    /** @type {Record<string, string>} */
    const COLOURS = {
      weight: "chart-2", constant: "chart-2", "prepared weight": "chart-2", "KV cache": "chart-4", input: "chart-3",
      activation: "chart-1", "kept output": "chart-5", "circular buffers": "chart-6", unknown: "soft",
    };
    const listed = await torchstone.listing.mount(root, page);
    const place = root.querySelector(".cards")?.nextSibling ?? null;
    /** @type {{draw: (state: State) => void}[]} */
    const drawings = [];
    for (const spec of page.section.settings.maps) {
      const table = await page.table(spec.table);
      const one = spec.kind === "cores" ? cores(spec, table) : blocks(spec, table);
      root.insertBefore(one.element, place);
      drawings.push(one);
    }
    const redraw = () => { for (const one of drawings) one.draw(page.state()); };
    torchstone.theme.listen(redraw);
    addEventListener("resize", redraw);
    return {
      async update(state) {
        await listed.update(state);
        for (const one of drawings) one.draw(state);
      },
    };

    /** @param {string} text @param {string} name */
    function swatch(text, name) {
      return make("span", { class: "swatch" }, make("i", { style: `background: var(--${name})` }), text);
    }

    /** A sharp canvas as wide as its panel. @param {HTMLCanvasElement} canvas @param {number} height */
    function prepared(canvas, height) {
      const ratio = globalThis.devicePixelRatio || 1;
      const width = Math.max(canvas.parentElement?.clientWidth ?? 0, 200);
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      canvas.style.height = `${height}px`;
      const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
      pen.scale(ratio, ratio);
      pen.font = "11.5px system-ui, sans-serif";
      return { pen, width };
    }

    /** @param {{kind: string, table: string, title: string}} spec @param {Table} table */
    function blocks(spec, table) {
      const { first, end, address, size } = table.columns;
      const kinds = Array.from({ length: table.rows }, (_, row) => decode.textAt(table, "kind", row));
      const byAddress = spec.kind === "addresses";
      const low = byAddress ? Math.min(...address.values) : 0;
      const high = byAddress ? address.values.reduce((most, at, row) => Math.max(most, at + size.values[row]), 0) : table.rows;
      const ops = end.values.reduce((most, value) => Math.max(most, value), 1);
      const canvas = /** @type {HTMLCanvasElement} */ (make("canvas", { class: "blocks", role: "img", "aria-label": spec.title }));
      const readout = make("p", { class: "muted readout" }, "Point at a rectangle to see its owner.");
      const names = [...new Set(kinds)];
      const legend = make("div", { class: "swatches" }, ...names.map((name) => swatch(name, COLOURS[name] ?? "soft")));
      const element = make("section", { class: "panel chart", "data-map": spec.table, "data-kind": spec.kind },
        make("div", { class: "toolbar" }, make("h2", {}, spec.title), make("span", { class: "spacer" }),
          button("Show half of the ops around the middle", "plus", () => zoom(0.5), "Zoom in"),
          button("Show all ops", "open", () => page.go({ zoom: "" }), "Reset zoom")),
        legend, canvas, readout);
      let view = { lo: 0, hi: ops };
      let width = 0;
      const x = (/** @type {number} */ op) => LEFT + ((op - view.lo) / (view.hi - view.lo)) * (width - LEFT - 8);
      const y = (/** @type {number} */ value) => HEIGHT - BOTTOM - ((value - low) / Math.max(high - low, 1)) * (HEIGHT - BOTTOM - TOP);
      const from = (/** @type {number} */ row) => (byAddress ? address.values[row] : row);
      const upTo = (/** @type {number} */ row) => (byAddress ? address.values[row] + size.values[row] : row + 1);

      /** @param {number} factor */
      function zoom(factor) {
        const middle = (view.lo + view.hi) / 2, half = Math.max(((view.hi - view.lo) * factor) / 2, 2);
        page.go({ zoom: `${Math.max(Math.floor(middle - half), 0)}-${Math.min(Math.ceil(middle + half), ops - 1)}` });
      }

      /** @param {State} state */
      function draw(state) {
        if (!canvas.isConnected) return;
        const [lo, hi] = torchstone.chart.zoomOf(state.zoom, ops);
        view = { lo, hi };
        const ready = prepared(canvas, HEIGHT);
        const pen = ready.pen;
        width = ready.width;
        const line = torchstone.theme.colour("line"), soft = torchstone.theme.colour("soft");
        pen.fillStyle = soft;
        pen.strokeStyle = line;
        pen.textAlign = "right";
        for (let step = 0; step <= 4; step += 1) {
          const value = low + ((high - low) * step) / 4;
          pen.beginPath();
          pen.moveTo(LEFT, y(value));
          pen.lineTo(width - 8, y(value));
          pen.stroke();
          pen.fillText(byAddress ? format.bytes(Math.round(value - low)) : format.exact(Math.round(value)), LEFT - 6, y(value) + 4);
        }
        pen.textAlign = "center";
        const marks = Math.max(Math.floor((width - LEFT) / 130), 1);
        for (let step = 0; step <= marks; step += 1) {
          const op = view.lo + ((view.hi - view.lo) * step) / marks;
          pen.textAlign = step === marks ? "right" : "center";
          pen.fillText(`op ${format.exact(Math.round(op))}`, x(op), HEIGHT - 10);
        }
        const paint = Object.fromEntries(names.map((name) => [name, torchstone.theme.colour(COLOURS[name] ?? "soft")]));
        const edge = torchstone.theme.colour("surface");
        for (let row = 0; row < table.rows; row += 1) {
          if (end.values[row] <= view.lo || first.values[row] >= view.hi) continue;
          const left = Math.max(x(first.values[row]), LEFT), right = Math.min(x(end.values[row]), width - 8);
          const top = y(upTo(row)), high = Math.max(y(from(row)) - top, 1);
          pen.fillStyle = paint[kinds[row]];
          pen.fillRect(left, top, Math.max(right - left, 1), high);
          if (high > 3 && right - left > 3) {
            pen.strokeStyle = edge;
            pen.strokeRect(left, top, right - left, high);
          }
        }
        element.dataset.drawn = `${view.lo}-${view.hi}`;
      }

      /** The rectangle under the pointer, the last one drawn. @param {MouseEvent} event */
      function rowAt(event) {
        const frame = canvas.getBoundingClientRect();
        const [px, py] = [event.clientX - frame.left, event.clientY - frame.top];
        for (let row = table.rows - 1; row >= 0; row -= 1) {
          if (px >= x(first.values[row]) && px <= Math.max(x(end.values[row]), x(first.values[row]) + 1) && py >= y(upTo(row)) && py <= Math.max(y(from(row)), y(upTo(row)) + 1)) return row;
        }
        return -1;
      }

      canvas.addEventListener("mousemove", (event) => {
        const row = rowAt(event);
        if (row < 0) return;
        readout.replaceChildren(make("strong", {}, decode.textAt(table, "owner", row)),
          ` ${kinds[row]}, ${format.full(size.values[row], "bytes")} per bank at address ${format.exact(address.values[row])}, ops ${format.exact(first.values[row])} to ${format.exact(end.values[row] - 1)}`);
      });
      canvas.addEventListener("click", (event) => {
        const row = rowAt(event);
        if (row >= 0) page.go({ tab: "memory", row: String(first.values[row]) });
      });
      return { element, draw };
    }

    /** The cores before one op, which can be chosen. @param {{title: string, chosen: number, names: [number, string][]}} spec @param {Table} table */
    function cores(spec, table) {
      const { op, x, y, tensors, programs } = table.columns;
      const columns = Math.max(...x.values) + 1, lines = Math.max(...y.values) + 1;
      const used = (/** @type {number} */ row) => tensors.values[row] + programs.values[row];
      const most = Array.from(tensors.values, (_, row) => used(row)).reduce((one, other) => Math.max(one, other), 1);
      /** @type {Map<number, number[]>} */
      const rowsOf = new Map();
      for (let row = 0; row < table.rows; row += 1) rowsOf.set(op.values[row], [...(rowsOf.get(op.values[row]) ?? []), row]);
      const fullest = (/** @type {number} */ chosen) => Math.max(...(rowsOf.get(chosen) ?? []).map(used), 0);
      const canvas = /** @type {HTMLCanvasElement} */ (make("canvas", { class: "blocks", role: "img", "aria-label": spec.title }));
      const readout = make("p", { class: "muted readout" }, "Point at a core to see what lies in its L1.");
      const choice = /** @type {HTMLSelectElement} */ (make("select", { "aria-label": "Op whose cores are shown", on: { change: () => { chosen = Number(choice.value); draw(); } } },
        ...spec.names.map(([number, name]) => make("option", { value: String(number) }, `${name.slice(0, 80)}: ${format.bytes(fullest(number))}${number === spec.chosen ? ", the peak" : ""}`))));
      const element = make("section", { class: "panel chart", "data-kind": "cores" },
        make("div", { class: "toolbar" }, make("h2", {}, spec.title), make("span", { class: "spacer" }), choice),
        make("div", { class: "swatches" }, swatch("tensors (at most)", "chart-1"), swatch("circular and dataflow buffers", "chart-6"), swatch("free, against the fullest core of all ops", "sunk")), canvas, readout);
      let cell = CORE;
      let chosen = spec.chosen;
      choice.value = String(chosen);

      function draw() {
        if (!canvas.isConnected) return;
        const { pen, width } = prepared(canvas, lines * CORE + 4);
        cell = Math.min((width - 4) / columns, 110);
        const paint = ["sunk", "chart-1", "chart-6"].map((name) => torchstone.theme.colour(name));
        for (const row of rowsOf.get(chosen) ?? []) {
          const left = x.values[row] * cell + 2, top = y.values[row] * CORE + 2;
          const wide = cell - 4;
          pen.fillStyle = paint[0];
          pen.fillRect(left, top, wide, CORE - 4);
          pen.fillStyle = paint[1];
          pen.fillRect(left, top, (wide * tensors.values[row]) / most, CORE - 4);
          pen.fillStyle = paint[2];
          pen.fillRect(left + (wide * tensors.values[row]) / most, top, (wide * programs.values[row]) / most, CORE - 4);
        }
        element.dataset.drawn = String(chosen);
      }

      canvas.addEventListener("mousemove", (event) => {
        const frame = canvas.getBoundingClientRect();
        const [column, line] = [Math.floor((event.clientX - frame.left) / cell), Math.floor((event.clientY - frame.top) / CORE)];
        const row = (rowsOf.get(chosen) ?? []).find((place) => x.values[place] === column && y.values[place] === line);
        if (row === undefined) return;
        readout.replaceChildren(make("strong", {}, `Core ${column}, ${line}`),
          ` tensors ${format.full(tensors.values[row], "bytes")}, circular and dataflow buffers ${format.full(programs.values[row], "bytes")}`);
      });
      return { element, draw };
    }
  },
};
