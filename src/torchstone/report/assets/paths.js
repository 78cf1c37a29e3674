/* The path of a module, put together from the names above it: paths take too much room to be sent. */

const torchstonePaths = (() => {
  /** The path of the module in a row of the tree; the rows of folded layers have no name of their own. @param {Table} modules @param {number} start */
  function ofRow(modules, start) {
    const { parent, module, name } = modules.columns;
    /** @type {string[]} */
    const parts = [];
    for (let row = start; parent.values[row] >= 0; row = parent.values[row]) {
      if (module.values[row] >= 0) parts.push(modules.strings[name.values[row]]);
    }
    return parts.reverse().join(".");
  }

  /** For each module number its row in the tree. @param {Table} modules @returns {Map<number, number>} */
  function rows(modules) {
    return new Map(Array.from(modules.columns.module.values, (module, row) => [module, row]));
  }

  return { ofRow, rows };
})();
torchstone.paths = torchstonePaths;
