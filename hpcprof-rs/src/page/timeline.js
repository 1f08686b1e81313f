/* What happened when: how many threads are in each state, and how many work on each track of the program. A
   track unfolds into threads. The part that is shown is in the address, as shares of the whole. */

const LANE = 34, THREAD = 12, LABEL = 220;
const STATE_COLOURS = [["works", "--work"], ["waits", "--other"], ["idle", "--idleness"],
  ["spins", "--overhead"], ["unseen", "--line"]];

function timeline(model, state, go) {
  const data = model.reports.timeline;
  const area = element("div");
  const legend = element("p", { id: "legend" });
  for (const [name, colour] of STATE_COLOURS) {
    const box = element("i");
    box.style.setProperty("background", `var(${colour})`);
    legend.append(element("span", {}, box, name));
  }
  if (data.path.length > 1) {
    const line = element("i");
    line.style.setProperty("background", "var(--ink)");
    legend.append(element("span", {}, line, "critical path"));
  }
  const keys =
    "up, down: track · click, Enter: its threads · drag, +: zoom · left, right: move · Escape: all";
  legend.append(element("span", {}, keys));
  const detail = element("p", { id: "detail", role: "status" });
  const label = "Timeline: threads at work by track";
  const canvas = element("canvas", { tabindex: "0", role: "img", "aria-label": label });
  area.append(legend, detail, canvas);
  const bins = data.states.works.length;
  const share = (text, otherwise) => (text !== "" && text >= 0 && text <= 1 ? Number(text) : otherwise);
  const from = share(state.from, 0), to = Math.max(share(state.to, 1), from + 1 / bins);
  const unfolded = data.tracks.findIndex((of) => of.name === state.track);
  const threads = data.of_threads.filter((of) => unfolded >= 0 && of.track === data.tracks[unfolded].track);
  const most = (rows) => Math.max(1, ...rows.flatMap((row) => row.map((value) => value / 100)));
  const peak = most(data.tracks.map((of) => of.working));
  const all = data.states.works.map((_, bin) =>
    STATE_COLOURS.reduce((sum, [name]) => sum + data.states[name][bin], 0));
  const lanes = [{ track: -1, height: 2 * LANE, peak: most([all]) }];
  data.tracks.forEach((_, track) => {
    lanes.push({ track, height: LANE, peak });
    if (track === unfolded) threads.forEach((thread) => lanes.push({ track, thread, height: THREAD }));
  });
  let top = 0;
  for (const lane of lanes) {
    lane.top = top;
    top += lane.height + 2;
  }
  let current = unfolded < 0 ? 0 : unfolded, pressed = null;

  const wide = () => Math.max(50, (area.clientWidth || 800) - LABEL);
  const nameOfLane = (lane) => (lane.thread ? lane.thread.name
    : lane.track < 0 ? "n_working and idle threads" : data.tracks[lane.track].name);

  function draw() {
    const width = wide(), scale = window.devicePixelRatio || 1;
    canvas.width = (width + LABEL) * scale;
    canvas.height = top * scale;
    canvas.style.setProperty("height", top + "px");
    const pen = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    pen.scale(scale, scale);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const first = Math.floor(from * bins), last = Math.ceil(to * bins);
    const x = (bin) => LABEL + (bin / bins - from) / (to - from) * width;
    const bar = (lane, bin, base, value, fill) => {
      pen.fillStyle = fill;
      const unit = lane.height / lane.peak / 100;
      const left = Math.max(LABEL, x(bin));
      const y = lane.top + lane.height - (base + value) * unit;
      pen.fillRect(left, y, x(bin + 1) - left + 0.3, value * unit);
    };
    for (const lane of lanes) {
      pen.fillStyle = colour(lane.thread || lane.track !== current ? "--faint" : "--ink");
      pen.fillText(fit(pen, nameOfLane(lane), LABEL - 24), lane.thread ? 18 : 2, lane.top + lane.height / 2);
      if (lane.thread) {
        let at = 0;
        for (const [of, length] of lane.thread.runs) {
          const left = Math.max(LABEL, x(at)), right = Math.min(LABEL + width, x(at += length));
          if (of < 0 || right <= left) continue;
          pen.fillStyle = colour(STATE_COLOURS[of][1]);
          pen.fillRect(left, lane.top, right - left, lane.height);
        }
        continue;
      }
      for (let bin = first; bin < last; bin++) {
        if (lane.track >= 0) {
          bar(lane, bin, 0, data.tracks[lane.track].working[bin], colour("--work"));
          continue;
        }
        let base = 0;
        for (const [name, of] of STATE_COLOURS) {
          bar(lane, bin, base, data.states[name][bin], colour(of));
          base += data.states[name][bin];
        }
      }
    }
    drawEdges(pen, x, LABEL + width, colour);
  }

  /* The lane of a thread, else of its track, else -1. */
  const laneOf = (process, ordinal, track) => {
    const same = ({ thread }) => thread && thread.id[0] === process && thread.id[1] === ordinal;
    const own = lanes.findIndex(same);
    return own >= 0 ? own : lanes.findIndex((of) => track >= 0 && !of.thread
      && of.track >= 0 && data.tracks[of.track].track === track);
  };
  const foot = (lane) => lane.top + lane.height - (lane.thread ? lane.height / 2 : 1.5);

  /* Draws the critical path, and the flows between the threads that are shown. */
  function drawEdges(pen, x, right, colour) {
    pen.save();
    pen.beginPath();
    pen.rect(LABEL, 0, right - LABEL, top);
    pen.clip();
    pen.strokeStyle = colour("--faint");
    pen.beginPath();
    for (const [from, begin, to, end] of data.flows.shown) {
      const ends = [laneOf(...from, -1), laneOf(...to, -1)].map((at) => lanes[at]);
      if (!ends[0] || !ends[1] || x(end + 1) < LABEL || x(begin) > right) continue;
      pen.moveTo(x(begin + 0.5), foot(ends[0]));
      pen.lineTo(x(end + 0.5), foot(ends[1]));
    }
    pen.stroke();
    pen.strokeStyle = colour("--ink");
    pen.lineWidth = 3;
    pen.beginPath();
    let at = 0, before = -1;
    for (const [process, ordinal, track, length] of data.path) {
      const lane = process < 0 ? -1 : laneOf(process, ordinal, track);
      if (lane >= 0) {
        const y = foot(lanes[lane]);
        // Between two lanes, or beside the path's own stretches, it is on its way.
        if (before >= 0) pen.lineTo(x(at), y);
        else pen.moveTo(x(at), y);
        pen.lineTo(x(at + length), y);
        before = lane;
      }
      at += length;
    }
    pen.stroke();
    pen.restore();
  }

  /* Says what is where; without a place, of the chosen track as a whole. */
  function tell(lane, bin) {
    detail.textContent = "";
    if (!lane) {
      const hidden = data.hidden_tracks ? ` · ${data.hidden_tracks} smaller tracks are not shown` : "";
      const track = data.tracks[current], waiting = data.standing_by;
      const asleep = waiting.threads
        ? ` · ${waiting.threads} of them stand by (${waiting.work.toFixed(3)} s of work): not drawn` : "";
      const more = unfolded >= 0 && data.threads > data.of_threads.length
        ? ` · threads: the ${data.of_threads.length} with the most work` : "";
      const flows = unfolded >= 0 && data.flows.all > data.flows.shown.length
        ? ` · flows: ${data.flows.shown.length} of ${data.flows.all}` : "";
      detail.append(element("strong", {}, track ? track.name : "no work"),
        track ? `: ${track.work.toFixed(3)} s of work` : "",
        ` · ${data.threads} threads in ${data.span.toFixed(3)} s${asleep}${hidden}${more}${flows}`);
      return;
    }
    const time = `${(bin * data.bin).toFixed(4)} s`;
    const count = (values) => (values[bin] / 100).toFixed(2);
    let end = 0;
    const path = data.path.find((run) => bin < (end += run[3]));
    const onPath = path && path[0] >= 0 && lanes[laneOf(...path)] === lane ? " · on the critical path" : "";
    const what = lane.thread ? ""
      : lane.track >= 0 ? `: ${count(data.tracks[lane.track].working)} threads work`
      : ": " + STATE_COLOURS.map(([name]) => `${name} ${count(data.states[name])}`).join(" · ");
    detail.append(element("strong", {}, nameOfLane(lane)), ` at ${time}${what}${onPath}`);
  }

  const range = (a, b) => {
    const [low, high] = [Math.max(0, Math.min(a, b)), Math.min(1, Math.max(a, b))];
    const whole = low <= 0 && high >= 1;
    go({ from: whole ? "" : low.toFixed(5), to: whole ? "" : high.toFixed(5) });
  };
  const unfold = (track) => go({ track: track === unfolded ? "" : data.tracks[track]?.name ?? "" });
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const y = event.clientY - box.top, place = (event.clientX - box.left - LABEL) / wide();
    const lane = lanes.find((of) => y >= of.top && y < of.top + of.height);
    return { lane, place: from + Math.min(1, Math.max(0, place)) * (to - from) };
  };
  canvas.addEventListener("mousemove", (event) => {
    const { lane, place } = at(event);
    if (lane) tell(lane, Math.min(bins - 1, Math.floor(place * bins)));
  });
  canvas.addEventListener("mousedown", (event) => { pressed = at(event); });
  canvas.addEventListener("mouseup", (event) => {
    const { lane, place } = at(event);
    if (pressed && Math.abs(place - pressed.place) > 0.01 * (to - from)) range(pressed.place, place);
    else if (lane && lane.track >= 0) unfold(lane.track);
    pressed = null;
  });
  canvas.addEventListener("keydown", (event) => {
    const move = (by) => { if (by !== 0) range(from + by, to + by); };
    const half = (to - from) / 4, step = (to - from) / 5;
    const act = {
      ArrowUp: () => { current = Math.max(0, current - 1); },
      ArrowDown: () => { current = Math.max(0, Math.min(data.tracks.length - 1, current + 1)); },
      ArrowLeft: () => move(Math.max(-step, -from)),
      ArrowRight: () => move(Math.min(step, 1 - to)),
      "+": () => range(from + half, to - half),
      "-": () => range(from - 2 * half, to + 2 * half),
      Enter: () => unfold(current),
      Escape: () => range(0, 1),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
    tell();
    draw();
  });
  return { area, draw, tell: () => { tell(); draw(); } };
}
