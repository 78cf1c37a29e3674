/* The order of a table's rows. */

const torchstoneSorting = (() => {
  /** The rank of each string in alphabetical order, so that rows compare by number. @param {string[]} strings */
  function ranks(strings) {
    const order = strings.map((_, place) => place).sort((left, right) => (strings[left] < strings[right] ? -1 : strings[left] > strings[right] ? 1 : 0));
    const rank = new Float64Array(strings.length);
    order.forEach((place, at) => { rank[place] = at; });
    return rank;
  }

  /**
   * The rows sorted by a column; equal rows keep their order, unknown values come last either way.
   * @param {Table} table @param {string} name @param {boolean} falling @param {Int32Array} rows
   */
  function sorted(table, name, falling, rows) {
    const column = table.columns[name];
    const rank = column.kind === "text" ? ranks(table.strings) : null;
    const key = Float64Array.from(rows, (row) => (rank ? rank[column.values[row]] : column.values[row]));
    const order = Array.from(rows, (_, place) => place);
    order.sort((left, right) => {
      const [a, b] = [key[left], key[right]];
      if (Number.isNaN(a) || Number.isNaN(b)) return Number(Number.isNaN(a)) - Number(Number.isNaN(b)) || left - right;
      return (falling ? b - a : a - b) || left - right;
    });
    return Int32Array.from(order, (place) => rows[place]);
  }

  return { sorted };
})();
torchstone.sorting = torchstoneSorting;
