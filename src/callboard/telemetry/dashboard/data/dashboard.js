"use strict";
// Draws what the stream of snapshots says. Nothing is sent; all text is set as text.

const WINDOW = 300, LEAST = 30; // seconds that are kept, and that are shown at least
const $ = (id) => document.getElementById(id);
const history = new Map(); // device -> {points: [{at, used, rate}], spans: [{number, from, to}], losses: [{at, text}]}
let previous = null, paused = false, frames = 0, drawn = 0, begun = null;

// The seconds that are shown: as many as this page has seen.
const shown = (now) => Math.min(WINDOW, Math.max(LEAST, now.at - begun));

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
function drawing(width, height, label) {
  const made = shape("svg", {viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label});
  return made;
}
function shape(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
function bytes(value) {
  if (value === undefined || value === null) return "-";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
  return `${value.toFixed(at > 1 ? 1 : 0)} ${units[at]}`;
}
function seconds(value) {
  if (value < 1e-3) return `${Math.round(value * 1e6)} µs`;
  return value < 1 ? `${(value * 1e3).toFixed(1)} ms` : `${value.toFixed(2)} s`;
}
const span = (value) => value < 100 ? `${Math.round(value)} seconds` : `${(value / 60).toFixed(value < 590 ? 1 : 0)} minutes`;
const rate = (now, before, elapsed) => before === undefined || elapsed <= 0 ? 0 : Math.max(0, now - before) / elapsed;
const round = (value) => value >= 10 || value === 0 ? value.toFixed(0) : value.toFixed(1);

function table(id, heads, rows, empty) {
  const head = element("tr");
  for (const [name, kind] of heads) head.append(element("th", kind ? {class: kind, scope: "col"} : {scope: "col"}, name));
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr");
    row.forEach((cell, at) => {
      const made = element("td", heads[at][1] ? {class: heads[at][1]} : {});
      if (cell instanceof Node) made.append(cell);
      else if (Array.isArray(cell)) { made.textContent = cell[0]; made.style.backgroundColor = `rgba(var(--heat), ${cell[1]})`; }
      else made.textContent = cell;
      line.append(made);
    });
    body.append(line);
  }
  const whole = $(id);
  whole.replaceChildren(element("thead", {}, head), body);
  if (!rows.length) whole.replaceChildren(element("caption", {}, empty));
}

function remember(now) {
  if (begun === null || (previous && previous.pid !== now.pid)) { begun = now.at; history.clear(); }
  for (const device of now.devices) {
    const kept = history.get(device.name) || {points: [], spans: [], losses: []};
    history.set(device.name, kept);
    const old = previous && previous.devices.find((each) => each.name === device.name);
    const elapsed = previous ? now.at - previous.at : 0;
    kept.points.push({at: now.at, used: device.memory.used || 0, rate: old ? rate(device.completed, old.completed, elapsed) : 0});
    const last = kept.spans[kept.spans.length - 1];
    if (device.state === "ready" && (!last || last.number !== device.generation)) kept.spans.push({number: device.generation, from: now.at, to: now.at});
    else if (last && last.number === device.generation && device.state === "ready") last.to = now.at;
    const loss = device.last_loss;
    const before = kept.losses[kept.losses.length - 1];
    if (loss && (!before || before.generation !== loss.generation)) kept.losses.push({...loss});
    else if (loss) Object.assign(before, {recovered: loss.recovered, how: loss.how});
    const from = now.at - WINDOW;
    kept.points = kept.points.filter((point) => point.at >= from);
    kept.spans = kept.spans.filter((span) => span.to >= from);
    kept.losses = kept.losses.filter((each) => each.at >= from);
  }
}

// Ops in flight at a loss, each once; of a file, its name.
function suspected(texts) {
  const counts = new Map();
  for (const text of texts) { const short = text.replace(/\([^()]*[\\/]([^\\/()]+:\d+)\)/, "($1)"); counts.set(short, (counts.get(short) || 0) + 1); }
  return [...counts].slice(0, 3).map(([text, count]) => count > 1 ? `${count} × ${text}` : text).join(", ");
}

// A part of a lane, from one time to another.
function part(kind, from, to, now, text, title) {
  const width = shown(now), at = (time) => Math.min(100, Math.max(0, (time - now.at + width) / width * 100));
  const made = element("div", {class: kind, title}, text);
  made.style.left = `${at(from)}%`;
  made.style.width = `${Math.max(0, at(to) - at(from))}%`;
  return made;
}

