// Fetches the page every two seconds and merges it into this one, so that focus, scrolling, opened
// logs and unchanged plots stay as they are.
const main = document.querySelector("main");
const connection = document.getElementById("connection");

function say(text, style) {
  if (connection.textContent !== text) connection.textContent = text;
  connection.className = style;
}

function merge(old, now) {
  if (old.isEqualNode(now)) return;
  if (old.nodeName !== now.nodeName || old.id !== now.id || old.nodeType !== Node.ELEMENT_NODE) {
    old.replaceWith(now);
    return;
  }
  for (const { name, value } of [...now.attributes]) old.setAttribute(name, value);
  if (old.dataset.spec !== undefined) return;
  // Elements with an id are found wherever they have moved to.
  const known = new Map([...old.children].filter(x => x.id).map(x => [x.id, x]));
  const theirs = [...now.childNodes];
  theirs.forEach((next, at) => {
    const here = old.childNodes[at], same = known.get(next.id);
    if (same && same !== here) old.insertBefore(same, here);
    if (same) merge(same, next);
    else if (!here) old.append(next);
    else if (here.id) old.insertBefore(next, here);
    else merge(here, next);
  });
  while (old.childNodes.length > theirs.length) old.lastChild.remove();
}

// currentColor follows the page's light or dark colours.
const text = { labelColor: "currentColor", titleColor: "currentColor" };
const config = {
  axis: { ...text, domainColor: "#888", tickColor: "#888", gridColor: "#8886" },
  legend: text, title: { color: "currentColor", anchor: "start" }, view: { stroke: "#8884" },
};

const PANEL = 310; // width of a plot's panel with its axis, in pixels

async function draw(figure) {
  const spec = JSON.parse(figure.dataset.spec);
  if (spec.concat) {
    const width = figure.parentElement.clientWidth;
    const table = figure.parentElement.querySelector(".scroll")?.offsetWidth ?? 0;
    const room = Math.floor((width - table) / PANEL) || Math.floor(width / PANEL) || 1;
    spec.columns = Math.min(room, spec.concat.length);
  }
  const wanted = `${spec.columns} ${figure.dataset.spec}`; // drawn again when the window is resized
  if (figure.drawn === wanted || !window.vegaEmbed) return;
  figure.drawn = wanted;
  const drawing = document.createElement("div"); // replaces the old one when it is ready
  drawing.className = "next";
  figure.append(drawing);
  const { view } = await vegaEmbed(drawing, spec, { actions: false, renderer: "svg", config });
  figure.view?.finalize();
  figure.view = view;
  drawing.className = "";
  figure.replaceChildren(drawing);
}

async function poll() {
  try {
    const answer = await fetch("/", { signal: AbortSignal.timeout(60_000) });
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    merge(main, page.querySelector("main"));
    say("live", "live");
  } catch {
    say("disconnected: what you see may be old; trying again", "lost");
  }
  document.querySelectorAll("[data-spec]").forEach(draw);
  setTimeout(poll, 2000);
}

poll();
