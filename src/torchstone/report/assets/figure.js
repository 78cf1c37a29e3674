/* A chart's description and its columns -> what the chart library draws. No page, no library: numbers in, objects out. */

const torchstoneFigure = (() => {
  const MARKERS_UP_TO = 300; // visible rows; more markers make a zoom slow
  const BANDS_UP_TO = 200;
  const LABEL_PX = 64;
  const NARROW_PX = 480;
  const FAR = 2.5; // a level this many times above all data is named, not drawn to scale

  /** The library reads a few tags in texts; names must not become tags. @param {string} text */
  function plain(text) {
    const short = text.length > 120 ? `${text.slice(0, 120)}…` : text;
    return short.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("\n", " ");
  }

  /** Round steps of 1, 2, 5 - or 1, 2, 4, 8 ... in bytes - up to a value. @param {number} top @param {string} shown */
  function ticks(top, shown) {
    if (!(top > 0)) return [0];
    const wanted = top / 5;
    let step;
    if (shown === "bytes" || shown === "reading") {
      step = 2 ** Math.ceil(Math.log2(wanted));
    } else {
      const power = 10 ** Math.floor(Math.log10(wanted));
      step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= wanted) ?? 10 * power;
    }
    const count = Math.floor(top / step + 1e-9);
    return Array.from({ length: count + 1 }, (_, place) => place * step);
  }

  /** A row as the x axis names it. @param {ChartSpec} chart @param {Table} table @param {number} row */
  function place(chart, table, row) {
    return torchstone.format.exact(chart.x_column && row >= 0 ? table.columns[chart.x_column].values[row] : row);
  }

  /** The hover text of a row. @param {ChartSpec} chart @param {Table} table @param {string} series @param {number} row @param {number} span */
  function hoverText(chart, table, series, row, span) {
    const values = table.columns[series].values;
    const value = torchstone.format.number(values[row], chart.shown);
    const where = `${plain(chart.x_title)} ${place(chart, table, row)}`;
    const named = chart.hover.map((name) => {
      const column = table.columns[name];
      return plain(column.kind === "text" ? table.strings[column.values[row]] : `${column.title || name}: ${torchstone.format.number(column.values[row], column.shown)}`);
    });
    const title = chart.series.length > 1 ? `${plain(chart.series.find((one) => one.column === series)?.title ?? series)}: ` : "";
    return [`<b>${title}${span > 1 ? "highest " : ""}${value}</b>`, where, ...named].join("<br>");
  }

  /** @param {ChartSpec} chart @param {Table} table @param {ChartView} view @param {Record<string, string>} colours */
  function traces(chart, table, view, colours) {
    let span = 1;
    const drawn = chart.series.map((series, place) => {
      const values = table.columns[series.column].values;
      const reduced = torchstone.m4.reduce(values, view.lo, view.hi, Math.max(view.width, 50));
      span = Math.max(span, reduced.span);
      const colour = colours[`chart-${(place % 6) + 1}`];
      const bars = chart.shape === "bars" && reduced.span === 1;
      const few = reduced.rows.length <= MARKERS_UP_TO;
      return {
        type: bars ? "bar" : "scatter", name: plain(series.title), x: Array.from(reduced.rows),
        y: Array.from(reduced.rows, (row) => (Number.isNaN(values[row]) ? null : values[row])),
        customdata: Array.from(reduced.tops),
        text: Array.from(reduced.tops, (row) => hoverText(chart, table, series.column, row, reduced.span)),
        hovertemplate: "%{text}<extra></extra>",
        ...(bars ? { marker: { color: colour }, textposition: "none" } : {
          mode: few ? "lines+markers" : "lines", marker: { size: 5, color: colour },
          line: { color: colour, width: 1.5, shape: chart.shape === "line" ? "linear" : "hv" },
          ...(series.filled ? { fill: "tozeroy", fillcolor: `${colour}2e` } : {}),
        }),
      };
    });
    return { drawn, span };
  }

  /** The highest value in view, exactly, and where it is. @param {ChartSpec} chart @param {Table} table @param {ChartView} view */
  function peak(chart, table, view) {
    let found = { series: "", row: -1, value: NaN };
    for (const { column } of chart.series) {
      const values = table.columns[column].values;
      const { high } = torchstone.m4.extremes(values, view.lo, view.hi);
      if (view.hi > view.lo && (found.row < 0 || values[high] > found.value || Number.isNaN(found.value))) found = { series: column, row: high, value: values[high] };
    }
    return found;
  }

  /** @param {ChartSpec} chart @param {Table} table @param {ChartView} view @param {Record<string, string>} colours @param {number} top */
  function annotations(chart, table, view, colours, top) {
    const font = { size: 11, color: colours.ink };
    const box = { bgcolor: colours.surface, bordercolor: colours["strong-line"], borderpad: 3, borderwidth: 1, font };
    const marks = chart.marks.map((mark, number) => ({
      x: mark.row, y: table.columns[mark.series].values[mark.row], text: plain(mark.text), showarrow: true, arrowhead: 0, arrowwidth: 1,
      arrowcolor: colours.soft, ...(mark.row > (view.lo + view.hi) / 2 ? { ax: -16, xanchor: "right" } : { ax: 16, xanchor: "left" }), ay: -26 - 24 * number, ...box,
    }));
    const lines = chart.lines.map((line) => ({
      x: 1, xref: "paper", xanchor: "right", y: Math.min(line.value, top), yanchor: "bottom", showarrow: false, font: { ...font, color: colours.bad },
      text: plain(line.value > top ? `↑ ${line.text}` : line.text),
    }));
    const chosen = view.row < 0 ? [] : [{ x: view.row, y: 0, yref: "paper", yanchor: "bottom", showarrow: false, text: `${plain(chart.x_title)} ${place(chart, table, view.row)}`, ...box }];
    return [...marks, ...lines, ...chosen];
  }

  /** @param {ChartSpec} chart @param {ChartView} view @param {Record<string, string>} colours @param {number} top */
  function shapes(chart, view, colours, top) {
    const inView = chart.bands.map((band, place) => ({ ...band, place })).filter((band) => band.end > view.lo && band.first < view.hi);
    const bands = inView.length > BANDS_UP_TO ? [] : inView.map((band) => ({
      type: "rect", xref: "x", yref: "paper", x0: band.first, x1: band.end, y0: 0, y1: 1, line: { width: 0 }, layer: "below",
      fillcolor: band.place % 2 ? colours.sunk : "rgba(0,0,0,0)",
      ...(((Math.min(band.end, view.hi) - Math.max(band.first, view.lo)) / (view.hi - view.lo)) * view.width >= LABEL_PX
        ? { label: { text: plain(band.text), textposition: "top center", font: { size: 10.5, color: colours.soft } } } : {}),
    }));
    const lines = chart.lines.filter((line) => line.value <= top).map((line) => ({
      type: "line", xref: "paper", x0: 0, x1: 1, y0: line.value, y1: line.value, line: { color: colours.bad, width: 1.5, dash: "dash" },
    }));
    const chosen = view.row < 0 ? [] : [{ type: "line", yref: "paper", y0: 0, y1: 1, x0: view.row, x1: view.row, line: { color: colours.ember, width: 1.5 } }];
    return [...bands, ...lines, ...chosen];
  }

  /** @param {ChartSpec} chart @param {Table} table @param {ChartView} view @param {Record<string, string>} colours */
  function layout(chart, table, view, colours) {
    const { value } = peak(chart, table, view);
    const highest = value > 0 ? value : 1;
    const levels = chart.lines.map((line) => line.value).filter((level) => level <= FAR * highest);
    const top = Math.max(highest, ...levels) * (chart.bands.length ? 1.18 : 1.1); // room for the names of bands and levels
    const lowest = Math.min(0, ...chart.series.map(({ column }) => table.columns[column].values[torchstone.m4.extremes(table.columns[column].values, view.lo, view.hi).low] || 0));
    const narrow = view.width < NARROW_PX; // the legend has a line for each series, below the plot
    const marked = ticks(top, chart.shown);
    const sizes = chart.x_column ? Array.from({ length: view.hi - view.lo }, (_, step) => view.lo + step) : [];
    const named = sizes.length ? { tickmode: "array", tickvals: sizes, ticktext: sizes.map((row) => place(chart, table, row)) } : {};
    const axis = { gridcolor: colours.line, zerolinecolor: colours["strong-line"], linecolor: colours.line, tickfont: { color: colours.soft, size: 11.5 }, title: { font: { color: colours.soft, size: 12 } } };
    return {
      uirevision: "kept", hovermode: "x", dragmode: "zoom", bargap: 0.1, margin: { l: 76, r: 16, t: 14, b: narrow && chart.series.length > 1 ? 56 + 20 * chart.series.length : 44 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: "system-ui, sans-serif", color: colours.ink },
      showlegend: chart.series.length > 1, legend: narrow ? { orientation: "v", y: -0.2, yanchor: "top", x: 0, font: { color: colours.ink, size: 11 } } : { orientation: "h", y: 1.12, x: 0, font: { color: colours.ink } },
      hoverlabel: { bgcolor: colours.raised, bordercolor: colours["strong-line"], font: { color: colours.ink, size: 12 }, align: "left" },
      xaxis: { ...axis, range: [view.lo - 0.5, view.hi - 0.5], title: { ...axis.title, text: plain(chart.x_title) }, showgrid: false, tickformat: ",d", tickangle: 0, nticks: Math.max(Math.floor(view.width / 110), 2), ...named },
      yaxis: {
        ...axis, fixedrange: true, range: [lowest * 1.08, top],
        ...(lowest < 0 ? {} : { tickmode: "array", tickvals: marked, ticktext: marked.map((one) => torchstone.format.number(one, chart.shown === "reading" ? "bytes" : chart.shown)) }),
      },
      annotations: annotations(chart, table, view, colours, top), shapes: shapes(chart, view, colours, top),
    };
  }

  return { traces, layout, peak, place, ticks, hoverText, plain };
})();
torchstone.figure = torchstoneFigure;