function lanes(now) {
  $("since").textContent = `The last ${span(shown(now))}.`;
  $("lanes").replaceChildren(...now.devices.map((device) => {
    const kept = history.get(device.name);
    const track = element("div", {class: "track", role: "img", "aria-label": `${device.name}: generation ${device.generation}, ${device.losses} losses`});
    for (const each of kept.spans) track.append(part("bar", each.from, each.to, now, each.number, `generation ${each.number}`));
    for (const loss of kept.losses) {
      const end = loss.recovered === null ? now.at : loss.at + loss.recovered;
      track.append(part("away", loss.at, end, now, "", "no context"), part("mark", loss.at, loss.at, now, "", loss.error));
      if (loss.recovered !== null) track.append(part("takeover", end, end, now, "", `next context: ${loss.how}`));
    }
    const state = element("span", {class: device.state === "ready" ? "ready" : device.state === "stopped" ? "stopped" : "other"}, device.state);
    const queue = Object.values(device.in_flight).reduce((sum, each) => sum + each, 0);
    const standby = device.standby === "none" ? "" : ` · ${device.standbys_ready} ${device.standby} standby`;
    const name = element("div", {}, element("strong", {}, device.name), " ", state,
      element("small", {}, `generation ${device.generation}, ${device.losses} lost · ${device.queued} queued, ${queue} in flight${standby}`));
    const lane = element("div", {class: "lane", "data-device": device.name, "data-generation": device.generation}, name, track);
    const loss = device.last_loss;
    if (loss) {
      const back = loss.recovered === null ? "no next context yet" : `next context after ${seconds(loss.recovered)} (${loss.how})`;
      const suspects = loss.suspects.length ? ` Suspects: ${suspected(loss.suspects)}.` : "";
      lane.append(element("div", {class: "lost"}, `Last loss ${new Date(loss.at * 1000).toLocaleTimeString()}, ${loss.error}: ${loss.failed} ops failed, ${back}.${suspects}`));
    }
    return lane;
  }));
  if (!now.devices.length) $("lanes").replaceChildren(element("p", {class: "note"}, "no device is open"));
}

function memory(now) {
  const from = now.at - shown(now);
  $("memory").replaceChildren(...now.devices.map((device) => {
    const points = history.get(device.name).points.filter((point) => point.at >= from);
    const high = Math.max(1, ...points.map((point) => point.used));
    const svg = drawing(300, 60, `memory of ${device.name}`);
    const at = points.map((point) => `${((point.at - from) / shown(now) * 300).toFixed(1)},${(58 - point.used / high * 54).toFixed(1)}`);
    if (at.length) {
      svg.append(shape("polygon", {class: "rest", points: `${at[0].split(",")[0]},60 ${at.join(" ")} 300,60`}));
      svg.append(shape("polyline", {class: "line", points: at.join(" ")}));
    }
    const now_ = points.length ? points[points.length - 1] : {rate: 0};
    return element("div", {class: "card"}, element("h3", {}, device.name), svg,
      element("p", {}, `${bytes(device.memory.used)} used, ${bytes(device.memory.free)} free, most ${bytes(device.memory.peak)} · ${round(now_.rate)} ops/s`));
  }));
}

// Columns of the buckets that have values, with the bounds of the first and the last.
function histogram(values, text, label) {
  let before = 0;
  const all = values.map(([bound, count]) => { const own = count - before; before = count; return [bound, own]; });
  const first = all.findIndex(([, own]) => own), last = all.findLastIndex(([, own]) => own);
  const counts = all.slice(Math.max(0, first), last + 1);
  if (!counts.length) return "";
  const high = Math.max(1, ...counts.map(([, own]) => own)), width = 240 / Math.max(12, counts.length);
  const svg = drawing(240, 40, label);
  counts.forEach(([bound, own], at) => {
    const tall = own ? Math.max(1, own / high * 38) : 0;
    const column = shape("rect", {class: "column", x: at * width, y: 40 - tall, width: Math.max(1, width - 1), height: tall});
    column.append(shape("title", {}, `up to ${text(bound)}: ${own}`));
    svg.append(column);
  });
  const ends = counts.length > 1 ? `up to ${text(counts[0][0])} … ${text(counts[counts.length - 1][0])}` : "";
  return element("figure", {}, svg, element("figcaption", {}, ends));
}

function servers(now) {
  $("servers").replaceChildren(...now.blueprints.map((server) => {
    const old = previous && previous.blueprints.find((each) => each.name === server.name);
    const done = server.ends.completed || 0;
    const speed = old ? rate(done, old.ends.completed || 0, now.at - previous.at) : 0;
    const card = element("div", {class: "card"}, element("h3", {}, `${server.name} (${server.kind})`),
      element("p", {}, `${server.queued} queued, ${server.running} running · ${done} completed, ${round(speed)}/s`));
    const others = Object.entries(server.ends).filter(([end, count]) => count && end !== "completed").map(([end, count]) => `${count} ${end}`);
    if (others.length) card.append(element("p", {class: "other"}, others.join(", ")));
    const figures = element("div", {class: "figures"});
    card.append(figures);
    for (const [name, figure] of Object.entries(server.figures)) {
      if (figure && Array.isArray(figure.buckets) && figure.count) {
        const text = name.includes("size") ? (value) => round(value) : seconds;
        figures.append(element("div", {}, element("p", {}, `${name.replaceAll("_", " ")}: median ${text(figure.p50)}, p99 ${text(figure.p99)}`), histogram(figure.buckets, text, `${name} of ${server.name}`)));
      }
    }
    return card;
  }));
  if (!now.blueprints.length) $("servers").replaceChildren(element("p", {class: "note"}, "no server has been started"));
}

