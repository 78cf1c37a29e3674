/* The arithmetic of a tree that is stored as rows in pre-order with the row of each parent. */

const torchstoneTree = (() => {
  /** @param {ArrayLike<number>} parents @returns {TreeShape} */
  function shape(parents) {
    const rows = parents.length;
    const parent = Int32Array.from(parents);
    const end = new Int32Array(rows);
    const depth = new Int32Array(rows);
    const place = new Int32Array(rows);
    const children = new Int32Array(rows + 1); // the last one counts the roots
    for (let row = 0; row < rows; row += 1) {
      const above = parent[row];
      depth[row] = above < 0 ? 0 : depth[above] + 1;
      place[row] = ++children[above < 0 ? rows : above];
    }
    for (let row = rows - 1; row >= 0; row -= 1) {
      end[row] = Math.max(end[row], row + 1);
      if (parent[row] >= 0) end[parent[row]] = Math.max(end[parent[row]], end[row]);
    }
    const siblings = parent.map((above) => children[above < 0 ? rows : above]);
    return { parent, end, depth, place, siblings };
  }

  /** The rows to show, in order: those under open rows, and of these only the kept ones. @param {TreeShape} tree @param {Uint8Array} open @param {Uint8Array | null} kept */
  function visible(tree, open, kept) {
    const rows = new Int32Array(tree.parent.length);
    let count = 0;
    for (let row = 0; row < rows.length;) {
      if (kept && !kept[row]) {
        row = tree.end[row];
        continue;
      }
      rows[count++] = row;
      row = open[row] ? row + 1 : tree.end[row];
    }
    return rows.subarray(0, count);
  }

  /** Hits and everything above them. @param {TreeShape} tree @param {Uint8Array} hits */
  function withAncestors(tree, hits) {
    const kept = hits.slice();
    for (let row = kept.length - 1; row > 0; row -= 1) if (kept[row] && tree.parent[row] >= 0) kept[tree.parent[row]] = 1;
    return kept;
  }

  /** @param {TreeShape} tree @param {number} row */
  function hasChildren(tree, row) {
    return tree.end[row] > row + 1;
  }

  /** Open every row above this one. @param {TreeShape} tree @param {Uint8Array} open @param {number} row */
  function openAbove(tree, open, row) {
    for (let above = tree.parent[row]; above >= 0; above = tree.parent[above]) open[above] = 1;
  }

  return { shape, visible, withAncestors, hasChildren, openAbove };
})();
torchstone.tree = torchstoneTree;
