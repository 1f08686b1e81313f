/* Trees and tables whose rows unfold: top-down, bottom-up, flat, source. */

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/* The columns of a table of contexts: those of the metric and its parts, of both databases. */
function figures(model, state) {
  const names = [...new Set([state.metric, "effort", "work", "idleness", "overhead"])];
  const columns = [];
  for (const name of names) {
    const [a, b] = model.databases.map((_, database) => find(model, name, database));
    const label = b ? [`${name} new`, `${name} old`] : [name];
    if (b && name === state.metric) columns.push({ label: `${name} difference`, of: a, minus: b });
    [a, b].filter(Boolean).forEach((of, i) => columns.push({ label: label[i], of }));
  }
  return columns;
}

/* A row is {name, place, kind, values, below}: `below` gives the rows under it. `values` are by column. */
function tree(head, rows, state) {
  const body = element("tbody");
  const titles = head.map((of) => element("th", { class: "number", scope: "col" }, of));
  const table = element("table", { role: "treegrid" },
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "context"), ...titles,
      element("th", { scope: "col" }, "place"))), body);
  const insert = (rows, level, before) => {
    for (const row of rows.slice(0, MOST)) body.insertBefore(line(row, level), before);
    if (rows.length > MOST) {
      const left = `… ${rows.length - MOST} more rows`;
      const rest = element("td", { class: "faint", colspan: head.length + 2 }, left);
      rest.style.setProperty("padding-left", `${level * 14 + 20}px`);
      const more = element("tr", { "aria-level": level + 1, tabindex: "-1" }, rest);
      more.addEventListener("click", () => {
        insert(rows.slice(MOST), level, more);
        more.remove();
      });
      body.insertBefore(more, before);
    }
  };
  const line = (row, level) => {
    const made = element("tr", { tabindex: "-1", "aria-level": level + 1 });
    const twist = element("span", { class: "twist" }, row.below ? "▸" : "");
    const name = element("td", { class: row.origin ?? "" }, twist, row.name);
    name.style.setProperty("padding-left", `${level * 14}px`);
    const asked = state.search.toLowerCase();
    if (asked && row.name.toLowerCase().includes(asked)) made.classList.add("found");
    const value = (of) => element("td", { class: "number", title: of.title ?? "" }, of.text);
    made.append(name, ...row.values.map(value),
      element("td", { class: "faint", title: row.title ?? "" }, row.place));
    if (!row.below) return made;
    made.setAttribute("aria-expanded", "false");
    made.holds = row.holds;
    made.fold = (unfold) => {
      const is = made.getAttribute("aria-expanded") === "true";
      if (is === unfold) return;
      made.setAttribute("aria-expanded", String(unfold));
      twist.textContent = unfold ? "▾" : "▸";
      if (unfold) insert(row.below(), level + 1, made.nextSibling);
      else while (Number(made.nextSibling?.getAttribute("aria-level")) > level + 1) made.nextSibling.remove();
    };
    name.addEventListener("click", () => made.fold(made.getAttribute("aria-expanded") !== "true"));
    return made;
  };
  insert(rows, 0, null);
  body.addEventListener("keydown", (event) => {
    const row = event.target.closest("tr");
    const to = { ArrowDown: row.nextSibling, ArrowUp: row.previousSibling }[event.key];
    if (to) to.focus();
    else if (event.key === "ArrowRight") row.fold?.(true);
    else if (event.key === "ArrowLeft") row.fold?.(false);
    else if (event.key === "Enter") row.click();
    else return;
    event.preventDefault();
  });
  if (body.firstChild) body.firstChild.setAttribute("tabindex", "0");
  /* Unfolds the first rows, or those that hold what is searched for. */
  for (let row = body.firstChild, left = 12; row; row = row.nextSibling) {
    if (!row.fold || body.childNodes.length > MOST) continue;
    if (state.search ? row.holds : left-- > 0 && body.childNodes.length < 40) row.fold(true);
  }
  return table;
}

const MOST = 100;

function valuesOf(columns, pick) {
  return columns.map(({ of, minus }) => {
    const value = pick(of) - (minus ? pick(minus) : 0);
    const share = minus ? "" : `${percent(value, of.total)} % of ${of.name}`;
    return { text: amount(value, of.unit), title: share };
  });
}

