/* The model graph: one container at a time, with the way to it, its details and its exports. */

torchstone.sections.graph = {
  async mount(/** @type {HTMLElement} */ root, /** @type {Page} */ page) {
    const { make, button, link } = torchstone.elements;
    const TOP = -1;
    const LARGEST_PNG = 8000; // px; browsers refuse larger canvases
    const [containers, boxes, edges, calls, modules] = await Promise.all(["graph.containers", "graph.boxes", "graph.edges", "graph.calls", "modules"].map(page.table));
    const rowOf = new Map(Array.from(containers.columns.call.values, (call, row) => [call, row]));
    const moduleRow = torchstone.paths.rows(modules);
    const start = containers.rows === 0 ? NaN : Array.from(containers.columns.call.values).find((call) => call !== TOP || isBusy(TOP)) ?? TOP;

    const crumbs = make("nav", { class: "crumbs", "aria-label": "Breadcrumb" });
    const details = torchstone.details.mount("Selected node");
    const canvas = torchstone.canvas.mount({ choose: (/** @type {number} */ place) => page.go({ box: place < 0 ? "" : String(place) }), open, up });
    const stage = make("div", { class: "stage" }, canvas.element);
    const follow = make("button", { type: "button", class: "button", "aria-pressed": "false", title: "Highlight everything upstream and downstream of the selected node", on: { click: () => page.go({ follow: page.state().follow ? "" : "1" }) } }, "Follow");
    root.append(
      make("div", { class: "toolbar" }, crumbs, make("span", { class: "spacer" }), follow,
        make("span", { class: "group" }, button("Zoom in", "plus", () => canvas.zoom(1.25)), button("Zoom out", "skipped", () => canvas.zoom(0.8)), button("Fit to window", "fit", () => canvas.fit(true))),
        make("span", { class: "group" }, button("Save the graph as SVG", "download", saveSvg, "SVG"), button("Save the graph as PNG", "download", savePng, "PNG"))),
      make("div", { class: "split" }, stage, details.element));

    let shown = NaN;
    /** @type {Drawing} */
    let drawing = { boxes: [], edges: [] };

    /** The outermost container is worth showing when more than one call stands in it. @param {number} call */
    function isBusy(call) {
      const row = rowOf.get(call);
      return row !== undefined && torchstone.drawing.read(boxes, edges, containers.columns.drawing.values[row]).boxes.filter((box) => box.kind !== "input").length > 1;
    }

    /** @param {number} call @returns {string} */
    function pathOf(call) {
      return torchstone.paths.ofRow(modules, moduleRow.get(calls.columns.module.values[call]) ?? 0);
    }

    /** @param {number} call */
    function className(call) {
      return torchstone.decode.textAt(modules, "class", moduleRow.get(calls.columns.module.values[call]) ?? 0);
    }

    /** @param {number} call */
    function above(call) {
      return call === TOP ? TOP : Math.max(calls.columns.parent.values[call], TOP);
    }

    function up() {
      const parent = above(shown);
      if (rowOf.has(parent) && !(parent === TOP && start !== TOP)) page.go({ at: String(parent), box: "" });
    }

    /** @param {number} place */
    function open(place) {
      const box = drawing.boxes[place];
      if (box && (box.kind === "call" || box.kind === "fold")) page.go({ at: String(shown + box.target), box: "" });
    }

    function showCrumbs() {
      /** @type {number[]} */
      const way = [];
      for (let call = shown; call !== TOP; call = above(call)) way.unshift(call);
      if (start === TOP) way.unshift(TOP);
      crumbs.replaceChildren(...way.flatMap((call, place) => {
        const before = place === 0 || way[place - 1] === TOP ? "" : pathOf(way[place - 1]);
        const name = call === TOP ? "all calls" : pathOf(call).slice(before ? before.length + 1 : 0) || className(call);
        const words = name.length > 60 ? `${name.slice(0, 60)}…` : name;
        const last = place === way.length - 1;
        return [place ? make("span", { class: "muted", "aria-hidden": "true" }, "›") : null, last ? make("strong", {}, words) : link(words, () => page.go({ at: String(call), box: "" }))].filter((part) => part !== null);
      }));
    }

    /** @param {number} row of the table of containers */
    function showContainer(row) {
      drawing = torchstone.drawing.read(boxes, edges, containers.columns.drawing.values[row]);
      showCrumbs();
      const listed = drawing.boxes.some((box) => Number.isNaN(box.x));
      canvas.element.hidden = listed;
      stage.replaceChildren(canvas.element);
      if (!listed) canvas.show(drawing);
      else stage.append(list());
    }

    /** Too many boxes to draw. */
    function list() {
      const heads = { kind: "Kind", label: "Name", detail: "Class or result" };
      const table = { ...boxes, columns: Object.fromEntries(Object.entries(heads).map(([name, title]) => [name, { ...boxes.columns[name], title, shown: "text" }])) };
      const first = drawing.boxes[0].row;
      const view = torchstone.table.mount(table, {
        label: "Nodes in order", empty: "", words: ["label", "detail"], rows: Int32Array.from(drawing.boxes, (box) => box.row), choose: (/** @type {number} */ row) => page.go({ box: String(row - first) }),
      });
      return make("div", { class: "listed" }, make("p", { class: "muted" }, `${torchstone.format.exact(drawing.boxes.length)} parts are too many to draw (${page.section.settings.most} at most), so they are listed in order.`), view.element);
    }

    /** @param {number} place */
    async function showBox(place) {
      const box = drawing.boxes[place];
      if (!box) {
        const path = shown === TOP ? "" : pathOf(shown);
        details.show(path || (shown === TOP ? "All calls" : className(shown)), path ? className(shown) : "",
          torchstone.details.facts([["Nodes", torchstone.format.exact(drawing.boxes.filter((one) => one.kind !== "input" && one.kind !== "output").length)], ["Edges", torchstone.format.exact(drawing.edges.length)]]),
          shown === TOP ? null : make("p", {}, button("Show in the module tree", "holds", () => page.go({ tab: "modules", node: path, q: "" }), "Show in the module tree")),
          make("p", { class: "muted hint" }, "Select a node to see its inputs and outputs. Double-click opens a module; Backspace goes up."));
        return;
      }
      details.show(box.kind === "fold" ? `${box.count} × ${box.detail}` : box.label, box.kind === "fold" ? box.label : box.detail, await facts(box), actions(box),
        connections("Inputs from", drawing.edges.filter((edge) => edge.target === place).map((edge) => [edge.source, edge.text])),
        connections("Outputs to", drawing.edges.filter((edge) => edge.source === place).map((edge) => [edge.target, edge.text])));
    }

    /** @param {Box} box */
    async function facts(box) {
      if (box.kind !== "op") return box.failed ? torchstone.details.facts([["Status", torchstone.elements.status("failed")]]) : null;
      const [ops, variants] = await Promise.all([page.table("graph.ops"), page.table("variants")]);
      const number = containers.columns.first_op.values[/** @type {number} */ (rowOf.get(shown))] + box.target;
      const signature = ops.columns.signature.values[number];
      const row = variants.columns.signature.values.indexOf(signature);
      return torchstone.details.facts([["Op call", torchstone.format.exact(number)], ["Arguments", torchstone.decode.textAt(variants, "arguments", row)], ["Result", torchstone.decode.textAt(variants, "output", row)]]);
    }

    /** @param {Box} box */
    function actions(box) {
      if (box.kind === "op") return make("p", {}, button("Show the operator", "holds", () => page.go({ tab: "operators", op: box.label }), "Show the operator"));
      if (box.kind !== "call" && box.kind !== "fold") return null;
      const call = shown + box.target;
      const parts = [
        rowOf.has(call) ? button("Open", "open", () => open(box.place), box.kind === "fold" ? "Open the first" : "Open") : null,
        button("Show in the module tree", "holds", () => page.go({ tab: "modules", node: pathOf(call), q: "" }), "Module tree"),
      ];
      return make("p", { class: "buttons" }, ...parts);
    }

    /** @param {string} title @param {[number, string][]} found */
    function connections(title, found) {
      return torchstone.details.list(title, found.length, found.slice(0, 60).map(([place, text]) => {
        const other = drawing.boxes[place];
        return make("div", {}, link((other.kind === "fold" ? `${other.count} × ${other.detail}` : other.short).slice(0, 200), () => page.go({ box: String(place) })), text ? make("div", { class: "muted tensor" }, text) : null);
      }));
    }

    function saveSvg() {
      torchstone.download.save("graph.svg", new Blob([canvas.picture().text], { type: "image/svg+xml" }));
    }

    function savePng() {
      const { text, width, height } = canvas.picture();
      const scale = Math.min(2, LARGEST_PNG / Math.max(width, height));
      const image = new Image();
      image.onload = () => {
        const sheet = /** @type {HTMLCanvasElement} */ (make("canvas", { width: Math.ceil(width * scale), height: Math.ceil(height * scale) }));
        /** @type {CanvasRenderingContext2D} */ (sheet.getContext("2d")).drawImage(image, 0, 0, sheet.width, sheet.height);
        sheet.toBlob((blob) => { if (blob) torchstone.download.save("graph.png", blob); });
        URL.revokeObjectURL(image.src);
      };
      image.src = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    }

    return {
      update(/** @type {State} */ state) {
        if (Number.isNaN(start)) {
          stage.replaceChildren(make("p", { class: "empty" }, "Nothing ran, so there is nothing to draw."));
          details.clear("No module was called.");
          return;
        }
        const asked = state.at === undefined || !/^-?\d+$/.test(state.at) ? start : Number(state.at);
        const call = rowOf.has(asked) ? asked : start;
        if (call !== shown) {
          shown = call;
          showContainer(/** @type {number} */ (rowOf.get(call)));
        }
        const place = /^\d+$/.test(state.box ?? "") && Number(state.box) < drawing.boxes.length ? Number(state.box) : -1;
        follow.setAttribute("aria-pressed", state.follow ? "true" : "false");
        canvas.select(place, Boolean(state.follow));
        canvas.reveal(place);
        return showBox(place);
      },
    };
  },
};
