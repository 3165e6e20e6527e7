// The table of links: a group of rows for each link, with a row for each direction.

import { bits, bytes, count, el, percent, setText } from "./text.js";

const table = document.getElementById("table");
const filter = document.getElementById("filter");
const which = document.getElementById("which");
const unselect = document.getElementById("unselect");
const shown = document.getElementById("shown");
const groups = new Map(); // by name: { body, link, rows }
let selected = null; // the names of links, or null for all

filter.addEventListener("input", showMatching);
which.addEventListener("change", showMatching);
unselect.addEventListener("click", () => {
  selected = null;
  unselect.hidden = true;
  filter.focus();
  showMatching();
});

/** Shows only these links until the user ends it. */
export function select(names, what) {
  selected = new Set(names);
  unselect.textContent = `${names.length} links of ${what} ✕`;
  unselect.setAttribute("aria-label", `Show all links, not only ${names.length} of ${what}`);
  unselect.hidden = false;
  showMatching();
  unselect.scrollIntoView({ block: "center" });
  unselect.focus();
}

export function updateTable(changed, open) {
  const before = groups.size;
  for (const link of changed) {
    let group = groups.get(link.name);
    if (!group) {
      group = makeGroup(link, open);
      groups.set(link.name, group);
      table.append(group.body);
    }
    group.link = link;
    link.directions.forEach((d, i) => updateRow(group.rows[i], d));
  }
  if (groups.size > before || which.value !== "all") showMatching();
}

function makeGroup(link, open) {
  const [a, b] = link.ends;
  const button = el("button", { type: "button", class: "link", onclick: () => open(link.name, button) }, link.name);
  const rows = [[a, b], [b, a]].map(([from, to], i) => {
    const cells = ["state", "rate number", "traffic", "sent number", "packets number wide", "queued number",
      "drops number", "marks number wide", "trims number wide", "pauses number wide"]
      .map((name) => el("td", { class: name }));
    const bar = el("span", { class: "bar", "aria-hidden": "true" });
    const traffic = el("span", {});
    cells[2].append(traffic, bar);
    const first = i === 0 ? [el("th", { scope: "rowgroup", rowspan: "2" }, button)] : [];
    return { row: el("tr", {}, ...first, el("td", {}, el("span", { class: "long" }, `${from} → ${to}`),
      el("span", { class: "short" }, i === 0 ? "→" : "←")), ...cells), cells, bar,
      traffic };
  });
  return { body: el("tbody", { "data-link": link.name }, ...rows.map((r) => r.row)), link, rows };
}

function updateRow({ cells, bar, traffic }, d) {
  const number = (n) => (n ? count(n) : "");
  setText(cells[0], (d.up ? "up" : "✕ down") + (d.paused ? ", paused" : ""));
  setText(cells[1], d.rate);
  setText(traffic, d.bps ? `${bits(d.bps)}, ${percent(d.load)}` : "");
  bar.style.width = `${Math.min(90, 90 * d.load)}%`;
  setText(cells[3], d.bytes ? bytes(d.bytes) : "");
  setText(cells[4], number(d.packets));
  setText(cells[5], d.waiting ? bytes(d.waiting) : "");
  setText(cells[6], (d.dropping ? "▲ " : "") + number(d.drops));
  cells[6].title = (d.reasons ?? []).join(", ");
  setText(cells[7], number(d.marks));
  setText(cells[8], number(d.trims));
  setText(cells[9], number(d.pauses));
}

const kinds = {
  all: () => true,
  busy: (link) => link.directions.some((d) => d.bps > 0),
  trouble: (link) => link.directions.some((d) => d.drops + d.marks + d.trims + d.pauses > 0),
  down: (link) => link.directions.some((d) => !d.up),
};

function showMatching() {
  const text = filter.value.trim().toLowerCase();
  let matching = 0;
  for (const { body, link } of groups.values()) {
    const matches = (!selected || selected.has(link.name)) && kinds[which.value](link) &&
      link.name.toLowerCase().includes(text);
    if (matches) matching++;
    // A row with the focus stays, so that the focus is not lost.
    body.hidden = !matches && !body.contains(document.activeElement);
  }
  setText(shown, `${matching} of ${groups.size} links.`);
}

/** Returns the button of a link, which gets the focus when its panel closes. */
export function buttonOf(name) { return groups.get(name)?.body.querySelector("button"); }
