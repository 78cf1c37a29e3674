/* The panel beside a list that tells everything about the chosen row. */

const torchstoneDetails = (() => {
  const { make, button } = torchstone.elements;

  /** @param {string} label */
  function mount(label) {
    const body = make("div", { class: "details-body" });
    const element = make("aside", { class: "details", "aria-label": label }, body);
    return {
      element,
      /** @param {string} title @param {string} subtitle @param {...(Node | null)} parts */
      show(title, subtitle, ...parts) {
        body.replaceChildren(make("h2", {}, make("bdi", {}, title)), make("p", { class: "muted" }, make("bdi", {}, subtitle)));
        for (const part of parts) if (part) body.append(part);
        body.scrollTop = 0;
      },
      /** @param {string} hint */
      clear(hint) {
        body.replaceChildren(make("p", { class: "empty" }, hint));
      },
    };
  }

  /** @param {[string, Node | string][]} pairs */
  function facts(pairs) {
    return make("dl", { class: "facts" }, ...pairs.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, make("bdi", {}, value))]));
  }

  /**
   * A short list with its length in the title; long lists end in "and n more".
   * @param {string} title @param {number} total @param {Node[]} items
   */
  function list(title, total, items) {
    const more = total - items.length;
    return make("section", {}, make("h3", {}, `${title} `, make("span", { class: "count" }, torchstone.format.exact(total))),
      total === 0 ? make("p", { class: "muted" }, "None.") : make("ul", { class: "plain-list" }, ...items.map((item) => make("li", {}, item))),
      more > 0 ? make("p", { class: "muted" }, `and ${torchstone.format.exact(more)} more`) : null);
  }

  return { mount, facts, list, button };
})();
torchstone.details = torchstoneDetails;
