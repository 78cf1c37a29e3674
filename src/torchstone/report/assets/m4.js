/* M4: of each pixel column the first, lowest, highest and last row, so that no peak is ever lost. */

const torchstoneM4 = (() => {
  /**
   * Reduce rows lo up to, not including, hi to at most 4 per bucket. NaN is a gap: a bucket with nothing else keeps one.
   * @param {Float64Array} values @param {number} lo @param {number} hi @param {number} buckets @returns {Reduced}
   */
  function reduce(values, lo, hi, buckets) {
    const count = hi - lo;
    if (count <= 4 * buckets) {
      const rows = Int32Array.from({ length: Math.max(count, 0) }, (_, place) => lo + place);
      return { rows, tops: rows, span: 1 };
    }
    const rows = new Int32Array(4 * buckets);
    const tops = new Int32Array(4 * buckets);
    let kept = 0;
    for (let bucket = 0; bucket < buckets; bucket += 1) {
      const first = lo + Math.floor((bucket * count) / buckets);
      const end = lo + Math.floor(((bucket + 1) * count) / buckets);
      const { low, high } = extremes(values, first, end);
      let last = -1;
      for (const row of [first, Math.min(low, high), Math.max(low, high), end - 1]) {
        if (row === last) continue;
        rows[kept] = row;
        tops[kept] = high;
        kept += 1;
        last = row;
      }
    }
    return { rows: rows.subarray(0, kept), tops: tops.subarray(0, kept), span: count / buckets };
  }

  /** The rows of the lowest and the highest value; the first of equals. @param {Float64Array} values @param {number} first @param {number} end */
  function extremes(values, first, end) {
    let low = first;
    let high = first;
    for (let row = first + 1; row < end; row += 1) {
      const value = values[row];
      if (value < values[low] || values[low] !== values[low]) low = row;
      if (value > values[high] || values[high] !== values[high]) high = row;
    }
    return { low, high };
  }

  return { reduce, extremes };
})();
torchstone.m4 = torchstoneM4;
