"use strict";
/* The one global object of the page. Each script adds its part to it; the start is in app.js. */

/**
 * @typedef {object} Column
 * @property {string} name
 * @property {string} title
 * @property {string} shown how values are written: text, count, bytes, seconds, number, status, module, op, hidden
 * @property {"integer" | "float" | "text" | "lists"} kind
 * @property {Float64Array} values numbers, or places in the string table; NaN is "not known"
 * @property {Float64Array} [lengths] only for lists
 *
 * @typedef {object} Table
 * @property {number} rows
 * @property {string[]} strings
 * @property {Record<string, Column>} columns
 *
 * @typedef {Record<string, string>} State what the address after # says
 *
 * @typedef {object} ColumnHead
 * @property {string} name
 * @property {string} title
 * @property {string} shown
 * @property {boolean} [bar]
 *
 * @typedef {object} Card
 * @property {string} title
 * @property {string} value
 * @property {string} detail
 * @property {string} tone
 *
 * @typedef {object} SectionIndex
 * @property {string} name
 * @property {string} title
 * @property {Card[]} cards
 * @property {any[]} charts
 * @property {{name: string, title: string, empty: string}[]} tables
 * @property {string[]} notes
 * @property {Record<string, any>} settings
 * @property {string} script
 *
 * @typedef {object} PageIndex
 * @property {string} schema
 * @property {string} title
 * @property {string} created
 * @property {boolean} failed
 * @property {boolean} source
 * @property {boolean} plotly
 * @property {SectionIndex[]} sections
 * @property {ColumnHead[]} module_columns
 *
 * @typedef {object} Page what a section may use
 * @property {PageIndex} index
 * @property {SectionIndex} section
 * @property {(name: string) => Promise<Table>} table decoded when first asked for
 * @property {(changes: Record<string, string>) => void} go change the address, and with it what is shown
 * @property {() => State} state
 *
 * @typedef {object} Mounted
 * @property {(state: State) => void} update
 *
 * @typedef {object} SectionScript
 * @property {(root: HTMLElement, page: Page) => Promise<Mounted>} mount
 */

/** @type {any} */
var torchstone = { /** @type {Record<string, SectionScript>} */ sections: {} };