function tables(now) {
  const elapsed = previous ? now.at - previous.at : 0;
  const ops = now.devices.flatMap((device) => Object.entries(device.ops).map(([tag, op]) => {
    const mean = op.measured ? op.seconds / op.measured : 0;
    return {row: [`${device.name} ${tag}`, op.submitted, op.failed, op.measured ? seconds(mean) : "–"], total: mean * op.submitted};
  })).sort((a, b) => b.total - a.total).slice(0, 20);
  const most = Math.max(1e-12, ...ops.map((each) => each.total));
  table("ops", [["op", "text"], ["calls"], ["failed"], ["mean"], ["total"]], ops.map((each) => [...each.row, [each.total ? seconds(each.total) : "–", (each.total / most * .5).toFixed(2)]]), "no op was called");
  const residents = now.devices.flatMap((device) => Object.entries(device.residents).map(([name, actor]) =>
    [`${device.name}/${name}`, actor.actor, actor.state, actor.in_flight, actor.completed, actor.failed, actor.restarts]));
  table("residents", [["actor", "text"], ["class", "text"], ["state", "text"], ["in flight"], ["completed"], ["failed"], ["restarts"]], residents, "no resident actor");
  const deepest = Math.max(10, ...now.actors.map((actor) => actor.depth));
  table("actors", [["actor", "text"], ["class", "text"], ["state", "text"], ["queue"], ["handled"], ["failed"], ["restarts"]], now.actors.map((actor) => {
    const depth = actor.path.split("/").length - 2;
    return ["\u00a0".repeat(2 * depth) + actor.path.split("/").pop(), actor.actor, actor.state, [actor.depth, (actor.depth / deepest * .6).toFixed(2)], actor.handled, actor.failed, actor.restarts];
  }), "no actor");
  $("actors-note").textContent = now.left_out.actors ? `${now.totals.actors} actors; the ${now.actors.length} with the longest queues are shown.` : "";
  const processes = now.processes.map((process) => {
    const old = previous && previous.processes.find((each) => each.pid === process.pid);
    return [process.pid, process.role, process.device, `${(rate(process.cpu, old && old.cpu, elapsed) * 100).toFixed(0)} %`, bytes(process.rss), process.threads];
  });
  table("processes", [["pid"], ["role", "text"], ["device", "text"], ["cpu"], ["memory"], ["threads"]], processes, "no figures");
}

function alerts(now) {
  const found = [];
  for (const device of now.devices) {
    if (device.state !== "ready") found.push(["bad", `${device.name} is ${device.state}`]);
    const {used, total} = device.memory;
    if (used && total && used > 0.9 * total) found.push(["warm", `${device.name}: more than 90 % of its memory is used`]);
    for (const [name, actor] of Object.entries(device.residents)) if (actor.state === "stopped") found.push(["bad", `${device.name}/${name} has stopped`]);
  }
  if (now.ring.dropped) found.push(["warm", `${now.ring.dropped} events were dropped: an exporter is too slow`]);
  const dead = Object.values(now.dead_letters).reduce((sum, each) => sum + each, 0);
  if (dead) found.push(["warm", `${dead} dead letters`]);
  for (const server of now.blueprints) if (server.ends.rejected) found.push(["warm", `${server.name} has rejected ${server.ends.rejected} requests`]);
  $("alerts-section").hidden = !found.length;
  $("alerts").replaceChildren(...found.map(([kind, text]) => element("li", {class: kind}, text)));
}

let shownAt = 0;
function show(now) {
  remember(now);
  const due = performance.now() - shownAt >= 95;
  if (due && !document.hidden) {
    shownAt = performance.now();
    $("title").textContent = `${now.system} on ${now.node}`;
    document.title = `${now.system} · callboard`;
    lanes(now);
    if (frames % 5 === 0) { alerts(now); memory(now); servers(now); tables(now); drawn += 1; }
    window.callboard = {frames, drawn, devices: now.devices.length, generations: now.devices.map((device) => device.generation)};
  }
  if (frames % 5 === 0) previous = now;
  frames += 1;
}

// Responses end after a while, and the browser asks again; after another answer than a stream, it does not.
let late = 0;
function tell(text) { $("state").textContent = text; $("state").className = text === "live" ? "" : "bad"; }
function connect() {
  const stream = new EventSource("events");
  const again = (text) => { stream.close(); tell(text); setTimeout(connect, 3000); };
  stream.onmessage = (event) => { clearTimeout(late); late = 0; tell("live"); if (!paused) show(JSON.parse(event.data)); };
  stream.onerror = () => {
    if (stream.readyState === EventSource.CLOSED) again("refused: open the address with its token, or close other pages");
    else if (!late) late = setTimeout(() => tell("no connection; trying again"), 2000);
  };
  stream.addEventListener("ended", (event) => again(`ended: ${event.data}`));
}
connect();
$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  $("pause").textContent = paused ? "Continue" : "Pause";
});
