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
 * @property {{text: string, tone: string} | null} banner
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
 * @property {(state: State) => any} update
 *
 * @typedef {object} SectionScript
 * @property {(root: HTMLElement, page: Page) => Promise<Mounted>} mount
 *
 * @typedef {object} TreeShape
 * @property {Int32Array} parent
 * @property {Int32Array} end first row after the subtree
 * @property {Int32Array} depth
 * @property {Int32Array} place among its siblings, from 1
 * @property {Int32Array} siblings how many there are
 *
 * @typedef {{hits: number, rows: number}} Found
 *
 * @typedef {object} TreeState what is open and found; trees that share one move together
 * @property {Uint8Array} open
 * @property {Uint8Array | null} kept
 * @property {Uint8Array | null} hits
 * @property {number} selected
 * @property {{draw: () => void, reveal: () => void}[]} views
 *
 * @typedef {{sign: string, text: string, tone: string}} TreeMark
 *
 * @typedef {object} TreeView
 * @property {HTMLElement} element
 * @property {TreeState} state
 * @property {(found: Uint8Array) => Found} keep show these rows and the way to each
 * @property {(query: string) => Found} filter
 * @property {(row: number, quietly?: boolean) => void} select
 * @property {(step: number) => void} stepHit go to the next or previous hit
 * @property {() => void} openAll
 * @property {() => void} closeAll
 * @property {() => number} selected
 * @property {(path: string) => number} rowOf the row of a module path, -1 if there is none
 * @property {(row: number) => string} pathOf
 *
 * @typedef {object} TableView
 * @property {HTMLElement} element
 * @property {(query: string) => Found} filter
 * @property {(row: number, quietly?: boolean) => void} select
 * @property {() => Int32Array} order the rows as shown
 *
 * @typedef {object} VirtualRows
 * @property {(count: number) => void} setCount
 * @property {() => void} redraw
 * @property {(row: number) => void} reveal
 *
 * @typedef {object} Reduced
 * @property {Int32Array} rows the rows to draw, rising
 * @property {Int32Array} tops for each of them the row of the highest value in its pixel column
 * @property {number} span rows per pixel column; 1 when every row is drawn
 *
 * @typedef {object} ChartSpec
 * @property {string} name
 * @property {string} title
 * @property {string} table
 * @property {{column: string, title: string, filled: boolean}[]} series
 * @property {"steps" | "line" | "bars"} shape
 * @property {string} shown
 * @property {string} x_title
 * @property {string} x_column
 * @property {string[]} hover
 * @property {{row: number, series: string, text: string}[]} marks
 * @property {{value: number, text: string}[]} lines
 * @property {{first: number, end: number, text: string}[]} bands
 * @property {string} tab
 * @property {string} note
 *
 * @typedef {{lo: number, hi: number, width: number, row: number}} ChartView rows lo to hi - 1, `width` pixels, a chosen row or -1
 *
 * @typedef {object} Box
 * @property {number} place in the drawing
 * @property {number} row of the table of boxes
 * @property {string} kind call, op, fold, input, output
 * @property {string} label
 * @property {string} short
 * @property {string} detail
 * @property {number} target
 * @property {number} count
 * @property {boolean} failed
 * @property {number} x centre; NaN when it is listed, not drawn
 * @property {number} y top
 * @property {number} width
 *
 * @typedef {{source: number, target: number, track: number, text: string}} BoxEdge
 * @typedef {{boxes: Box[], edges: BoxEdge[]}} Drawing
 *
 * @typedef {object} Namespace each part has the type of what its script makes, so that calls between scripts are checked
 * @property {Record<string, SectionScript>} sections
 * @property {typeof torchstoneApp} app
 * @property {typeof torchstoneCanvas} canvas
 * @property {typeof torchstoneChart} chart
 * @property {typeof torchstoneDecode} decode
 * @property {typeof torchstoneDetails} details
 * @property {typeof torchstoneDownload} download
 * @property {typeof torchstoneDrawing} drawing
 * @property {typeof torchstoneElements} elements
 * @property {typeof torchstoneFigure} figure
 * @property {typeof torchstoneFormat} format
 * @property {typeof torchstoneListing} listing
 * @property {typeof torchstoneM4} m4
 * @property {typeof torchstonePaths} paths
 * @property {typeof torchstoneRows} rows
 * @property {typeof torchstoneSearch} search
 * @property {typeof torchstoneSorting} sorting
 * @property {typeof torchstoneState} state
 * @property {typeof torchstoneTable} table
 * @property {typeof torchstoneTheme} theme
 * @property {typeof torchstoneRefresh} refresh
 * @property {typeof torchstoneTree} tree
 * @property {typeof torchstoneTreeview} treeview
 */

var torchstone = /** @type {Namespace} */ (/** @type {any} */ ({ sections: {} }));
