// Loads the page's scripts as the page does: one after the other, into one scope. Those that need a document are left out.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import vm from "node:vm";

const ASSETS = new URL("../../../src/torchstone/report/assets/", import.meta.url);
const VECTORS = new URL("../vectors/", import.meta.url);
const PURE = ["namespace", "format", "decode", "m4", "paths", "state", "search", "tree", "sorting", "drawing", "download", "figure"];

export function load() {
  const elements = { elements: {} };
  const context = vm.createContext({ atob, Blob, Response, DecompressionStream, TextDecoder, URLSearchParams, setTimeout, URL, elements });
  const text = PURE.map((name) => readFileSync(fileURLToPath(new URL(`${name}.js`, ASSETS)), "utf8")).join("\n");
  return vm.runInContext(`${text}\ntorchstone`, context);
}

export function vectors(name) {
  return JSON.parse(readFileSync(fileURLToPath(new URL(`${name}.json`, VECTORS)), "utf8"));
}

export function tableOf(columns) {
  const places = new Map(); // of each text among the strings
  const made = {};
  for (const [name, values] of Object.entries(columns)) {
    const text = typeof values[0] === "string";
    const kept = values.map((value) => {
      if (!text) return value === null ? NaN : value;
      if (!places.has(value)) places.set(value, places.size);
      return places.get(value);
    });
    made[name] = { name, title: name, shown: text ? "text" : "count", kind: text ? "text" : "integer", values: Float64Array.from(kept) };
  }
  return { rows: Object.values(columns)[0].length, strings: [...places.keys()], columns: made };
}
