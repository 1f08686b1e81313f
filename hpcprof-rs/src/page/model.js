"use strict";
/* The contexts of the page as columns, and what they amount to. Nothing here touches what is shown. */

async function unpack(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

/* Reads the block of numbers; `text` is the JSON beside it. */
function readModel(text, buffer) {
  const bytes = new Uint8Array(buffer);
  let at = 0;
  const number = () => {
    let value = 0, factor = 1, byte;
    do {
      byte = bytes[at++];
      value += (byte & 0x7f) * factor;
      factor *= 128;
    } while (byte >= 0x80);
    return value;
  };
  const count = number();
  const depth = new Uint32Array(count), parent = new Int32Array(count), end = new Uint32Array(count);
  const open = [];
  for (let node = 0; node < count; node++) {
    for (let less = number(); less > 0; less--) end[open.pop()] = node;
    parent[node] = open.length ? open[open.length - 1] : -1;
    depth[node] = open.length;
    open.push(node);
  }
  for (const node of open) end[node] = count;
  const scope = new Uint32Array(count);
  for (let node = 0; node < count; node++) scope[node] = number();
  const model = { ...text, count, depth, parent, end, scope, columns: [] };
  for (const database of text.databases.keys()) {
    for (const metric of text.metrics) {
      const own = new Float64Array(count);
      for (let left = number(), node = 0; left > 0; left--) {
        node += number();
        own[node] = number();
      }
      model.columns.push(column(model, metric.name, metric.unit, database, own));
    }
    const effort = new Float64Array(count);
    for (const name of ["work", "idleness", "overhead"]) {
      const of = find(model, name, database).own;
      for (let node = 0; node < count; node++) effort[node] += of[node];
    }
    model.columns.push(column(model, "effort", "seconds", database, effort));
  }
  return model;
}

function column(model, name, unit, database, own) {
  const all = own.slice();
  let total = 0;
  for (let node = model.count - 1; node >= 0; node--) {
    if (model.parent[node] >= 0) all[model.parent[node]] += all[node];
    else total += all[node];
  }
  return { name, unit, database, own, all, total };
}

function find(model, name, database) {
  return model.columns.find((of) => of.name === name && of.database === database);
}

/* The contexts that one calls (-1: the roots) and that are shown, the largest first by what `weigh` says. */
function callees(model, node, isShown, weigh) {
  const found = [];
  const last = node < 0 ? model.count : model.end[node];
  for (let at = node + 1; at < last; at = model.end[at]) {
    if (isShown(at)) found.push(at);
  }
  return found.sort((a, b) => Math.abs(weigh(b)) - Math.abs(weigh(a)) || a - b);
}

const KIND = 0, NAME = 1, MODULE = 2, FILE = 3, LINE = 4, ORIGIN = 5;

function nameOf(model, scope) {
  return model.scopes[scope][NAME];
}

function placeOf(model, scope) {
  const [, , module, file, line] = model.scopes[scope];
  const from = file ?? module;
  return `${from.slice(from.lastIndexOf("/") + 1)}${file && line ? ":" + line : ""}`;
}

/* An amount for reading: three digits behind the point for times. */
function amount(value, unit) {
  switch (unit) {
    case "seconds": return (value / 1e9).toFixed(3);
    case "ratio": return (value / 1e9).toFixed(3);
    default: return Math.round(value).toLocaleString("en");
  }
}

function percent(part, whole) {
  return whole > 0 ? (100 * part / whole).toFixed(1) : "–";
}
