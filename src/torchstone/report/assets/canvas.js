/* A drawing on the page: boxes and edges as SVG, pan and zoom, keys, SVG and PNG files. */

const torchstoneCanvas = (() => {
  const { make, makeSvg } = torchstone.elements;
  const { BOX } = torchstone.drawing;
  const [CLOSEST, READABLE, FARTHEST] = [3, 0.66, 0.05];

  /** @param {string} text @param {number} px @param {number} character */
  function fitted(text, px, character) {
    const most = Math.max(Math.floor(px / character), 4);
    return text.length > most ? `${text.slice(0, most - 1)}…` : text;
  }

  /** @param {Box} box */
  function boxElement(box) {
    const left = box.x - box.width / 2;
    const group = makeSvg("g", { class: `box ${box.kind}${box.failed ? " failed" : ""}`, role: "button", tabindex: "-1", "data-place": box.place });
    const label = box.kind === "fold" ? `${box.count} × ${box.label}` : box.short;
    if (box.kind === "fold") for (const shift of [8, 4]) group.append(makeSvg("rect", { class: "behind", x: left + shift, y: box.y - shift, width: box.width, height: BOX, rx: 9 }));
    const round = box.kind === "input" || box.kind === "output" ? BOX / 2 : 9;
    group.append(makeSvg("rect", { x: left, y: box.y, width: box.width, height: BOX, rx: round }, makeSvg("title", {}, `${label}\n${box.detail}`.slice(0, 1000))),
      makeSvg("text", { class: "label", x: box.x, y: box.y + (box.detail ? 19 : 27), "text-anchor": "middle" }, fitted((box.failed ? "✕ " : "") + label, box.width - 18, 7.2)),
      makeSvg("text", { class: "detail", x: box.x, y: box.y + 35, "text-anchor": "middle" }, fitted(box.failed ? `failed · ${box.detail}` : box.detail, box.width - 14, 6.4)));
    return group;
  }

  /** @param {string} id */
  function arrow(id) {
    return makeSvg("marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" }, makeSvg("path", { d: "M0 0L8 4L0 8z" }));
  }

  /** @param {{choose: (place: number) => void, open: (place: number) => void, up: () => void}} actions */
  function mount({ choose, open, up }) {
    const scene = makeSvg("g", { class: "scene" });
    const svg = makeSvg("svg", { class: "drawing", "aria-label": "Graph", role: "group" },
      makeSvg("defs", {}, arrow("arrow"), arrow("arrow-lit")), scene);
    const element = make("div", { class: "canvas" });
    element.append(svg);
    /** @type {Drawing} */
    let drawing = { boxes: [], edges: [] };
    let at = { x: 0, y: 0, scale: 1 };
    let chosen = -1;
    /** @type {SVGElement[]} */
    let boxes = [];
    /** @type {SVGElement[]} */
    let lines = [];

    function move() {
      scene.setAttribute("transform", `translate(${at.x} ${at.y}) scale(${at.scale})`);
    }

    /** @param {number} factor @param {number} [x] @param {number} [y] */
    function zoom(factor, x = element.clientWidth / 2, y = element.clientHeight / 2) {
      const scale = Math.min(Math.max(at.scale * factor, FARTHEST), CLOSEST);
      at = { x: x - ((x - at.x) * scale) / at.scale, y: y - ((y - at.y) * scale) / at.scale, scale };
      move();
    }

    /** Show all of it, or as much as stays readable from the top. @param {boolean} [whole] */
    function fit(whole = false) {
      const space = torchstone.drawing.bounds(drawing);
      const [wide, high] = [element.clientWidth / space.width, element.clientHeight / space.height];
      const scale = Math.min(Math.max(Math.min(wide, high), whole ? FARTHEST : READABLE), 1.1);
      at = { scale, x: (element.clientWidth - space.width * scale) / 2 - space.left * scale, y: Math.max((element.clientHeight - space.height * scale) / 2, 0) - space.top * scale };
      move();
    }

    /** @param {Drawing} next */
    function show(next) {
      drawing = next;
      lines = drawing.edges.map((edge) => makeSvg("path", { class: "edge", d: torchstone.drawing.path(drawing, edge) }, makeSvg("title", {}, edge.text)));
      boxes = drawing.boxes.map(boxElement);
      if (boxes.length) boxes[0].setAttribute("tabindex", "0");
      scene.replaceChildren(...lines, ...boxes);
      chosen = -1;
      fit();
    }

    /** @param {number} place @param {boolean} followed show everything up- and downstream */
    function select(place, followed) {
      chosen = place;
      const flow = place < 0 ? null : torchstone.drawing.flow(drawing, place);
      svg.classList.toggle("follows", place >= 0);
      boxes.forEach((box, other) => {
        box.classList.toggle("chosen", other === place);
        const near = drawing.edges.some((edge) => (edge.source === place && edge.target === other) || (edge.target === place && edge.source === other));
        box.classList.toggle("lit", flow !== null && (other === place || (followed ? flow.up[other] === 1 || flow.down[other] === 1 : near)));
        box.setAttribute("tabindex", other === Math.max(place, 0) ? "0" : "-1");
      });
      drawing.edges.forEach((edge, number) => {
        const direct = edge.source === place || edge.target === place;
        const through = flow !== null && followed && ((flow.up[edge.source] && flow.up[edge.target]) || (flow.down[edge.source] && flow.down[edge.target]));
        lines[number].classList.toggle("lit", place >= 0 && Boolean(direct || through));
      });
    }

    /** Bring a box into view. @param {number} place */
    function reveal(place) {
      const box = drawing.boxes[place];
      if (!box) return;
      const [x, y] = [box.x * at.scale + at.x, box.y * at.scale + at.y];
      if (x < 40 || x > element.clientWidth - 40) at.x += element.clientWidth / 2 - x;
      if (y < 20 || y > element.clientHeight - 60) at.y += element.clientHeight / 2 - y;
      move();
    }

    /** @param {Event} event */
    function placeOf(event) {
      const box = /** @type {Element} */ (event.target).closest(".box");
      return box ? Number(box.getAttribute("data-place")) : -1;
    }

    /** @type {{x: number, y: number, moved: boolean} | null} */
    let drag = null;
    element.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, y: event.clientY, moved: false }; });
    element.addEventListener("pointermove", (event) => {
      if (!drag || event.buttons === 0) return;
      const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
      if (!drag.moved && Math.hypot(dx, dy) < 4) return;
      if (!drag.moved) element.setPointerCapture(event.pointerId);
      drag = { x: event.clientX, y: event.clientY, moved: true };
      at = { ...at, x: at.x + dx, y: at.y + dy };
      move();
    });
    element.addEventListener("click", (event) => {
      const moved = drag?.moved;
      drag = null;
      if (!moved) choose(placeOf(event));
    });
    element.addEventListener("dblclick", (event) => { if (placeOf(event) >= 0) open(placeOf(event)); });
    element.addEventListener("wheel", (event) => {
      event.preventDefault();
      const frame = element.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0016)), event.clientX - frame.left, event.clientY - frame.top);
    }, { passive: false });
    element.addEventListener("keydown", (event) => {
      /** @type {Record<string, () => void>} */
      const keys = {
        "+": () => zoom(1.25), "-": () => zoom(0.8), 0: () => fit(true), Backspace: up, Escape: () => choose(-1),
        Enter: () => open(chosen), ArrowDown: () => step(1), ArrowUp: () => step(-1), j: () => step(1), k: () => step(-1),
      };
      if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      event.stopPropagation();
      keys[event.key]();
    });

    /** @param {number} by */
    function step(by) {
      const next = Math.min(Math.max(chosen + by, 0), boxes.length - 1);
      choose(next);
      /** @type {any} */ (boxes[next]).focus({ preventScroll: true });
    }

    return { element, show, select, reveal, zoom, fit, picture };

    /** The drawing as a file of its own, colours written out. */
    function picture() {
      const space = torchstone.drawing.bounds(drawing);
      const copy = /** @type {SVGElement} */ (svg.cloneNode(true));
      const originals = svg.querySelectorAll("rect, path, text");
      copy.querySelectorAll("rect, path, text").forEach((one, number) => {
        const style = getComputedStyle(originals[number]);
        for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-family", "font-size", "font-weight", "opacity", "marker-end"]) one.setAttribute(name, style.getPropertyValue(name));
      });
      const ground = makeSvg("rect", { x: space.left, y: space.top, width: space.width, height: space.height, fill: torchstone.theme.colour("surface") });
      copy.querySelector(".scene")?.removeAttribute("transform");
      copy.prepend(ground);
      for (const [name, value] of Object.entries({ xmlns: "http://www.w3.org/2000/svg", viewBox: `${space.left} ${space.top} ${space.width} ${space.height}`, width: space.width, height: space.height })) copy.setAttribute(name, String(value));
      return { text: new XMLSerializer().serializeToString(copy), width: space.width, height: space.height };
    }
  }

  return { mount };
})();
torchstone.canvas = torchstoneCanvas;
