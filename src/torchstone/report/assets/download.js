/* Tables as CSV and JSON, pictures as SVG and PNG; made in the page, sent nowhere. */

const torchstoneDownload = (() => {
  /** @param {string} name @param {Blob} blob */
  function save(name, blob) {
    const address = URL.createObjectURL(blob);
    const anchor = torchstone.elements.make("a", { href: address, download: name });
    anchor.click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }

  /** @param {Table} table @param {Column} column @param {number} row @returns {string | number | null} */
  function value(table, column, row) {
    if (column.kind === "text") return table.strings[column.values[row]];
    return Number.isNaN(column.values[row]) ? null : column.values[row];
  }

  /** A text that a spreadsheet takes for a formula is marked as text. @param {string | number | null} given */
  function quoted(given) {
    const text = given === null ? "" : String(given);
    const safe = typeof given === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  /** @param {Table} table */
  function shownColumns(table) {
    return Object.values(table.columns).filter((column) => column.kind !== "lists" && column.shown !== "hidden");
  }

  /** @param {Table} table @param {Iterable<number>} rows @param {Column[]} columns */
  function csv(table, rows, columns) {
    const lines = [columns.map((column) => quoted(column.name)).join(",")];
    for (const row of rows) lines.push(columns.map((column) => quoted(value(table, column, row))).join(","));
    return `${lines.join("\r\n")}\r\n`;
  }

  /** @param {Table} table @param {Iterable<number>} rows @param {Column[]} columns */
  function json(table, rows, columns) {
    return Array.from(rows, (row) => Object.fromEntries(columns.map((column) => [column.name, value(table, column, row)])));
  }

  /** Buttons that save a table. @param {string} name @param {Table} table @param {() => Iterable<number>} rows */
  function buttons(name, table, rows) {
    const { make, button } = torchstone.elements;
    return make("span", { class: "group" },
      button(`Save ${name} as CSV`, "download", () => save(`${name}.csv`, new Blob([csv(table, rows(), shownColumns(table))], { type: "text/csv" })), "CSV"),
      button(`Save ${name} as JSON`, "download", () => save(`${name}.json`, new Blob([JSON.stringify(json(table, rows(), shownColumns(table)), null, 1)], { type: "application/json" })), "JSON"));
  }

  return { save, csv, json, buttons, shownColumns };
})();
torchstone.download = torchstoneDownload;
