"use strict";
// The address holds the state of the page, such as #rows.sort=BLEU+ours,down&rows.open=base.
const state = new URLSearchParams(location.hash.slice(1));

function keep(key, value) {
  if (value) state.set(key, value);
  else state.delete(key);
  history.replaceState(null, "", "#" + state);
}

// "12.5 ± 0.3" is 12.5, "1,600" 1600, "100K" 100000, "2 min 05 s" 125, "1.2e15" itself.
const UNITS = { K: 1e3, M: 1e6, s: 1, min: 60, h: 3600, days: 86400 };
function number(text) {
  const plain = text.replaceAll(",", "").replaceAll("\u2212", "-").split("±")[0].trim();
  if (plain.endsWith("∞")) return plain === "∞" ? Infinity : -Infinity;
  const parts = [...plain.matchAll(/([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s*(days|min|K|M|s|h)?(?![a-z])/g)];
  if (parts[0]?.index !== 0) return NaN;  // such as "step 400 of 1,500"
  return parts.slice(0, parts[0][2] ? 2 : 1).reduce((sum, [, x, unit]) => sum + x * (UNITS[unit] ?? 1), 0);
}

// Cells without a number come last in both directions, unless no cell of the column has one.
function compare(a, b, sign) {
  const [x, y] = [number(a), number(b)];
  if (Number.isNaN(x) && Number.isNaN(y)) return sign * a.localeCompare(b);
  if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
  return sign * (x - y);
}

function interactive(table) {
  const body = table.tBodies[0];
  const rows = [...body.rows].filter((row) => !row.classList.contains("details"));
  const details = new Map(rows.map((row) => {
    const id = row.cells[0].dataset.opens;
    return [row, id && document.getElementById(id)];
  }));
  const heads = [...table.tHead.rows].at(-1).cells;
  const name = (row) => row.cells[0].textContent.trim();

  const open = (row, wanted) => {
    details.get(row).hidden = !wanted || row.hidden;
    row.querySelector("button.open").setAttribute("aria-expanded", wanted);
  };
  const isOpen = (row) => row.querySelector("button.open")?.getAttribute("aria-expanded") === "true";

  const sort = (title, direction) => {
    const column = [...heads].findIndex((head) => head.dataset.title === title);
    const text = (row) => row.cells[column].textContent.trim();
    const known = column >= 0 && ["up", "down"].includes(direction);
    const sign = direction === "down" ? -1 : 1;
    const order = known ? rows.toSorted((a, b) => compare(text(a), text(b), sign)) : rows;
    order.forEach((row) => body.append(...[row, details.get(row)].filter(Boolean)));
    [...heads].forEach((head, index) => head.setAttribute("aria-sort",
      known && index === column ? (sign > 0 ? "ascending" : "descending") : "none"));
    table.classList.toggle("sorted", known);
  };

  const filter = (words) => {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    rows.forEach((row) => {
      const text = row.textContent.toLowerCase();
      row.hidden = !wanted.every((word) => text.includes(word));
      if (details.get(row)) open(row, isOpen(row));
    });
    count.textContent = wanted.length ? `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows` : "";
  };

  [...heads].forEach((head) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    button.title = `sort by ${head.dataset.title}`;
    button.onclick = () => {
      const next = { none: "up", ascending: "down", descending: "" }[head.getAttribute("aria-sort")];
      keep(`${table.id}.sort`, next && `${head.dataset.title},${next}`);
      sort(head.dataset.title, next);
    };
    head.append(button);
  });
  rows.filter((row) => details.get(row)).forEach((row) => {
    const button = document.createElement("button");
    button.className = "open";
    button.setAttribute("aria-controls", row.cells[0].dataset.opens);
    button.append(...row.cells[0].childNodes);
    button.onclick = () => {
      open(row, !isOpen(row));
      keep(`${table.id}.open`, rows.filter(isOpen).map(name).join(","));
    };
    row.cells[0].append(button);
    open(row, false);
  });
  const label = document.createElement("label");
  const input = document.createElement("input");
  const count = document.createElement("output");
  input.type = "search";
  input.oninput = () => { keep(`${table.id}.filter`, input.value); filter(input.value); };
  label.className = "filter";
  label.append("Filter rows", input, count);
  if (rows.length > 1) table.closest(".scroll").before(label);

  const restore = () => {
    const [title, direction] = (state.get(`${table.id}.sort`) ?? "").split(/,(?=[^,]*$)/);
    const opened = (state.get(`${table.id}.open`) ?? "").split(",");
    input.value = state.get(`${table.id}.filter`) ?? "";
    sort(title, direction);
    rows.filter((row) => details.get(row)).forEach((row) => open(row, opened.includes(name(row))));
    filter(input.value);
  };
  addEventListener("hashchange", () => {
    const now = new URLSearchParams(location.hash.slice(1));
    [...state.keys()].forEach((key) => state.delete(key));
    now.forEach((value, key) => state.set(key, value));
    restore();
  });
  restore();
}

document.querySelectorAll("table[id]").forEach(interactive);

// A plot becomes interactive when it is first seen; until then its static drawing is shown.
const seen = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
  seen.unobserve(target);
  const spec = JSON.parse(target.querySelector("script").textContent);
  const place = document.createElement("div");
  vegaEmbed(place, spec, { renderer: "svg", actions: false }).then(() => target.querySelector(".drawing").replaceChildren(place));
}));
if (window.vegaEmbed) document.querySelectorAll("figure").forEach((figure) => seen.observe(figure));
