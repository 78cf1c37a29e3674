/* The geometry of a drawing: boxes, edges, what is upstream and downstream. Numbers in, numbers out. */

const torchstoneDrawing = (() => {
  const ROW = 84; // as in torchstone/report/layout.py
  const BOX = 46;

  /** The rows of one drawing in a table sorted by drawing. @param {Float64Array} drawings @param {number} number @returns {[number, number]} */
  function range(drawings, number) {
    /** @param {number} wanted */
    const first = (wanted) => {
      let [low, high] = [0, drawings.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (drawings[middle] < wanted) low = middle + 1;
        else high = middle;
      }
      return low;
    };
    return [first(number), first(number + 1)];
  }

  /** @param {Table} boxes @param {Table} edges @param {number} number @returns {Drawing} */
  function read(boxes, edges, number) {
    const [first, end] = range(boxes.columns.drawing.values, number);
    const [firstEdge, endEdge] = range(edges.columns.drawing.values, number);
    const text = torchstone.decode.textAt;
    const value = (/** @type {string} */ name, /** @type {number} */ row) => boxes.columns[name].values[row];
    return {
      boxes: Array.from({ length: end - first }, (_, place) => {
        const row = first + place;
        return {
          place, row, kind: text(boxes, "kind", row), label: text(boxes, "label", row), short: text(boxes, "short", row), detail: text(boxes, "detail", row),
          target: value("target", row), count: value("count", row), failed: value("failed", row) === 1,
          x: value("x", row), y: value("row", row) * ROW, width: value("width", row),
        };
      }),
      edges: Array.from({ length: endEdge - firstEdge }, (_, place) => {
        const row = firstEdge + place;
        const { source, target, track } = edges.columns;
        return { source: source.values[row], target: target.values[row], track: track.values[row], text: text(edges, "text", row) };
      }),
    };
  }

  /** The line of an edge: straight down, or beside the boxes that it passes. @param {Drawing} drawing @param {BoxEdge} edge */
  function path({ boxes }, edge) {
    const [from, to] = [boxes[edge.source], boxes[edge.target]];
    const [x1, y1, x2, y2] = [from.x, from.y + BOX, to.x, to.y];
    if (Number.isNaN(edge.track)) {
      const bend = (y2 - y1) / 2;
      return `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`;
    }
    const gap = ROW - BOX;
    const [down, up] = [y1 + gap, y2 - gap];
    return `M${x1} ${y1}C${x1} ${y1 + gap / 2} ${edge.track} ${down - gap / 2} ${edge.track} ${down}L${edge.track} ${up}C${edge.track} ${up + gap / 2} ${x2} ${y2 - gap / 2} ${x2} ${y2}`;
  }

  /** The space that a drawing takes. @param {Drawing} drawing */
  function bounds({ boxes, edges }) {
    const tracks = edges.map((edge) => edge.track).filter((track) => !Number.isNaN(track));
    const left = Math.min(...boxes.map((box) => box.x - box.width / 2), ...tracks) - 24;
    const right = Math.max(...boxes.map((box) => box.x + box.width / 2), ...tracks) + 24;
    const top = Math.min(...boxes.map((box) => box.y)) - 24;
    return { left, top, width: right - left, height: Math.max(...boxes.map((box) => box.y)) + BOX + 24 - top };
  }

  /** Everything that flows into a box and out of it, through any number of boxes. @param {Drawing} drawing @param {number} place */
  function flow({ boxes, edges }, place) {
    const [up, down] = [new Uint8Array(boxes.length), new Uint8Array(boxes.length)];
    up[place] = down[place] = 1;
    for (const edge of edges) if (down[edge.source]) down[edge.target] = 1; // edges are sorted by source
    for (const edge of [...edges].reverse()) if (up[edge.target]) up[edge.source] = 1;
    return { up, down };
  }

  return { read, range, path, bounds, flow, ROW, BOX };
})();
torchstone.drawing = torchstoneDrawing;
