/* Numbers as people read them; the same rules as torchstone/units.py, checked by shared test vectors. */

const torchstoneFormat = (() => {
  const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const DECIMAL = ["", " K", " M", " G", " T", " P", " E"];
  const UNKNOWN = "unknown";
  const GROUPED = new Intl.NumberFormat("en-US");

  /** @param {number} value */
  function threeDigits(value) {
    const size = Math.abs(value);
    return value.toFixed(size < 10 ? 2 : size < 100 ? 1 : 0);
  }

  /** @param {number} value @param {number} step @param {number} units @returns {[number, number]} */
  function scaled(value, step, units) {
    let unit = 0;
    while (Math.abs(value) >= step && unit < units - 1) {
      value /= step;
      unit += 1;
    }
    return [value, unit];
  }

  /** @param {number} count */
  function bytes(count) {
    const [value, unit] = scaled(count, 1024, BINARY.length);
    return unit === 0 ? `${count} B` : `${threeDigits(value)} ${BINARY[unit]}`;
  }

  /** Bytes that were read with three decimals of a MiB. @param {number} count */
  function reading(count) {
    return `${(count / 1048576).toFixed(3)} MiB`;
  }

  /** @param {number} value */
  function count(value) {
    const [small, unit] = scaled(value, 1000, DECIMAL.length);
    return unit === 0 ? String(value) : `${threeDigits(small)}${DECIMAL[unit]}`;
  }

  /** @param {number} value */
  function seconds(value) {
    if (value >= 1) return `${threeDigits(value)} s`;
    return value >= 1e-3 ? `${threeDigits(value * 1e3)} ms` : `${threeDigits(value * 1e6)} µs`;
  }

  /** A number with all its digits. @param {number} value */
  function exact(value) {
    return Number.isInteger(value) ? GROUPED.format(value) : String(value);
  }

  /** One number as its column wants it. @param {number} value @param {string} shown @returns {string} */
  function number(value, shown) {
    if (Number.isNaN(value)) return UNKNOWN;
    switch (shown) {
      case "bytes": return bytes(value);
      case "reading": return reading(value);
      case "count": return value < 1e5 ? exact(value) : count(value);
      case "seconds": return seconds(value);
      default: return Number.isInteger(value) ? exact(value) : String(Number(value.toPrecision(3)));
    }
  }

  /** A number with its unit and all its digits, for tooltips and details. @param {number} value @param {string} shown */
  function full(value, shown) {
    if (Number.isNaN(value)) return UNKNOWN;
    if (shown === "reading") return reading(value);
    if (shown === "bytes") return value < 1024 ? bytes(value) : `${exact(value)} B (${bytes(value)})`;
    return shown === "seconds" ? seconds(value) : exact(value);
  }

  return { bytes, count, seconds, exact, number, full, UNKNOWN };
})();
torchstone.format = torchstoneFormat;
