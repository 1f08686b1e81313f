/* What the commands print: the first screen, advice, threads, regions, the critical path, and the source. */

/* A table of objects with the fields that are named; a click on a head sorts. */
function listing(title, rows, names) {
  const known = names.filter((name) => rows?.some((row) => row[name] !== null && row[name] !== undefined));
  if (!known.length) return element("p", { class: "faint" }, `${title}: none`);
  const isNumber = (name) => rows.some((row) => typeof row[name] === "number");
  const text = (value) => {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return Number.isInteger(value) ? String(value) : value.toFixed(6);
    return typeof value === "object" ? `${value.name ?? ""} ${whereIs(value)}` : String(value);
  };
  const body = element("tbody");
  const fill = () => body.replaceChildren(...rows.slice(0, 500).map((row) => element("tr", {},
    ...known.map((name) => element("td", { class: isNumber(name) ? "number" : "" }, text(row[name]))))));
  const heads = known.map((name) => {
    const sort = element("button", { type: "button", title: "sort" }, name.replaceAll("_", " "));
    sort.addEventListener("click", () => {
      rows.sort((a, b) => isNumber(name) ? b[name] - a[name] : text(a[name]).localeCompare(text(b[name])));
      fill();
    });
    return element("th", { scope: "col", class: isNumber(name) ? "number" : "" }, sort);
  });
  fill();
  const more = rows.length > 500 ? [element("p", { class: "faint" }, `the first 500 of ${rows.length}`)] : [];
  return element("section", {}, element("h2", {}, title),
    element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body), ...more);
}

function whereIs({ file, line }) {
  return file ? `${file.slice(file.lastIndexOf("/") + 1)}${line ? ":" + line : ""}` : "";
}

function flatten(row) {
  const { values, ...rest } = row;
  return { ...rest, ...values };
}

function sentence({ name, place, text, most, error }) {
  const gain = most === null ? "" : `; gains at most ${most.toFixed(3)} s ±${error.toFixed(3)}`;
  const about = [place, name].filter(Boolean).join(" ");
  return [element("strong", {}, about), `${about ? ": " : ""}${text}${gain}`];
}

function summary(model) {
  const { advice, withheld } = model.reports.advice ?? {};
  const lines = (advice ?? []).map((of) => element("li", {}, ...sentence(of)));
  return element("div", {}, element("h2", {}, "What to do"),
    lines.length ? element("ol", {}, ...lines) : element("p", { class: "faint" }, withheld ?? "no advice"),
    element("h2", {}, "First screen"), element("pre", {}, model.reports.summary));
}

function threads(model) {
  const { threads, columns } = model.reports.threads;
  const names = ["name", "tid", "pid", "program", "host", ...columns.map((of) => of.name)];
  return listing("threads, times in seconds", threads.map(flatten), names);
}

function regions(model) {
  const { regions, lacks } = model.reports.regions;
  const rows = regions.map(({ overheads, ...rest }) => ({ ...rest, ...overheads, at: whereIs(rest) }));
  const names = ["name", "construct", "at", "executions", "serial", "area", "gain", "best", "verdict",
    ...Object.keys(regions[0]?.overheads ?? {})];
  return element("div", {}, listing("parallel regions, times in seconds", rows, names),
    ...(lacks ?? []).map((text) => element("p", { class: "faint" }, text)));
}

function criticalPath(model) {
  const path = model.reports.path;
  const head = `work ${path.work.toFixed(3)} s · span ${path.span.toFixed(3)} s · parallelism `
    + `${path.parallelism.toFixed(2)} · wall ${path.wall.toFixed(3)} s`;
  const users = new Set(model.scopes.filter((of) => of[ORIGIN] === "user").map((of) => of[NAME]));
  const procedures = path.procedures.filter((of) => users.has(of.name))
    .map((of) => ({ ...of, at: whereIs(of) }));
  return element("div", {}, element("p", {}, head),
    ...(path.doubts ?? []).map((text) => element("p", { class: "faint" }, text)),
    listing("procedures by what shortening them would gain", procedures,
      ["name", "at", "gain", "on_path", "share", "work", "zeroed_span"]),
    listing("predicted time by workers", path.prediction, ["workers", "seconds", "lower", "upper"]),
    listing("the path, from its begin", path.segments,
      ["thread", "seconds", "share", "edge", "begin", "end"]));
}

function source(model, state, go) {
  const metrics = model.metrics.map((of) => of.name);
  const at = metrics.indexOf(state.metric);
  const value = (sums) => at >= 0 ? sums[at] : sums[0] + sums[1] + sums[2];
  const unit = at >= 0 ? model.metrics[at].unit : "seconds";
  const total = find(model, state.metric, 0).total;
  const sum = (lines) => lines.reduce((all, [, of]) => all + value(of), 0);
  const files = model.source.map((file) => ({ ...file, sum: sum(file.lines) }))
    .filter((file) => file.sum > 0).sort((a, b) => b.sum - a.sum);
  const select = element("select", { "aria-label": "File" }, ...files.map((file) =>
    element("option", { value: file.path }, `${percent(file.sum, total)} %  ${file.path}`)));
  const shown = files.find((file) => file.path === state.file) ?? files[0];
  if (!shown) return element("p", { class: "faint" }, "no line of the source is known for this metric");
  select.value = shown.path;
  select.addEventListener("change", () => go({ file: select.value }));
  const amounts = new Map(shown.lines.map(([line, sums]) => [line, value(sums)]));
  const text = shown.text?.split("\n") ?? [];
  const last = Math.max(text.length, ...amounts.keys());
  const body = element("tbody");
  let hottest = null;
  for (let line = shown.text ? 1 : 0; line <= last; line++) {
    const sum = amounts.get(line) ?? 0;
    if (!shown.text && sum === 0) continue;
    const row = element("tr", {}, element("td", { class: "number" }, sum ? percent(sum, total) : ""),
      element("td", { class: "number" }, sum ? amount(sum, unit) : ""),
      element("td", { class: "number faint" }, String(line)),
      element("td", {}, element("code", {}, text[line - 1] ?? "")));
    if (sum > (hottest?.sum ?? 0)) hottest = { row, sum };
    body.append(row);
  }
  hottest?.row.classList.add("found");
  setTimeout(() => hottest?.row.scrollIntoView({ block: "center" }));
  const heads = ["%", state.metric, "line", "source"].map((name, i) =>
    element("th", { scope: "col", class: i < 3 ? "number" : "" }, name));
  const missing = shown.text ? []
    : [element("p", { class: "faint" }, `the text is not here: ${shown.missing}`)];
  return element("div", {}, element("p", {}, select), ...missing,
    element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body));
}
