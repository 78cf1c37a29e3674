/* The cost section: the page's own listing, and the roofline of the device with a dot for each op signature. */

torchstone.sections.cost = {
  async mount(/** @type {HTMLElement} */ root, /** @type {Page} */ page) {
    const { make, makeSvg } = torchstone.elements;
    const WIDTH = 960, HEIGHT = 380, LEFT = 90, RIGHT = 24, TOP = 20, BOTTOM = 52;
    const mounted = await torchstone.listing.mount(root, page);
    const panel = await roofline();
    if (panel) root.insertBefore(panel, root.children[1] ?? null);
    return mounted;

    /** Dots in logarithmic scales under the roof: FLOPs per byte across, FLOP/s upwards. */
    async function roofline() {
      const roof = page.section.settings.roof;
      const table = await page.table("cost.signatures");
      const { intensity, flops, predicted } = table.columns;
      const rows = Array.from({ length: table.rows }, (_, row) => row)
        .filter((row) => intensity.values[row] > 0 && predicted.values[row] > 0);
      if (!roof || rows.length === 0) return null;
      const rates = rows.map((row) => flops.values[row] / predicted.values[row]);
      const knee = roof.peak_flops / roof.memory_bytes_per_s;
      const across = scale([...rows.map((row) => intensity.values[row]), knee], LEFT, WIDTH - RIGHT);
      const up = scale([...rates, roof.peak_flops], HEIGHT - BOTTOM, TOP);
      const longest = Math.max(...rows.map((row) => predicted.values[row]));
      const dots = rows.map((row, place) => makeSvg("circle", {
        cx: across.at(intensity.values[row]), cy: up.at(rates[place]),
        r: 3 + 9 * Math.sqrt(predicted.values[row] / longest), class: `dot ${torchstone.decode.textAt(table, "bound", row)}`,
      }, makeSvg("title", {}, hoverText(table, row, rates[place]))));
      const svg = makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "roofline", role: "img", "aria-label": `Roofline of ${roof.title}` },
        ...grid(across, up),
        makeSvg("path", { class: "roof", d: `M${across.at(across.low)} ${up.at(Math.max(across.low * roof.memory_bytes_per_s, up.low))}`
          + ` L${across.at(knee)} ${up.at(roof.peak_flops)} L${across.at(across.high)} ${up.at(roof.peak_flops)}` }),
        ...dots.reverse());
      return make("section", { class: "panel" }, make("h2", {}, `Roofline of ${roof.title}`),
        make("p", { class: "muted" }, "Each dot is an op signature, as large as its predicted time. Dots under the slope wait for memory, dots under the flat part for arithmetic, dots far below for the launch. Predicted, not measured."),
        svg);
    }

    /** @param {Table} table @param {number} row @param {number} rate */
    function hoverText(table, row, rate) {
      const { format, decode } = torchstone;
      return [decode.textAt(table, "op", row), decode.textAt(table, "result", row),
        `${format.number(table.columns.predicted.values[row], "seconds")} predicted, bound by ${decode.textAt(table, "bound", row)}`,
        `${format.number(table.columns.intensity.values[row], "number")} FLOPs per byte, ${format.number(rate, "count")}FLOP/s`].join("\n");
    }

    /** A logarithmic scale over whole powers of ten. @param {number[]} values @param {number} from @param {number} to */
    function scale(values, from, to) {
      const low = 10 ** Math.floor(Math.log10(Math.min(...values)));
      const high = 10 ** Math.ceil(Math.log10(Math.max(...values)) + 1e-9);
      const span = Math.max(Math.log10(high / low), 1);
      return { low, high, powers: Math.round(span), at: (/** @type {number} */ value) => from + ((to - from) * Math.log10(value / low)) / span };
    }

    /** @param {ReturnType<typeof scale>} across @param {ReturnType<typeof scale>} up */
    function grid(across, up) {
      const lines = [];
      for (let power = 0; power <= across.powers; power += 1) {
        const value = across.low * 10 ** power, x = across.at(value);
        lines.push(makeSvg("path", { class: "grid", d: `M${x} ${TOP} V${HEIGHT - BOTTOM}` }),
          makeSvg("text", { x, y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, String(Number(value.toPrecision(3)))));
      }
      for (let power = 0; power <= up.powers; power += 1) {
        const value = up.low * 10 ** power, y = up.at(value);
        lines.push(makeSvg("path", { class: "grid", d: `M${LEFT} ${y} H${WIDTH - RIGHT}` }),
          makeSvg("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, `${torchstone.format.number(value, "count")}FLOP/s`));
      }
      lines.push(makeSvg("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 10, "text-anchor": "middle" }, "FLOPs per byte"));
      return lines;
    }
  },
};