function rowOf(model, scope, values, below) {
  const [kind, name, module, file, , origin] = model.scopes[scope];
  return { name, kind, origin, values, below, place: placeOf(model, scope), title: file ?? module };
}

/* What rows are sorted by: the metric, or by how much it differs. */
function weight(model, state) {
  const [a, b] = model.databases.map((_, database) => find(model, state.metric, database));
  return (pick) => b ? pick(a) - pick(b) : pick(a);
}

function topDown(model, state) {
  const columns = figures(model, state), weigh = weight(model, state);
  const shown = columns.filter((column) => column.of.name === state.metric).map((column) => column.of);
  const is = (of) => shown.some((column) => column.all[of] !== 0);
  const holds = new Uint8Array(model.count), asked = state.search.toLowerCase();
  for (let node = model.count - 1; node >= 0; node--) {
    const found = holds[node] || nameOf(model, model.scope[node]).toLowerCase().includes(asked);
    if (found && model.parent[node] >= 0) holds[model.parent[node]] = 1;
  }
  const rows = (node) => callees(model, node, is, (of) => weigh((column) => column.all[of])).map((of) => ({
    ...rowOf(model, model.scope[of], valuesOf(columns, (column) => column.all[of]),
      model.end[of] > of + 1 ? () => rows(of) : null),
    holds: holds[of] === 1,
  }));
  return tree(columns.map((of) => of.label), rows(state.focus < model.count ? state.focus : -1), state);
}

/* Groups of contexts by a scope, with the sums of `part` over them, the largest first. */
function groups(columns, weigh, nodes, scopeOf, part) {
  const found = new Map();
  for (const entry of nodes) {
    const scope = scopeOf(entry);
    let group = found.get(scope);
    if (!group) found.set(scope, group = { scope, sums: new Map(), entries: [] });
    group.entries.push(entry);
    for (const of of columns) group.sums.set(of, (group.sums.get(of) ?? 0) + part(of, entry));
  }
  const size = (group) => Math.abs(weigh((of) => group.sums.get(of) ?? 0));
  return [...found.values()].sort((a, b) => size(b) - size(a));
}

/* Procedures by their own amounts, then their callers. An entry is a context and the caller that it is at. */
function bottomUp(model, state) {
  const columns = figures(model, state), weigh = weight(model, state);
  const used = columns.filter((column) => !column.minus).map((column) => column.of);
  const shown = used.filter((of) => of.name === state.metric);
  const own = [];
  for (let node = 0; node < model.count; node++) {
    if (shown.some((of) => of.own[node] !== 0)) own.push([node, node]);
  }
  const ownOf = (of, [node]) => of.own[node];
  const rows = (entries) => groups(used, weigh, entries, ([, at]) => model.scope[at], ownOf)
    .map((group) => {
      const callers = () => group.entries.filter(([, at]) => model.parent[at] >= 0)
        .map(([node, at]) => [node, model.parent[at]]);
      const has = group.entries.some(([, at]) => model.parent[at] >= 0);
      const values = valuesOf(columns, (of) => group.sums.get(of));
      return rowOf(model, group.scope, values, has ? () => rows(callers()) : null);
    });
  return tree(columns.map((of) => of.label), rows(own), state);
}

/* Modules, files and procedures by their own amounts. */
function flat(model, state) {
  const columns = figures(model, state), weigh = weight(model, state);
  const used = columns.filter((column) => !column.minus).map((column) => column.of);
  const shown = used.filter((of) => of.name === state.metric);
  const nodes = [...Array(model.count).keys()].filter((node) => shown.some((of) => of.own[node] !== 0));
  const by = [
    (node) => model.scopes[model.scope[node]][MODULE] || "[no module]",
    (node) => model.scopes[model.scope[node]][FILE] ?? "[no file]",
    (node) => nameOf(model, model.scope[node]),
  ];
  const rows = (entries, level) => groups(used, weigh, entries, by[level], (of, node) => of.own[node])
    .map((group) => ({
      name: group.scope, place: level < 2 ? "" : placeOf(model, model.scope[group.entries[0]]),
      values: valuesOf(columns, (of) => group.sums.get(of)),
      below: level < 2 ? () => rows(group.entries, level + 1) : null,
    }));
  return tree(columns.map((of) => of.label), rows(nodes, 0), state);
}
