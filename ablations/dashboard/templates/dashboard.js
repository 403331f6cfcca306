// Shows what the server sends: HTML of a directory, which is merged into the page so that focus,
// scrolling and opened logs stay, and Vega-Lite figures, whose data is exchanged where it can be.
const main = document.getElementById("directories");
const connection = document.getElementById("connection");
const figures = new Map(); // by element id: the spec, and once it is drawn its view and skeleton

function say(text, style) {
  if (connection.textContent !== text) connection.textContent = text;
  connection.className = style;
}

function merge(old, now) {
  if (old.isEqualNode(now) || old.dataset?.figure !== undefined) return;
  if (old.nodeName !== now.nodeName || old.id !== now.id || old.nodeType !== Node.ELEMENT_NODE) {
    old.replaceWith(now);
    return;
  }
  for (const { name, value } of [...now.attributes]) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const mine = [...old.childNodes], theirs = [...now.childNodes];
  // Elements with an id are found wherever they have moved to, so that figures and logs are kept.
  const known = new Map(mine.filter(x => x.id).map(x => [x.id, x]));
  theirs.forEach((next, at) => {
    const here = old.childNodes[at];
    const same = known.get(next.id);
    if (same && same !== here) old.insertBefore(same, here ?? null);
    if (same) merge(same, next);
    else if (!here) old.append(next);
    else if (here.id) old.insertBefore(next, here);
    else merge(here, next);
  });
  while (old.childNodes.length > theirs.length) old.lastChild.remove();
}

function showDirectory(name, html) {
  const parsed = new DOMParser().parseFromString(html, "text/html").body.firstElementChild;
  const old = document.getElementById(name);
  if (old) merge(old, parsed);
  else main.insertBefore(parsed, main.querySelector(".nothing"));
}

// Give each data set of the specification a name, and take it out.
function takeData(spec) {
  const data = {};
  const skeleton = JSON.parse(JSON.stringify(spec), (key, value) => {
    if (key !== "data" || !Array.isArray(value?.values)) return value;
    const name = `data${Object.keys(data).length}`;
    data[name] = value.values;
    return { name };
  });
  return { skeleton, data };
}

// currentColor follows the page between light and dark.
const text = { labelColor: "currentColor", titleColor: "currentColor" };
const config = {
  axis: { ...text, domainColor: "#888", tickColor: "#888", gridColor: "#8886" },
  legend: text, title: { color: "currentColor", anchor: "start" }, view: { stroke: "#8884" },
};

const AXIS = 70; // pixels that a panel needs next to its width

async function draw(id) {
  const figure = figures.get(id), element = document.getElementById(id);
  if (!window.vegaEmbed || !element || !figure || figure.busy) return;
  figure.busy = true;
  const spec = figure.spec, { skeleton, data } = takeData(spec);
  delete skeleton.title; // the page has it as the caption
  const room = element.closest(".figures").clientWidth;
  if (skeleton.concat) { // in rows of equal length, as wide as there is room
    const panels = skeleton.concat.length;
    const rows = Math.ceil(panels / Math.max(1, Math.floor(room / 300)));
    skeleton.columns = Math.ceil(panels / rows);
    for (const panel of skeleton.concat) panel.width = Math.floor(room / skeleton.columns) - AXIS;
  }
  if (skeleton.layer) Object.assign(skeleton, { width: Math.min(skeleton.width + 120, room), autosize: { type: "fit-x", contains: "padding" } });
  const shape = JSON.stringify(skeleton);
  try {
    if (figure.view && figure.shape === shape) {
      for (const [name, values] of Object.entries(data)) figure.view.data(name, values);
      await figure.view.runAsync();
    } else {
      figure.view?.finalize();
      const whole = { ...skeleton, datasets: data };
      const made = await vegaEmbed(element, whole, { actions: false, renderer: "svg", config });
      Object.assign(figure, { view: made.view, shape });
    }
  } finally {
    figure.busy = false;
  }
  if (figure.spec !== spec) draw(id); // a newer one came meanwhile
}

function show(parts) {
  for (const { name, part, value } of parts.filter(x => x.part === "html")) showDirectory(name, value);
  for (const { name, part, value } of parts.filter(x => x.part !== "html")) {
    const id = `${name}:${part}`;
    figures.set(id, Object.assign(figures.get(id) ?? {}, { spec: value }));
    draw(id);
  }
}

let version = 0; // of what is shown

async function poll() {
  let changes;
  try {
    const answer = await fetch(`${main.dataset.changes}?since=${version}`, { signal: AbortSignal.timeout(60_000) });
    if (!answer.ok) throw new Error(answer.statusText);
    changes = await answer.json();
  } catch {
    say("disconnected: what you see may be old; trying again", "lost");
  }
  setTimeout(poll, 2000);
  if (!changes) return;
  show(changes.parts);
  version = changes.version;
  say("live", "live");
}

const drawAll = () => figures.forEach((_, id) => draw(id));
document.getElementById("vega").addEventListener("load", drawAll);
window.addEventListener("resize", drawAll);
poll();
