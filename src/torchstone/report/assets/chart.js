/* Charts on the page: loading the library, zooming, choosing a row, exporting. */

const torchstoneChart = (() => {
  const { make, button } = torchstone.elements;
  const COLOURS = ["ink", "soft", "line", "strong-line", "surface", "raised", "sunk", "ember", "bad", "chart-1", "chart-2", "chart-3", "chart-4", "chart-5", "chart-6"];

  /* Nothing leaves the page: no cloud button, no server to send to, no logo that links away. */
  const LOCKED = Object.freeze({ showSendToCloud: false, plotlyServerURL: "", displaylogo: false, displayModeBar: false, responsive: true, scrollZoom: false });

  /** @type {Promise<any> | null} */
  let library = null;

  /** Run the embedded chart library, once. @returns {Promise<any>} */
  function load() {
    library ??= (async () => {
      const blob = /** @type {HTMLElement} */ (document.getElementById("plotly"));
      const script = document.createElement("script");
      script.textContent = new TextDecoder().decode(await torchstone.decode.unpackBytes(/** @type {string} */ (blob.textContent)));
      document.head.append(script);
      return /** @type {any} */ (globalThis).Plotly;
    })();
    return library;
  }

  function colours() {
    return Object.fromEntries(COLOURS.map((name) => [name, torchstone.theme.colour(name)]));
  }

  /** The rows in view, from an address like 100-250. @param {string | undefined} text @param {number} rows @returns {[number, number]} */
  function zoomOf(text, rows) {
    const found = /^(\d+)-(\d+)$/.exec(text ?? "");
    if (!found) return [0, rows];
    const lo = Math.min(Number(found[1]), Math.max(rows - 1, 0));
    return [lo, Math.max(Math.min(Number(found[2]) + 1, rows), lo + 1)];
  }

  /** @param {ChartSpec} chart @param {Page} page */
  async function mount(chart, page) {
    const table = await page.table(chart.table);
    const plot = make("div", { class: "plot", role: "img", "aria-label": chart.title });
    const readout = make("p", { class: "muted readout" });
    const element = make("section", { class: "panel chart", "data-chart": chart.name });
    const toolbar = make("div", { class: "toolbar" }, make("h2", {}, chart.title));
    element.append(toolbar);
    if (chart.note) element.append(make("p", { class: "muted" }, chart.note));
    if (table.rows === 0) {
      element.append(make("p", { class: "empty" }, "No data to plot."));
      return { element, update: () => {} };
    }
    if (!page.index.plotly) {
      element.append(make("p", { class: "empty" }, "Charts require plotly: pip install 'torchstone[report]', then render this report again."), readout);
      tell(torchstone.figure.peak(chart, table, { lo: 0, hi: table.rows, width: 0, row: -1 }), 1);
      return { element, update: () => {} };
    }
    toolbar.append(make("span", { class: "spacer" }),
      button("Show all rows", "open", () => torchstone.state.set({ zoom: "" }), "Reset zoom"),
      button("Save this chart as PNG", "download", () => Plotly.downloadImage(plot, { format: "png", filename: chart.name, width: 1400, height: 560, scale: 2 }), "PNG"),
      torchstone.download.buttons(chart.name, only(table), () => Array.from({ length: view.hi - view.lo }, (_, place) => view.lo + place)));
    element.append(plot, readout);
    const Plotly = await load();
    let view = { lo: 0, hi: table.rows, width: 1000, row: -1 };
    let ready = false;

    /** For export: what the chart shows and names. @param {Table} from @returns {Table} */
    function only(from) {
      const names = [...(chart.x_column ? [chart.x_column] : []), ...chart.hover, ...chart.series.map((series) => series.column)];
      return { ...from, columns: Object.fromEntries(names.map((name) => [name, { ...from.columns[name], shown: "text" }])) };
    }

    /** @param {{series: string, row: number, value: number}} peak @param {number} span */
    function tell(peak, span) {
      const series = chart.series.find((one) => one.column === peak.series);
      const name = chart.hover.length && peak.row >= 0 ? table.columns[chart.hover[0]] : null;
      const words = name ? `, ${name.kind === "text" ? table.strings[name.values[peak.row]].slice(0, 200) : name.values[peak.row]}` : "";
      readout.dataset.peak = String(peak.value);
      readout.dataset.row = String(peak.row);
      readout.replaceChildren(make("strong", {}, `Highest in view: ${torchstone.format.full(peak.value, chart.shown)}`),
        ` at ${chart.x_title} ${torchstone.figure.place(chart, table, peak.row)}${chart.series.length > 1 ? `, ${series?.title}` : ""}${words}. `,
        span > 1 ? `Each pixel column stands for ${torchstone.format.exact(Math.ceil(span))} rows and shows their first, lowest, highest and last.` : "Every row is drawn.");
    }

    async function draw() {
      view.width = Math.max(plot.clientWidth - 92, 100);
      const colour = colours();
      const { drawn, span } = torchstone.figure.traces(chart, table, view, colour);
      await Plotly.react(plot, drawn, torchstone.figure.layout(chart, table, view, colour), LOCKED);
      tell(torchstone.figure.peak(chart, table, view), span);
      if (!ready) listen();
      ready = true;
      element.dataset.drawn = `${view.lo}-${view.hi}`;
    }

    function listen() {
      const plotted = /** @type {any} */ (plot);
      plotted.on("plotly_relayout", (/** @type {Record<string, any>} */ change) => {
        if (change["xaxis.autorange"]) torchstone.state.set({ zoom: "" });
        const [from, to] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
        if (from === undefined || to === undefined) return;
        const lo = Math.max(Math.ceil(from), 0);
        torchstone.state.set({ zoom: `${lo}-${Math.max(Math.min(Math.floor(to), table.rows - 1), lo)}` });
      });
      plotted.on("plotly_click", (/** @type {any} */ event) => torchstone.state.set({ row: String(event.points[0].customdata) }));
    }

    torchstone.theme.listen(() => { if (plot.isConnected) draw(); });
    return {
      element,
      /** @param {State} state */
      update(state) {
        const [lo, hi] = zoomOf(state.zoom, table.rows);
        view = { ...view, lo, hi, row: /^\d+$/.test(state.row ?? "") ? Math.min(Number(state.row), table.rows - 1) : -1 };
        return draw();
      },
    };
  }

  /**
   * All charts of a section; those with a tab are shown one tab at a time.
   * @param {ChartSpec[]} charts @param {Page} page
   */
  async function mountAll(charts, page) {
    const element = make("div", { class: "charts" });
    if (page.index.plotly) load(); // unpacked while the tables are
    const tabs = [...new Set(charts.map((chart) => chart.tab).filter(Boolean))];
    const buttons = tabs.map((tab) => make("button", { type: "button", class: "button", on: { click: () => torchstone.state.set({ chart: tab }) } }, tab));
    if (tabs.length > 1) element.append(make("div", { class: "group chart-tabs", role: "group", "aria-label": "Charts" }, ...buttons));
    /** @type {Map<string, Promise<{element: HTMLElement, update: (state: State) => any}>>} being mounted or done: two updates at once share one */
    const mounted = new Map();

    /** @param {State} state */
    async function update(state) {
      const tab = tabs.includes(state.chart) ? state.chart : tabs[0];
      buttons.forEach((one, place) => one.setAttribute("aria-pressed", tabs[place] === tab ? "true" : "false"));
      for (const chart of charts) {
        const visible = !chart.tab || chart.tab === tab;
        let one = mounted.get(chart.name);
        if (!one && visible) {
          one = mount(chart, page).then((made) => {
            element.append(made.element);
            return made;
          });
          mounted.set(chart.name, one);
        }
        if (!one) continue;
        const made = await one;
        made.element.hidden = !visible;
        if (visible) await made.update(state);
      }
    }

    return { element, update };
  }

  return { mount, mountAll, zoomOf, LOCKED };
})();
torchstone.chart = torchstoneChart;
