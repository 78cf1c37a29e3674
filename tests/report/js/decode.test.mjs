import assert from "node:assert/strict";
import test from "node:test";
import { load, vectors } from "./page.mjs";

const { decode } = load();

function plain(table, column) {
  if (column.kind === "text") return Array.from(column.values, (place) => table.strings[place]);
  const values = Array.from(column.values, (value) => (Number.isNaN(value) ? null : value));
  if (column.kind !== "lists") return values;
  return Array.from(column.lengths, (length) => values.splice(0, length));
}

vectors("columns").forEach(({ columns, packed }, number) => {
  test(`case ${number} of the shared vectors comes back as it went in`, async () => {
    const table = await decode.unpack(packed);
    for (const [name, values] of Object.entries(columns)) assert.deepEqual(plain(table, table.columns[name]), values);
  });
});

test("a damaged text is an error, not an empty table", async () => {
  await assert.rejects(decode.unpack(Buffer.from("not gzip").toString("base64")));
});
