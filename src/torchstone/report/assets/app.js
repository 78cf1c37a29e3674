/* The start: tabs, keys, and the section that the address names. */

const torchstoneApp = (() => {
  const { make, button, icon } = torchstone.elements;
  const NEWEST = "torchstone/page/1";

  /** @param {string} name @returns {HTMLElement} */
  function byId(name) {
    return /** @type {HTMLElement} */ (document.getElementById(name));
  }

  /** @type {Map<string, Promise<Table>>} */
  const tables = new Map();

  /** @param {string} name @returns {Promise<Table>} */
  function table(name) {
    let found = tables.get(name);
    if (!found) {
      const blob = byId(`blob:${name}`);
      found = torchstone.decode.unpack(/** @type {string} */ (blob.textContent));
      tables.set(name, /** @type {Promise<Table>} */ (found));
    }
    return /** @type {Promise<Table>} */ (found);
  }

  /** @type {Map<string, Promise<Mounted>>} */
  const mounted = new Map();

  /** @param {PageIndex} index @param {SectionIndex} section @param {HTMLElement} panel */
  function mount(index, section, panel) {
    let one = mounted.get(section.name);
    if (!one) {
      const page = { index, section, table, state: torchstone.state.get, go: (/** @type {State} */ changes) => torchstone.state.set(changes) };
      const script = torchstone.sections[section.name] ?? torchstone.listing;
      panel.classList.add("loading");
      one = Promise.resolve(script.mount(panel, page)).finally(() => panel.classList.remove("loading"));
      mounted.set(section.name, /** @type {Promise<Mounted>} */ (one));
    }
    return /** @type {Promise<Mounted>} */ (one);
  }

  /** @param {PageIndex} index */
  function tabs(index) {
    const list = byId("tabs");
    const main = byId("panels");
    for (const { name, title } of index.sections) {
      const tab = make("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, on: { click: () => torchstone.state.set({ tab: name }) } }, title);
      list.append(tab);
      main.append(make("section", { role: "tabpanel", id: `panel-${name}`, class: `panel-${name}`, "aria-labelledby": `tab-${name}`, hidden: true }));
    }
    list.addEventListener("keydown", (event) => {
      const step = /** @type {Record<string, number>} */ ({ ArrowRight: 1, ArrowLeft: -1 })[event.key];
      if (!step) return;
      const names = index.sections.map((section) => section.name);
      const next = names[(names.indexOf(current(index).name) + step + names.length) % names.length];
      torchstone.state.set({ tab: next });
      byId(`tab-${next}`).focus();
    });
  }

  /** @param {PageIndex} index */
  function current(index) {
    return index.sections.find((section) => section.name === torchstone.state.get().tab) ?? index.sections[0];
  }

  /** One update after the other: of two at once the earlier could end last. @type {Promise<void>} */
  let drawn = Promise.resolve();

  /** What the address names; a section that is drawn late takes the address as it is by then. @param {PageIndex} index */
  async function show(index) {
    const chosen = current(index);
    for (const { name } of index.sections) {
      const tab = byId(`tab-${name}`);
      tab.setAttribute("aria-selected", name === chosen.name ? "true" : "false");
      tab.tabIndex = name === chosen.name ? 0 : -1;
      byId(`panel-${name}`).hidden = name !== chosen.name;
    }
    document.title = `${chosen.title} · ${index.title.slice(0, 200)} · torchstone`;
    const section = await mount(index, chosen, byId(`panel-${chosen.name}`));
    drawn = drawn.catch(() => {}).then(() => (current(index) === chosen ? section.update(torchstone.state.get()) : undefined));
    await drawn;
    if (current(index) !== chosen) return; // the reader has gone on meanwhile
    if (!document.documentElement.dataset.ready) performance.mark("ready"); // what a benchmark calls usable
    document.documentElement.dataset.ready = chosen.name;
  }

  /** Go to the search box of a section, as soon as there is one. @param {Event} event @param {PageIndex} index */
  function openSearch(event, index) {
    const chosen = current(index);
    const panel = byId(`panel-${chosen.name}`);
    const focus = () => {
      const box = /** @type {HTMLInputElement | null} */ (panel.querySelector(".search"));
      if (!box || current(index) !== chosen) return false;
      box.focus();
      box.select();
      return true;
    };
    const found = focus();
    const drawing = panel.classList.contains("loading");
    if (found || drawing) event.preventDefault();
    if (!found && drawing) /** @type {Promise<Mounted>} */ (mounted.get(chosen.name)).then(focus);
  }

  /** @param {KeyboardEvent} event @param {PageIndex} index */
  function onKey(event, index) {
    const target = /** @type {HTMLElement} */ (event.target);
    const typing = target.matches("input, textarea, select");
    const find = (event.ctrlKey || event.metaKey) && event.key === "f";
    if ((event.key === "/" && !typing) || (find && target.matches(".tree-body, .table"))) {
      openSearch(event, index);
    } else if (event.key === "?" && !typing) {
      /** @type {HTMLDialogElement} */ (byId("help")).showModal();
    } else if (!typing && !event.ctrlKey && !event.metaKey && !event.altKey && /^[1-9]$/.test(event.key)) {
      const section = index.sections[Number(event.key) - 1];
      if (section) torchstone.state.set({ tab: section.name });
    }
  }

  function themeButton() {
    const one = button("Switch between light and dark", "moon", torchstone.theme.toggle);
    const draw = () => one.replaceChildren(icon(torchstone.theme.current() === "dark" ? "sun" : "moon"));
    torchstone.theme.listen(draw);
    draw();
    return one;
  }

  /** @param {string} sentence */
  function refuse(sentence) {
    byId("panels").replaceChildren(make("p", { class: "panel failure" }, sentence));
  }

  function start() {
    torchstone.theme.start();
    torchstone.refresh.start();
    const help = /** @type {HTMLDialogElement} */ (byId("help"));
    byId("tools").append(button("Help and keys", "unknown", () => help.showModal()), themeButton());
    byId("help-close").addEventListener("click", () => help.close());
    if (typeof DecompressionStream === "undefined") {
      refuse("This browser cannot unpack the report's data; Chrome 80, Firefox 113, Safari 16.4 or newer can.");
      return;
    }
    /** @type {PageIndex} */
    const index = JSON.parse(/** @type {string} */ (byId("index").textContent));
    if (index.schema !== NEWEST) {
      refuse(`The data of this page has the form ${index.schema}, but its script reads ${NEWEST}; render it again with torchstone report.`);
      return;
    }
    tabs(index);
    torchstone.state.listen(() => { show(index); });
    addEventListener("hashchange", () => show(index));
    addEventListener("keydown", (event) => onKey(event, index));
    show(index);
  }

  return { start, table };
})();
torchstone.app = torchstoneApp;

if (typeof document !== "undefined") torchstone.app.start();
