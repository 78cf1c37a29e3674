/* Tables out of the text that torchstone/report/columns.py packs. */

const torchstoneDecode = (() => {
  /** @param {string} text base64 @returns {Uint8Array} */
  function fromBase64(text) {
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length);
    for (let place = 0; place < binary.length; place += 1) bytes[place] = binary.charCodeAt(place);
    return bytes;
  }

  /** @param {string} text @returns {Promise<Uint8Array>} */
  async function unpackBytes(text) {
    const stream = new Blob([/** @type {any} */ (fromBase64(text))]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  /** @typedef {{bytes: Uint8Array, at: number}} Reader */

  /** Undo the byte shuffle of `count` integers of `width` bytes. @param {Reader} reader @param {number} count @param {number} width */
  function shuffled(reader, count, width) {
    const { bytes, at } = reader;
    const values = new Float64Array(count);
    const low = Math.min(width, 4);
    for (let row = 0; row < count; row += 1) {
      let value = 0;
      for (let place = 0; place < low; place += 1) value |= bytes[at + place * count + row] << (8 * place);
      values[row] = low === 4 ? value : (value << (32 - 8 * low)) >> (32 - 8 * low);
    }
    if (width === 8) {
      for (let row = 0; row < count; row += 1) {
        let high = 0;
        for (let place = 4; place < 8; place += 1) high |= bytes[at + place * count + row] << (8 * (place - 4));
        values[row] = high * 4294967296 + (values[row] >>> 0);
      }
    }
    reader.at += count * width;
    return values;
  }

  /** @param {Reader} reader @param {any} described @returns {Float64Array} */
  function integers(reader, described) {
    const values = shuffled(reader, described.count, described.width);
    let sum = 0;
    for (let row = 0; row < values.length; row += 1) {
      sum += values[row];
      values[row] = sum * described.unit;
    }
    if (described.missing) for (const row of integers(reader, described.missing)) values[row] = NaN;
    return values;
  }

  /** @param {Reader} reader @param {number} count @returns {Float64Array} */
  function floats(reader, count) {
    const raw = new Uint8Array(count * 8);
    for (let place = 0; place < 8; place += 1) {
      const plane = reader.at + place * count;
      for (let row = 0; row < count; row += 1) raw[row * 8 + place] = reader.bytes[plane + row];
    }
    reader.at += count * 8;
    const view = new DataView(raw.buffer);
    return Float64Array.from({ length: count }, (_, row) => view.getFloat64(row * 8, true));
  }

  /** @param {Reader} reader @param {any} described @returns {Column} */
  function column(reader, described) {
    const { name, title, shown, kind } = described;
    if (kind === "float") return { name, title, shown, kind, values: floats(reader, described.count) };
    if (kind === "lists") {
      const lengths = integers(reader, described.lengths);
      return { name, title, shown, kind, lengths, values: integers(reader, described.values) };
    }
    return { name, title, shown, kind, values: integers(reader, described) };
  }

  /** @param {string} text @returns {Promise<Table>} */
  async function unpack(text) {
    const bytes = await unpackBytes(text);
    const length = new DataView(bytes.buffer).getUint32(0, true);
    const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
    const reader = { bytes, at: 4 + length };
    /** @type {Record<string, Column>} */
    const columns = {};
    for (const described of header.columns) columns[described.name] = column(reader, described);
    return { rows: header.rows, strings: header.strings, columns };
  }

  /** The text in one cell. @param {Table} table @param {string} name @param {number} row @returns {string} */
  function textAt(table, name, row) {
    return table.strings[table.columns[name].values[row]];
  }

  return { fromBase64, unpackBytes, unpack, textAt };
})();
torchstone.decode = torchstoneDecode;
