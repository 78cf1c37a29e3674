/* Elements are made here and nowhere else; text only ever goes in as text. */

const torchstoneElements = (() => {
  const SVG = "http://www.w3.org/2000/svg";

  /** @type {Record<string, string>} 16 x 16 outlines */
  const ICONS = {
    ok: "M3.5 8.5l3 3 6-7",
    bad: "M4.5 4.5l7 7M11.5 4.5l-7 7",
    skipped: "M4 8h8",
    unknown: "M6 6.2a2 2 0 1 1 2.8 1.9c-.6.3-.8.6-.8 1.2M8 11.6v.2",
    holds: "M3 5.5h10M3 8h10M3 10.5h10",
    open: "M6 4l4 4-4 4",
    graph: "M8 2.5v3M8 10.5v3M5 5.5h6v5H5z",
    plus: "M8 4v8M4 8h8",
    fit: "M3.5 6V3.5H6M10 3.5h2.5V6M12.5 10v2.5H10M6 12.5H3.5V10",
    download: "M8 3v6.5M5 7l3 3 3-3M3.5 13h9",
    sun: "M8 5.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6M8 1.5v1.6M8 12.9v1.6M1.5 8h1.6M12.9 8h1.6M3.4 3.4l1.1 1.1M11.5 11.5l1.1 1.1M12.6 3.4l-1.1 1.1M4.5 11.5l-1.1 1.1",
    moon: "M13 9.6A5.4 5.4 0 1 1 6.4 3a4.4 4.4 0 0 0 6.6 6.6z",
    close: "M4.5 4.5l7 7M11.5 4.5l-7 7",
    search: "M7 3a4 4 0 1 1 0 8 4 4 0 0 1 0-8M10 10l3.2 3.2",
  };

  /**
   * @param {string} tag
   * @param {Record<string, any>} [properties] attributes; `on` holds listeners
   * @param {...(Node | string | null | undefined)} children
   * @returns {HTMLElement}
   */
  function make(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name === "on") {
        for (const [event, listener] of Object.entries(value)) element.addEventListener(event, /** @type {any} */ (listener));
      } else if (value !== null && value !== undefined && value !== false) {
        element.setAttribute(name, value === true ? "" : String(value));
      }
    }
    for (const child of children) if (child !== null && child !== undefined) element.append(child);
    return element;
  }

  /** @param {string} tag @param {Record<string, any>} [attributes] @param {...(Node | string)} children @returns {SVGElement} */
  function makeSvg(tag, attributes = {}, ...children) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
    element.append(...children);
    return element;
  }

  /** @param {string} name @returns {SVGElement} */
  function icon(name) {
    return makeSvg("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" }, makeSvg("path", { d: ICONS[name] }));
  }

  /** @type {Record<string, [string, string]>} word -> icon and tone */
  const STATUSES = {
    ran: ["ok", "quiet"], success: ["ok", "good"], passed: ["ok", "good"], inherited_success: ["ok", "good"],
    failed: ["bad", "bad"], crashed: ["bad", "bad"], wrong: ["bad", "bad"], varies: ["bad", "bad"], ir_export_failed: ["bad", "bad"],
    "timed out": ["bad", "bad"], "out of memory": ["bad", "bad"], unsupported: ["bad", "warning"],
    "compile error": ["bad", "bad"], raised: ["bad", "bad"], refused: ["bad", "bad"], "wrong shape": ["bad", "bad"],
    accepted: ["ok", "quiet"], unmapped: ["skipped", "warning"],
    skipped: ["skipped", "warning"], "not run": ["skipped", "warning"], "never called": ["skipped", "warning"],
    container: ["holds", "quiet"],
  };

  /** A status by icon and word. @param {string} word */
  function status(word) {
    const [name, tone] = STATUSES[word] ?? ["unknown", "warning"];
    return make("span", { class: `status ${tone}` }, icon(name), word === "" ? torchstone.format.UNKNOWN : word);
  }

  /** @param {string} label @param {string} name of the icon @param {() => void} act @param {string} [words] shown beside it */
  function button(label, name, act, words) {
    return make("button", { type: "button", class: words ? "button" : "button square", "aria-label": words ? null : label, title: label, on: { click: act } }, icon(name), words);
  }

  /** It leads on; what it stands in is not chosen by it, which would be a second step for "back". @param {string} text @param {() => void} act */
  function link(text, act) {
    return make("button", { type: "button", class: "link", on: { click: (/** @type {Event} */ event) => { event.stopPropagation(); act(); } } }, text);
  }

  /**
   * One cell's value as its column wants it.
   * @param {Table} table @param {Column} column @param {number} row @returns {Node | string}
   */
  function cell(table, column, row) {
    if (column.kind === "text") {
      const text = table.strings[column.values[row]];
      return column.shown === "status" ? status(text) : text;
    }
    return torchstone.format.number(column.values[row], column.shown);
  }

  /** The width that the bold title of a column needs, in pixels. @param {string} title */
  function titleWidth(title) {
    return Math.ceil(title.length * 8 + 34);
  }

  return { make, makeSvg, icon, status, button, link, cell, titleWidth };
})();
torchstone.elements = torchstoneElements;
