// The drawing of the topology, with the state of the links.

import { percent, setText } from "./text.js";

const place = document.getElementById("picture");
const labels = 24; // lines up to which each line shows its load
let lines = []; // { group, path, width, label, names }
let buttons = []; // parts that can be chosen
let known = new Map();

/** Draws the plan. choose is called with the names of the links of a line or box, and what it is. */
export function loadPicture(links, choose) {
  known = links;
  const request = new XMLHttpRequest(); // it reads XML without making elements of the page from text
  request.open("GET", "picture.svg");
  request.responseType = "document";
  request.onload = () => {
    const svg = request.responseXML?.documentElement;
    if (request.status !== 200 || !svg) {
      place.textContent = "There is no picture.";
      return;
    }
    const drawn = document.importNode(svg, true);
    place.replaceChildren(drawn);
    buttons = [];
    // A large picture scrolls rather than becoming too small to read.
    drawn.style.minWidth = `${Math.max(620, 0.7 * drawn.getAttribute("width"))}px`;
    for (const group of place.querySelectorAll("[data-devices]")) {
      const devices = new Set(group.dataset.devices.split(" "));
      const text = group.querySelector("text").textContent;
      button(group, text, () => choose([...known.values()]
        .filter((l) => l.ends.some((end) => devices.has(end.slice(0, end.lastIndexOf(":"))))).map((l) => l.name),
      text));
    }
    const groups = [...place.querySelectorAll("[data-links]")];
    lines = groups.map((group, i) => {
      const names = group.dataset.links.split(" ");
      const text = names.length === 1 ? names[0] : `${names.length} links`;
      button(group, text, () => choose(names, names.length === 1 ? names[0] : "this line"));
      const path = group.querySelector("path.l");
      return { group, names, path, width: Math.max(1, path.getAttribute("stroke-width")),
        label: addLabel(path, i, groups.length, names) };
    });
    lines.forEach(show);
  };
  request.send();
}

/** Makes a part of the drawing a button. Tab leads to one of the buttons, and arrows to the others. */
function button(group, label, press) {
  group.setAttribute("role", "button");
  group.setAttribute("tabindex", buttons.length ? "-1" : "0");
  group.setAttribute("aria-label", label);
  const at = buttons.push(group) - 1;
  group.addEventListener("click", press);
  group.addEventListener("keydown", (e) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
    if (!step && e.key !== "Enter" && e.key !== " ") return;
    e.preventDefault(); // arrows and the space bar scroll
    if (!step) return press();
    const next = buttons[(at + step + buttons.length) % buttons.length];
    group.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });
}

/** Adds the label of a line, near a server, or for lines that cross at different places. */
function addLabel(path, i, count, names) {
  const part = known.get(names[0])?.class === "host" ? 0.24 : [0.36, 0.5, 0.64][i % 3];
  const at = path.getPointAtLength(path.getTotalLength() * part);
  const label = document.createElementNS("http://www.w3.org/2000/svg", "text");
  label.setAttribute("class", count > labels ? "mark small" : "mark");
  label.setAttribute("x", at.x);
  label.setAttribute("y", at.y + 4);
  path.ownerSVGElement.lastElementChild.append(label); // above all lines
  return label;
}

export function updatePicture(changed) {
  const names = new Set(changed.map((l) => l.name));
  for (const line of lines) {
    if (line.names.some((name) => names.has(name))) show(line);
  }
}

function show({ group, path, width, label, names }) {
  const links = names.map((name) => known.get(name)).filter(Boolean);
  const directions = links.flatMap((link) => link.directions);
  const down = links.filter((link) => link.directions.some((d) => !d.up)).length;
  if (links.length === 1) { // the picture has the settings of the plan
    const [link] = links;
    setText(group.querySelector("title"), [link.name, ...link.directions.map((d, i) =>
      `${link.ends[i]} → ${link.ends[1 - i]}: ${d.rate} ${d.settings ?? ""}`)].join("\n"));
  }
  const load = Math.max(0, ...directions.map((d) => d.load));
  const dropping = directions.some((d) => d.dropping);
  group.classList.toggle("busy", load > 0);
  path.style.strokeWidth = `${width + (load > 0 ? 1.2 : 0) + (load >= 0.8 ? 2.5 : 0)}px`;
  group.classList.toggle("down", down > 0);
  label.classList.toggle("hot", load >= 0.8);
  const words = [];
  if (down) words.push(names.length > 1 ? `✕ ${down} of ${names.length}` : "✕");
  if (dropping) words.push("▲");
  if (load > 0 && (lines.length <= labels || links[0].class === "host" || load >= 0.8)) words.push(percent(load));
  label.textContent = words.join(", ");
}
