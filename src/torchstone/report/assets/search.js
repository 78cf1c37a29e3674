/* Queries: words, `column:word`, `column:>number`; every part must hold. Texts are tested once per string, not per row. */

const torchstoneSearch = (() => {
  /** @typedef {{field: string, text: string, compare: "" | ">" | "<", number: number}} Term */

  /** @type {Record<string, number>} */
  const SUFFIXES = { "": 1, k: 1e3, m: 1e6, g: 1e9, t: 1e12, ki: 1024, mi: 1024 ** 2, gi: 1024 ** 3, ti: 1024 ** 4 };

  /** @param {string} query @returns {Term[]} */
  function parse(query) {
    return (query.match(/(?:[^\s"]+|"[^"]*")+/g) ?? []).map((part) => {
      const [, field = "", rest] = /** @type {RegExpMatchArray} */ (part.match(/^(?:([a-z_]+):)?([\s\S]*)$/i));
      const text = rest.replaceAll('"', "").toLowerCase();
      const number = text.match(/^([<>])(-?[\d.]+)([kmgt]?i?)b?$/);
      const compare = /** @type {"" | ">" | "<"} */ (number ? number[1] : "");
      return { field: field.toLowerCase(), text, compare, number: number ? Number(number[2]) * SUFFIXES[number[3]] : NaN };
    });
  }

  /** Which strings of a table contain a text. @param {string[]} strings @param {string} text @returns {Uint8Array} */
  function stringsWith(strings, text) {
    return Uint8Array.from(strings, (string) => (string.toLowerCase().includes(text) ? 1 : 0));
  }

  /** @param {Table} table @param {Term} term @param {Uint8Array} hits */
  function narrowByColumn(table, term, hits) {
    const column = table.columns[term.field];
    if (!column) {
      hits.fill(0); // a column that is not there has no such value
    } else if (column.kind === "text") {
      narrowByTexts(table, [term.field], term.text, hits);
    } else {
      for (let row = 0; row < hits.length; row += 1) {
        const value = column.values[row];
        const holds = term.compare === ">" ? value > term.number : term.compare === "<" ? value < term.number : value === Number(term.text);
        if (!holds) hits[row] = 0;
      }
    }
  }

  /** @param {Table} table @param {string[]} names @param {string} text @param {Uint8Array} hits */
  function narrowByTexts(table, names, text, hits) {
    const found = stringsWith(table.strings, text);
    const columns = names.map((name) => table.columns[name].values);
    for (let row = 0; row < hits.length; row += 1) {
      if (hits[row] && !columns.some((values) => found[values[row]])) hits[row] = 0;
    }
  }

  /**
   * The rows that a query asks for.
   * @param {Table} table
   * @param {string} query
   * @param {{words: string[], dotted?: (text: string, hits: Uint8Array) => void}} options
   *   columns that bare words look in, and what a word with a dot means
   * @returns {Uint8Array} 1 for a hit
   */
  function find(table, query, { words, dotted }) {
    const hits = new Uint8Array(table.rows).fill(1);
    for (const term of parse(query)) {
      if (term.field) narrowByColumn(table, term, hits);
      else if (dotted && term.text.includes(".")) dotted(term.text, hits);
      else narrowByTexts(table, words, term.text, hits);
    }
    return hits;
  }

  return { parse, find };
})();
torchstone.search = torchstoneSearch;
