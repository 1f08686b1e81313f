/* The contexts as an icicle on a canvas: width is the metric, and if that is effort, colours say of what. */

const ROW = 20, LEAST = 0.5;

function icicle(model, state, go) {
  const area = element("div");
  const legend = element("p", { id: "legend" });
  const compares = model.databases.length > 1;
  const parts = ["work", "idleness", "overhead"];
  const isEffort = state.metric === "effort";
  const only = parts.find((name) => state.metric.split(":")[0] === name) ?? "other";
  const kinds = compares ? [["more", "--overhead"], ["less", "--less"], ["the same", "--other"]]
    : isEffort ? parts.map((name) => [name, `--${name}`]) : [[state.metric, `--${only}`]];
  for (const [name, colour] of kinds) {
    const box = element("i");
    box.style.setProperty("background", `var(${colour})`);
    legend.append(element("span", {}, box, name));
  }
  const keys = "width: the metric · click, Enter: zoom · Escape: out · arrows: move";
  legend.append(element("span", {}, keys));
  const detail = element("p", { id: "detail", role: "status" });
  const label = "Icicle of calling contexts";
  const canvas = element("canvas", { tabindex: "0", role: "img", "aria-label": label });
  area.append(legend, detail, canvas);
  const shown = find(model, state.metric, 0);
  const other = compares ? find(model, state.metric, 1) : null;
  const weigh = (node) => Math.max(shown.all[node], other ? other.all[node] : 0);
  const columns = parts.map((name) => find(model, name, 0));
  const cache = new Map();
  const below = (node) => {
    if (!cache.has(node)) cache.set(node, callees(model, node, (of) => weigh(of) > 0, weigh));
    return cache.get(node);
  };
  const root = model.count > state.focus ? state.focus : -1;
  const total = root < 0 ? below(-1).reduce((sum, node) => sum + weigh(node), 0) : weigh(root);
  let boxes = [], current = -1;

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => {
      const hex = style.getPropertyValue(name).trim().slice(1);
      return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
    };
    const names = ["work", "idleness", "overhead", "other", "less", "on-colour", "ink", "focus"];
    return Object.fromEntries(names.map((name) => [name, read("--" + name)]));
  }

  const css = ([r, g, b]) => `rgb(${r | 0} ${g | 0} ${b | 0})`;

  /* Fills a box: with the parts of the effort side by side, or by how much two databases differ. */
  function fill(pen, { node, x, width }, y, of) {
    const wide = Math.max(LEAST, width - 1);
    const paint = (from, length, colour) => {
      pen.fillStyle = css(colour);
      pen.fillRect(from, y, length, ROW - 1);
    };
    if (compares) {
      const [a, b] = [shown.all[node], other.all[node]];
      const share = Math.min(1, Math.abs(a - b) / Math.max(a, b, 1) * 2);
      const to = a > b ? of.overhead : of.less;
      return paint(x, wide, of.other.map((from, i) => from + (to[i] - from) * share));
    }
    if (!isEffort) return paint(x, wide, of[only]);
    let from = x;
    parts.forEach((name, part) => {
      const length = columns[part].all[node] / shown.all[node] * wide;
      paint(from, length, of[name]);
      from += length;
    });
  }

  function draw() {
    const width = area.clientWidth || 800, scale = window.devicePixelRatio || 1;
    boxes = [];
    const todo = [];
    const above = [];
    for (let node = root; node >= 0; node = model.parent[node]) above.unshift(node);
    above.slice(0, -1).forEach((node, row) => boxes.push({ node, x: 0, width, row, above: true }));
    const top = Math.max(0, above.length - 1);
    const lay = (nodes, x, row) => {
      for (const node of nodes) {
        const wide = total > 0 ? weigh(node) / total * width : 0;
        if (wide < LEAST) break;
        todo.push({ node, x, width: wide, row });
        x += wide;
      }
    };
    lay(root < 0 ? below(-1) : [root], 0, top);
    for (let at = 0; at < todo.length; at++) {
      boxes.push(todo[at]);
      lay(below(todo[at].node), todo[at].x, todo[at].row + 1);
    }
    const rows = 1 + boxes.reduce((most, box) => Math.max(most, box.row), 0);
    canvas.width = width * scale;
    canvas.height = rows * ROW * scale;
    canvas.style.setProperty("height", rows * ROW + "px");
    const pen = canvas.getContext("2d"), of = colours();
    pen.scale(scale, scale);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    for (const box of boxes) {
      const y = box.row * ROW, name = nameOf(model, model.scope[box.node]);
      const isFaint = box.above || (state.search !== "" && !isFound(name));
      pen.globalAlpha = isFaint ? 0.35 : 1;
      fill(pen, box, y, of);
      if (box.width > 30) {
        pen.globalAlpha = 1;
        pen.fillStyle = css(isFaint ? of.ink : of["on-colour"]);
        pen.fillText(fit(pen, name, box.width - 6), box.x + 3, y + ROW / 2);
      }
      if (box.node === current) {
        pen.globalAlpha = 1;
        pen.strokeStyle = css(of.focus);
        pen.lineWidth = 2;
        pen.strokeRect(box.x + 1, y + 1, Math.max(1, box.width - 2), ROW - 3);
      }
    }
  }

  function isFound(name) {
    return name.toLowerCase().includes(state.search.toLowerCase());
  }

  function tell(node) {
    current = node;
    detail.textContent = "";
    const names = [...new Set([state.metric, "effort", ...parts])];
    const amounts = model.databases.map((_, database) => names
      .map((name) => [name, find(model, name, database)])
      .map(([name, of]) => `${name} ${amount(node < 0 ? of.total : of.all[node], of.unit)}`).join(" · "));
    if (node >= 0) {
      const scope = model.scopes[model.scope[node]];
      const what = ` ${scope[KIND]}, ${placeOf(model, model.scope[node])}: `;
      detail.append(element("strong", {}, scope[NAME]), what,
        `${percent(shown.all[node], shown.total)} % of ${state.metric} · `);
    } else detail.append("in all: ");
    detail.append(amounts.join(" | "));
    draw();
  }

  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const [x, row] = [event.clientX - box.left, Math.floor((event.clientY - box.top) / ROW)];
    return boxes.find((of) => of.row === row && x >= of.x && x < of.x + Math.max(of.width, 1))?.node ?? -1;
  };
  const zoom = (node) => go({ focus: node });
  canvas.addEventListener("mousemove", (event) => {
    const node = at(event);
    if (node !== current) tell(node);
  });
  canvas.addEventListener("click", (event) => {
    const node = at(event);
    if (node >= 0) zoom(node === root ? model.parent[node] : node);
  });
  canvas.addEventListener("keydown", (event) => {
    const siblings = current < 0 ? below(-1) : below(model.parent[current]);
    const place = siblings.indexOf(current);
    const next = {
      ArrowDown: () => (current < 0 ? (root < 0 ? siblings[0] : root) : below(current)[0]),
      ArrowUp: () => (current === root ? current : model.parent[current]),
      ArrowRight: () => siblings[place + 1],
      ArrowLeft: () => siblings[place - 1],
    }[event.key];
    if (next) {
      event.preventDefault();
      tell(next() ?? current);
    } else if (event.key === "Enter" && current >= 0) {
      zoom(current);
    } else if (event.key === "Escape") {
      zoom(root < 0 ? -1 : model.parent[root]);
    }
  });
  return { area, draw, tell };
}

/* As much of a name as fits; its end is what tells it apart. */
function fit(pen, name, width) {
  if (pen.measureText(name).width <= width) return name;
  const most = Math.floor(width / 6.5) - 1;
  return most > 2 ? "…" + name.slice(-most) : "";
}
