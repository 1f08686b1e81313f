/* Puts the page together. What is shown is in the address behind `#`, so that it can be linked to. */

(async () => {
  const text = JSON.parse(new TextDecoder().decode(await unpack("text")));
  const model = readModel(text, await unpack("numbers"));
  const VIEWS = [
    ["summary", "Summary", summary, model.reports.summary],
    ["icicle", "Icicle", icicle, true],
    ["timeline", "Timeline", timeline, model.reports.timeline],
    ["top-down", "Top-down", topDown, true],
    ["bottom-up", "Bottom-up", bottomUp, true],
    ["flat", "Flat", flat, true],
    ["source", "Source", source, model.source.length],
    ["threads", "Threads", threads, model.reports.threads],
    ["regions", "Regions", regions, model.reports.regions?.regions?.length],
    ["path", "Critical path", criticalPath, model.reports.path],
  ].filter(([, , , has]) => has);
  const metrics = [...new Set(model.columns.filter((of) => of.total > 0).map((of) => of.name))];
  const start = { view: VIEWS[0][0], metric: "effort", focus: -1, search: "", file: "", from: "", to: "", track: "" };
  let state = start, picture = null;

  const [main, tabs, metric, search, found] =
    ["view", "tabs", "metric", "search", "found"].map((id) => document.getElementById(id));
  const [first, second] = model.databases;
  document.title = `${first.program} – hpcprof-rs`;
  document.getElementById("title").textContent = first.program;
  document.getElementById("about").textContent =
    model.databases.map((of) => `${of.name}: wall ${of.wall.toFixed(3)} s on ${of.cores} cores`)
      .join(" · compared with ")
    + ` · ${model.count.toLocaleString("en")} contexts` + (second ? " · new against old" : "");

  function read() {
    const given = new URLSearchParams(location.hash.slice(1).replaceAll("+", "%2B"));
    state = { ...start, ...Object.fromEntries(given) };
    state.focus = Number.isInteger(Number(state.focus)) ? Math.max(-1, Number(state.focus)) : -1;
    if (!VIEWS.some(([name]) => name === state.view)) state.view = start.view;
    if (!metrics.includes(state.metric)) state.metric = start.metric;
    show();
  }

  function go(change) {
    const next = { ...state, ...change };
    const other = Object.entries(next).filter(([name, value]) => value !== start[name]);
    const hash = "#" + String(new URLSearchParams(Object.fromEntries(other))).replaceAll("+", "%20");
    if (hash !== (location.hash || "#")) location.hash = hash;
  }

  function show() {
    for (const tab of tabs.childNodes) tab.setAttribute("aria-selected", String(tab.name === state.view));
    metric.value = state.metric;
    if (document.activeElement !== search) search.value = state.search;
    const [, , render] = VIEWS.find(([name]) => name === state.view);
    const isDrawn = render === icicle || render === timeline;
    const hadFocus = document.activeElement?.tagName === "CANVAS";
    const shown = render(model, state, go);
    picture = isDrawn ? shown : null;
    main.replaceChildren(picture ? picture.area : shown);
    picture?.tell(state.focus);
    if (picture && hadFocus) main.querySelector("canvas").focus();
    count();
  }

  /* How much of the metric is in or under what is searched for. */
  function count() {
    found.textContent = "";
    if (!state.search) return;
    const asked = state.search.toLowerCase(), of = find(model, state.metric, 0);
    const is = model.scopes.map((scope) => scope[NAME].toLowerCase().includes(asked));
    let sum = 0, contexts = 0;
    for (let node = 0; node < model.count;) {
      if (is[model.scope[node]]) {
        sum += of.all[node];
        contexts++;
        node = model.end[node];
      } else node++;
    }
    found.textContent =
      `${contexts.toLocaleString("en")} contexts, ${percent(sum, of.total)} % of ${state.metric}`;
  }

  for (const [name, label] of VIEWS) {
    const tab = element("button", { type: "button", role: "tab" }, label);
    tab.name = name;
    tab.addEventListener("click", () => go({ view: name }));
    tabs.append(tab);
  }
  metric.append(...metrics.map((name) => element("option", { value: name }, name)));
  metric.addEventListener("change", () => go({ metric: metric.value }));
  search.addEventListener("input", () => go({ search: search.value }));
  document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== search) {
      event.preventDefault();
      search.focus();
    }
  });
  window.addEventListener("hashchange", read);
  window.addEventListener("resize", () => picture?.draw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => picture?.draw());
  read();
})();
