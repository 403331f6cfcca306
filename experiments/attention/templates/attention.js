"use strict";
const views = JSON.parse(document.getElementById("views").textContent);
const form = document.querySelector("form");
const [svg, said] = [document.querySelector("#drawing svg"), document.getElementById("said")];
const sides = { queries: document.getElementById("queries"), keys: document.getElementById("keys") };
const ROW = 24; // in pixels; the height of a word's button is 1.5rem of 16
const FAINTEST = 50; // of 1,000: many faint lines would hide the strong ones
const FAINTEST_OF_A_WORD = 10;
const SPREAD = 10; // pixels over which the parallel lines of several heads are spread

// A word is { side, row }: kept by a click, or for a moment under the pointer or the focus.
let [kept, pointed] = [null, null];

const colour = (head) => form.querySelector(`[name=head][value="${head}"]`).parentElement.style.getPropertyValue("--head");
const heads = () => [...form.querySelectorAll("[name=head]:checked")].map((box) => Number(box.value));
const view = () => views[form.elements.kind.value];
// A variant's stacks may have different depths; beyond the shallower one its last layer is shown.
const layer = () => Math.min(form.elements.layer.value, view().weights.length);
const weights = (head) => view().weights[layer() - 1][head - 1];

function element(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  return made;
}

function drawLines(chosen) {
  const shown = heads();
  const step = Math.min(2.5, SPREAD / shown.length);
  const lines = shown.flatMap((head, place) => {
    const offset = ROW / 2 + (place - (shown.length - 1) / 2) * step;
    return weights(head).flatMap((row, query) => row.map((weight, key) => {
      const hidden = chosen && (chosen.side === "queries" ? query : key) !== chosen.row;
      return weight < (chosen ? FAINTEST_OF_A_WORD : FAINTEST) || hidden ? null : element("line", {
        x1: 0, x2: "100%", y1: query * ROW + offset, y2: key * ROW + offset, stroke: colour(head),
        "stroke-opacity": weight / 1000, "stroke-width": 0.5 + weight / 400,
      });
    }));
  });
  svg.replaceChildren(...lines.filter(Boolean));
}

// What each head gives: from a chosen query to all keys, or to a chosen key from all queries.
function given(chosen, row, head) {
  const [query, key] = chosen.side === "queries" ? [chosen.row, row] : [row, chosen.row];
  return weights(head)[query][key];
}

function drawShares(chosen) {
  Object.entries(sides).forEach(([side, column]) => [...column.children].forEach((button, row) => {
    const isChosen = chosen?.side === side && chosen.row === row;
    button.classList.toggle("chosen", isChosen);
    button.setAttribute("aria-pressed", kept?.side === side && kept.row === row);
    const marks = chosen && chosen.side !== side ? heads().map((head) => {
      const mark = document.createElement("i");
      mark.style.background = colour(head);
      mark.style.opacity = given(chosen, row, head) / 1000;
      return mark;
    }) : [];
    button.querySelector(".shares").replaceChildren(...marks);
  }));
}

function say(chosen) {
  const shown = heads();
  if (!shown.length) { said.textContent = "Choose at least one head."; return; }
  if (!chosen) { said.textContent = ""; return; }
  const words = view()[chosen.side === "queries" ? "keys" : "queries"];
  const best = words.map((word, row) => [word, shown.reduce((sum, head) => sum + given(chosen, row, head), 0) / shown.length / 10])
    .filter(([, share]) => share >= 1).sort((a, b) => b[1] - a[1]).slice(0, 4);
  const list = best.map(([word, share]) => `${word} ${share.toFixed(0)} %`).join(", ") || "nothing above 1 %";
  const direction = chosen.side === "queries" ? "attends to" : "is attended to by";
  const mean = shown.length > 1 ? `, mean of ${shown.length} heads` : "";
  said.textContent = `“${view()[chosen.side][chosen.row]}” ${direction}: ${list}${mean}`;
}

function redraw() {
  const chosen = pointed ?? kept;
  drawLines(chosen);
  drawShares(chosen);
  say(chosen);
}

function word(text, side, row) {
  const button = document.createElement("button");
  const shares = document.createElement("span");
  shares.className = "shares";
  button.type = "button";
  button.tabIndex = row ? -1 : 0; // one stop of Tab for each column; arrows move within it
  const name = document.createElement("span");
  name.textContent = text;
  button.append(...(side === "keys" ? [name, shares] : [shares, name]));
  const point = () => { pointed = { side, row }; redraw(); };
  const leave = () => { pointed = null; redraw(); };
  button.onmouseenter = button.onfocus = point;
  button.onmouseleave = button.onblur = leave;
  button.onclick = () => {
    const again = kept?.side === side && kept.row === row;
    kept = again ? null : { side, row };
    if (again) pointed = null;
    redraw();
  };
  button.onkeydown = (event) => {
    if (event.key === "Escape") { kept = pointed = null; redraw(); return; }
    const column = [...sides[side].children];
    const place = { ArrowDown: row + 1, ArrowUp: row - 1, Home: 0, End: column.length - 1 }[event.key];
    const other = { ArrowLeft: "queries", ArrowRight: "keys" }[event.key];
    const next = other ? sides[other].children[Math.min(row, sides[other].children.length - 1)] : column[place];
    if (!next) return;
    event.preventDefault();
    [...next.parentElement.children].forEach((one) => { one.tabIndex = one === next ? 0 : -1; });
    next.focus();
  };
  return button;
}

function checkAll(checked) {
  form.querySelectorAll("[name=head]").forEach((box) => { box.checked = checked; });
  update();
}

// The address keeps what is chosen, such as #kind=cross&layer=3&heads=1,5.
function update() {
  const { kind, layer } = form.elements;
  const state = new URLSearchParams({ kind: kind.value, layer: layer.value, heads: heads().join(",") });
  history.replaceState(null, "", `#${decodeURIComponent(state)}`);
  show();
}

// Words are made again only if they change, so that a kept word stays kept from layer to layer.
let shown = null;

function show() {
  if (shown !== view()) {
    shown = view();
    [kept, pointed] = [null, null];
    document.getElementById("reading").textContent = shown.reading;
    Object.entries(sides).forEach(([side, column]) =>
      column.replaceChildren(...shown[side].map((text, row) => word(text, side, row))));
    svg.style.minHeight = `${ROW * Math.max(shown.queries.length, shown.keys.length)}px`;
  }
  redraw();
}

function restore() {
  const state = new URLSearchParams(location.hash.slice(1));
  ["kind", "layer"].forEach((name) => {
    const input = [...form.querySelectorAll(`[name=${name}]`)].find((one) => one.value === state.get(name));
    if (input) input.checked = true;
  });
  const wanted = state.get("heads");
  if (wanted !== null) form.querySelectorAll("[name=head]").forEach((box) => { box.checked = wanted.split(",").includes(box.value); });
  show();
}

form.onchange = update;
document.getElementById("all").onclick = () => checkAll(true);
document.getElementById("none").onclick = () => checkAll(false);
addEventListener("hashchange", restore);
restore();
